"""What a source may be called, and what is said of one that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import vitscope
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.files import read_file
from vitscope.weights.formats.timm_folder import save_folder
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)


def test_timms_prefix_of_a_folder(tmp_path: Path) -> None:
    save_folder(build_model(TINY), tmp_path)
    assert load_model(f"local-dir:{tmp_path}").config.num_classes == 3


def test_a_models_name_is_no_source() -> None:
    with pytest.raises(VitscopeError) as refused:
        load_model("vit_tiny_patch16_224")
    assert "create_model('vit_tiny_patch16_224', pretrained=True)" in str(refused.value)


def test_resampling_is_public() -> None:
    assert vitscope.Resampling(positions="bicubic").channels == "sum"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xd8\xff\xe0" + bytes(50), "a JPEG picture"),
        (b"\x93NUMPY\x01\0" + bytes(50), "a single NumPy array"),
        (b"GGUF" + bytes(50), "a GGUF file"),
    ],
    ids=["jpeg", "npy", "gguf"],
)
def test_what_is_no_weights_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "model.pth").write_bytes(content)
    with pytest.raises(VitscopeError, match=words):
        read_file(tmp_path / "model.pth")


def test_what_is_cut_off(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(100)}, tmp_path / "whole.safetensors")
    torch.save({"a": torch.zeros(100)}, tmp_path / "whole.pth")
    content = (tmp_path / "whole.safetensors").read_bytes()
    for count in (len(content) - 10, 20):
        (tmp_path / "part.safetensors").write_bytes(content[:count])
        with pytest.raises(VitscopeError, match=f"cut off: the header says [0-9]+ bytes, the file has {count}"):
            read_file(tmp_path / "part.safetensors")
    (tmp_path / "part.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:-50])
    with pytest.raises(VitscopeError, match="cut off: it begins as an archive"):
        read_file(tmp_path / "part.pth")


@pytest.mark.parametrize("given", ["source", "config"])
def test_places_that_cannot_be_looked_at(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(build_model(TINY).state_dict(), tmp_path / "a.safetensors")

    def load(path: str | Path) -> object:
        return load_model(path) if given == "source" else load_model(tmp_path / "a.safetensors", config=path)

    with pytest.raises(VitscopeError, match="cannot be looked at: File name too long") as refused:
        load("x" * 300)
    assert len(str(refused.value)) < 300
    with pytest.raises(VitscopeError, match="not a plain file"):
        load("/dev/null")
    closed = tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != closed)
    with pytest.raises(VitscopeError, match="cannot be looked at: Permission denied"):
        load(closed)
