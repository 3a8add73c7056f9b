"""What a source may be called, and what is said of one that is none."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
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


def zipped(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "words")
    return file.getvalue()


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
        (b"some notes\non weights\n", "a text file, not weights: it begins with 'some notes on weights'"),
        ("多".encode() * 200, "a text file, not weights: it begins with '多多"),
        (b'{"json":{}}', "a text file, not weights: it begins with '{\"json"),
        (b" \n", "a text file, not weights"),
        (b"cat\ndog\nelk\n", "a text file, not weights: it begins with 'cat dog elk'"),
        (b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x03", "an ONNX file"),
        (b"\x08\x0a:\x03" + bytes(50), "an ONNX file"),
        (zipped("notes.txt"), "an archive that holds no weights"),
    ],
    ids=[
        "jpeg",
        "npy",
        "gguf",
        "text",
        "text, a letter cut",
        "json",
        "blank",
        "labels",
        "onnx",
        "onnx, no name",
        "zip",
    ],
)
@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
def test_what_is_no_weights_is_named(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(VitscopeError, match=re.escape(words)) as refused:
        read_file(tmp_path / name)
    assert ".safetensors" in (refused.value.fix or "")


def test_bytes_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\x01\x02\x03" + bytes(50))
    with pytest.raises(VitscopeError, match="it begins as no file of weights does") as refused:
        read_file(tmp_path / "model.bin")
    assert ".safetensors" in (refused.value.fix or "")


def test_exported_files_are_named(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    torch.export.save(program, tmp_path / "model.pt2")
    with pytest.raises(VitscopeError, match=r"a program of torch\.export") as refused:
        read_file(tmp_path / "model.pt2")
    assert "exported from" in (refused.value.fix or "")
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph([], "empty", [], [])
    onnx.save(onnx.helper.make_model(graph, producer_name="test"), tmp_path / "model.onnx")
    with pytest.raises(VitscopeError, match="an ONNX file") as refused:
        read_file(tmp_path / "model.onnx")
    assert "exported from" in (refused.value.fix or "")


def test_a_header_as_long_as_onnx_begins_is_still_a_header(tmp_path: Path) -> None:
    """A number may be any bytes: here those of an ONNX file."""
    told = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    length = int.from_bytes(b"\x08\x08\x12", "little")
    (tmp_path / "model").write_bytes(struct.pack("<Q", length) + told.ljust(length) + struct.pack("<f", 2.0))
    assert read_file(tmp_path / "model")["a"].item() == 2.0


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
