"""Published weights lie on the hub as timm writes them: its own config.json, its own names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
from timm.models._hub import save_for_hf

from parity.random_weights import fill_with_large_random_weights
from vitscope.weights.pretrained import PRETRAINED
from weights.stand_in_hub import Client, running_hub


def test_what_timm_pushes_is_what_create_model_takes(tmp_path: Path) -> None:
    name = "vit_tiny_patch16_224"
    theirs: Any = timm.create_model(name).eval()
    fill_with_large_random_weights(theirs)
    save_for_hf(theirs, str(tmp_path / "pushed"), safe_serialization=True)
    (tmp_path / "cache").mkdir()
    with running_hub() as hub:
        hub.add(PRETRAINED[name].hub, tmp_path / "pushed")
        with Client(tmp_path / "cache", hub.url) as client:
            told = client.ask("create", name)
    assert "error" not in told, told
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = theirs.forward_head(theirs.forward_features(images), pre_logits=True)
    found = torch.tensor(told["features"])
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()
    assert told["certificate"]["format"] == "timm"
    assert told["certificate"]["covered_percent"] == 100
