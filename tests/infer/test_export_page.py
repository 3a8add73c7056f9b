"""The script of docs/export.md, which knows no vitscope, gives the answer of `vitscope predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import vitscope
from test_readme import ROOT, blocks
from vitscope.data.config import PreprocessConfig
from vitscope.data.photographs import builtin_picture

PAGE = ROOT / "docs" / "export.md"


def test_the_script_answers_as_predict_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = [block for block in blocks(PAGE, "python") if "onnxruntime.InferenceSession" in block]
    assert "vitscope" not in script.replace('"vitscope.', "").replace("vitscope predict", "")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model: Any = vitscope.create_model("vit_tiny", depth=1, num_classes=5)
    with torch.no_grad():
        model.head.weight.normal_()
    model.labels = ["cat", "dog", "fox", "owl", "elk"]
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    model.preprocessing = PreprocessConfig(img_size=(32, 32), crop_share=0.9, mean=mean, std=std)
    vitscope.export_model(model, "my-model.onnx")
    for name in ("china", "flower"):
        picture = builtin_picture(name)
        picture = picture.crop((0, 0, 201, 333)) if name == "china" else picture
        picture.save("photo.png")
        names: dict[str, Any] = {}
        exec(script, names)
        (wanted,) = vitscope.Predictor(model, device="cpu").classify("photo.png")
        assert names["labels"][names["best"]] == wanted.label
        assert names["shares"][names["best"]] / names["shares"].sum() == pytest.approx(wanted.confidence, abs=1e-5)
