"""`convert` into timm's and Hugging Face's formats: their own libraries open what was written and say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.random_weights import fill_with_large_random_weights
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.variants import model_config
from vitscope.weights.convert import convert
from vitscope.weights.create import with_settings
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model
from vitscope.weights.proof import fixed_batch

# Small in depth only: a name of timm's stands for its width.
PLAIN = with_settings(model_config("vit_tiny_patch16_224"), {"num_classes": 5})
LABELS = ["cat", "dog", "elk", "fox", "owl"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    model = build_model(PLAIN)
    fill_with_large_random_weights(model)
    return save_model(model, tmp_path / "source", labels=LABELS)


def assert_all_came_back(certificate: Any) -> None:
    written = certificate.written
    assert written.same == written.tensors
    assert written.lost == ()
    assert written.proof is not None, written.remarks
    assert written.proof.largest_difference <= 1e-5 * max(1.0, written.proof.largest_output)


def test_a_timm_folder(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("timm")
    certificate = convert(source, tmp_path / "out", to="timm")
    assert_all_came_back(certificate)
    assert certificate.written is not None
    assert certificate.written.proof is not None
    assert certificate.written.proof.library.startswith("timm")
    told = json.loads((tmp_path / "out/certificate.json").read_text())
    assert told["written"]["format"] == "timm"


@pytest.mark.parametrize("ending", [".safetensors", ".pth"])
def test_a_timm_file_opens_by_checkpoint_path(ending: str, source: Path, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    out = tmp_path / f"weights{ending}"
    assert_all_came_back(convert(source, out, to="timm"))
    peer = timm.create_model("vit_tiny_patch16_224", num_classes=5, checkpoint_path=str(out)).eval()
    images = fixed_batch(PLAIN, None)
    with torch.inference_mode():
        assert torch.allclose(peer(images), load_model(source)(images), atol=1e-5, rtol=1e-5)
    assert (tmp_path / f"weights{ending}.certificate.json").exists()


def test_a_hugging_face_folder(source: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    assert_all_came_back(convert(source, tmp_path / "out", to="huggingface"))
    peer = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    assert [peer.config.id2label[number] for number in range(5)] == LABELS
    assert peer.config.label2id == {name: number for number, name in enumerate(LABELS)}
    images = fixed_batch(PLAIN, None)
    with torch.inference_mode():
        assert torch.allclose(peer(images).logits, load_model(source)(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_there_and_back_is_bit_exact_with_proof_of_the_source(to: Any, source: Path, tmp_path: Path) -> None:
    pytest.importorskip("timm" if to == "timm" else "transformers")
    convert(source, tmp_path / "theirs", to=to)
    certificate = convert(tmp_path / "theirs", tmp_path / "back", to="vitscope")
    assert certificate.proof is not None, certificate.remarks
    assert certificate.proof.largest_difference <= 1e-5 * max(1.0, certificate.proof.largest_output)
    mine, back = load_model(source), load_model(tmp_path / "back")
    assert back.labels == LABELS
    for name, tensor in mine.state_dict().items():
        assert torch.equal(tensor, back.state_dict()[name]), name


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_another_size_and_head_are_written_as_asked(to: Any, source: Path, tmp_path: Path) -> None:
    pytest.importorskip("timm" if to == "timm" else "transformers")
    certificate = convert(source, tmp_path / "out", to=to, img_size=160, num_classes=3, dtype=torch.float32)
    assert [entry.ours for entry in certificate.of("resampled")] == ["pos_embed"]
    loaded = load_model(tmp_path / "out")
    assert loaded(torch.zeros(1, 3, 160, 160)).shape == (1, 3)


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_their_older_result_is_replaced_when_told(to: Any, source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out", to=to, prove=False)
    convert(source, tmp_path / "out", to=to, num_classes=3, prove=False, overwrite=True)
    assert load_model(tmp_path / "out").num_classes == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_what_a_format_lacks_is_told(tmp_path: Path) -> None:
    """Hugging Face's ViT has no registers and no rotary positions: either refused in words or named by a remark."""
    from vitscope.core.errors import VitscopeError

    config = ViTConfig(
        img_size=32, patch_size=8, embed_dim=32, depth=1, num_heads=2, num_classes=3, position="rope", num_registers=2
    )
    save_model(build_model(config), tmp_path / "m")
    with pytest.raises(VitscopeError):
        convert(tmp_path / "m", tmp_path / "out", to="huggingface")
    assert not (tmp_path / "out").exists()
