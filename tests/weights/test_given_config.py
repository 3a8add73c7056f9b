"""`config=` of a load: a name is an architecture, and the weights say how many classes; folders of anybody's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vitscope.core.config import to_dict, updated
from vitscope.core.errors import ConfigError
from vitscope.models.build import build_model
from vitscope.models.variants import model_config
from vitscope.weights.convert import convert
from vitscope.weights.formats import huggingface_folder, timm_folder
from vitscope.weights.load import load_model

NAME = "vit_tiny_patch16_224"


def file_of(tmp_path: Path, num_classes: int) -> tuple[Path, dict[str, torch.Tensor]]:
    model = build_model(updated(model_config(NAME), num_classes=num_classes))
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth", model.state_dict()


def test_a_name_keeps_the_head_of_the_file(tmp_path: Path) -> None:
    file, state = file_of(tmp_path, 5)
    model = load_model(file, config=NAME, strict=True)
    assert model.num_classes == 5
    assert torch.equal(model.state_dict()["head.weight"], state["head.weight"])
    assert not model.certificate.of("new", "left out")


def test_classes_asked_for_are_made(tmp_path: Path) -> None:
    file, _ = file_of(tmp_path, 5)
    assert load_model(file, config=NAME, num_classes=7).num_classes == 7
    whole = model_config(NAME)  # settings say all of it
    assert load_model(file, config=whole).num_classes == whole.num_classes == 1000


def test_a_file_without_a_head_stays_without(tmp_path: Path) -> None:
    file, _ = file_of(tmp_path, 0)
    model = load_model(file, config=NAME)
    assert model.num_classes == 0
    assert model.certificate.remarks == ("the weights have no head, and so has the model",)


def test_convert_by_name_keeps_the_head(tmp_path: Path) -> None:
    file, state = file_of(tmp_path, 5)
    convert(file, tmp_path / "out", config=NAME, prove=False)
    assert torch.equal(load_model(tmp_path / "out").state_dict()["head.weight"], state["head.weight"])


@pytest.mark.parametrize("writer", [timm_folder, huggingface_folder], ids=["timm", "huggingface"])
@pytest.mark.parametrize("inside", ["", "config.json"], ids=["folder", "config.json"])
def test_folders_of_others_describe_a_model(writer: Any, inside: str, tmp_path: Path) -> None:
    file, state = file_of(tmp_path, 5)
    (tmp_path / "theirs").mkdir()
    writer.save_folder(load_model(file, config=NAME), tmp_path / "theirs")
    model = load_model(file, config=tmp_path / "theirs" / inside)
    assert torch.equal(model.state_dict()["head.weight"], state["head.weight"])


def test_other_things_are_refused_in_words(tmp_path: Path) -> None:
    file, _ = file_of(tmp_path, 5)
    wrong: Any = to_dict(model_config(NAME))
    with pytest.raises(ConfigError, match="config: expected the name of a model"):
        load_model(file, config=wrong)
    with pytest.raises(ConfigError, match="received the file"):
        load_model(file, config=file)
    with pytest.raises(ConfigError) as refused:
        load_model(file)
    assert "--model" in str(refused.value.fix)
