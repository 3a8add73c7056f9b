"""The proof: two photographs through our model and through the library its weights come from."""

from __future__ import annotations

import re
import sys
import warnings
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.random_weights import fill_with_large_random_weights
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ViTConfig
from vitscope.weights import proof as proof_file
from vitscope.weights.certificate import Proof
from vitscope.weights.folder import save_model
from vitscope.weights.formats import timm_folder
from vitscope.weights.load import load_model
from vitscope.weights.proof import answer, compare, fixed_batch

TINY = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5)


def network(config: Any = TINY) -> Any:
    model = build_model(config)
    fill_with_large_random_weights(model)
    return model.eval()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save(network().state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def peer_off_by(difference: float) -> Any:
    """timm's part, played by the same model, off by something in one place."""

    def peer_of_file(path: Path, config: Any) -> Any:
        model = build_model(config)
        model.load_state_dict(torch.load(path))
        model.eval()

        def look(images: torch.Tensor) -> torch.Tensor:
            logits = model(images)
            logits[1, 2] += difference
            return logits

        return look

    return peer_of_file


@pytest.mark.parametrize("difference", [0.0, 0.25])
def test_the_largest_difference_is_found(difference: float, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    monkeypatch.setattr(timm_folder, "peer_of_file", peer_off_by(difference), raising=False)
    certificate = load_model(file, config=TINY, prove=True).certificate
    assert certificate.proof.largest_difference == pytest.approx(difference, abs=1e-5)
    assert certificate.proof.library.startswith("timm ")
    with torch.no_grad():
        wanted = network()(fixed_batch(TINY, None))
    wanted[1, 2] += difference
    assert certificate.proof.largest_output == pytest.approx(wanted.abs().max().item(), rel=1e-5)


def test_it_is_of_the_model_before_anything_is_adapted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    monkeypatch.setattr(timm_folder, "peer_of_file", peer_off_by(0.0), raising=False)
    model = load_model(file, config=TINY, num_classes=3, img_size=48, dtype=torch.bfloat16, prove=True)
    assert model.certificate.proof.largest_difference < 1e-5
    assert model.num_classes == 3
    assert model(torch.zeros(1, 3, 48, 48, dtype=torch.bfloat16)).shape == (1, 3)


def test_it_is_not_asked_for_unless_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(timm_folder, "peer_of_file", asked, raising=False)
    certificate = load_model(file, config=TINY).certificate
    assert certificate.proof is None
    assert certificate.remarks == ()


def raising(*_: Any) -> Any:
    raise RuntimeError("no such architecture\nsecond line")


@pytest.mark.parametrize(
    ("peer", "why"),
    [
        (raising, r"cannot open it \(RuntimeError: no such architecture\)"),
        (lambda *_: None, "has no model that says the same"),
        (lambda *_: raising, r"cannot open it \(RuntimeError"),
        (lambda *_: lambda images: torch.zeros(2, 9), r"answers with \(2, 9\), this model with \(2, 5\)"),
    ],
    ids=["raises", "none", "raises later", "another shape"],
)
def test_it_never_fails_a_load(peer: Any, why: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    monkeypatch.setattr(timm_folder, "peer_of_file", peer, raising=False)
    certificate = load_model(file, config=TINY, prove=True).certificate
    assert certificate.proof is None
    (remark,) = certificate.remarks
    assert re.search(f"not compared: .*{why}", remark)


def test_without_the_library_it_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(proof_file, "version", not_there)
    certificate = load_model(file, config=TINY, prove=True).certificate
    assert certificate.remarks == ("not compared: timm is not installed",)


def test_where_tensors_are_missing_there_is_nothing_to_compare(file: Path) -> None:
    state = torch.load(file)
    del state["norm.weight"]
    torch.save(state, file)
    certificate = load_model(file, config=TINY, prove=True, allow_partial=True).certificate
    assert certificate.remarks == ("not compared: tensors are missing",)


def test_a_folder_of_ours_has_no_other_library(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "m")
    assert load_model(tmp_path / "m", prove=True).certificate.remarks == ("not compared: the folder is vitscope's own",)


@pytest.mark.parametrize(
    ("in_chans", "size"), [(3, 32), (1, 28), (4, 32), (3, (32, 48))], ids=["rgb", "grey", "four", "not square"]
)
def test_the_pictures_are_fixed_and_like_pictures(in_chans: int, size: Any) -> None:
    config = ViTConfig(**{**vars(TINY), "in_chans": in_chans, "img_size": size, "patch_size": 4})
    images = fixed_batch(config, None)
    assert images.shape == (2, in_chans, *(size if isinstance(size, tuple) else (size, size)))
    assert torch.equal(images, fixed_batch(config, None))
    assert not torch.equal(images[0], images[1])
    assert -1 <= images.min() < -0.3 < 0.3 < images.max() <= 1
    neighbours = (images[..., 1:] - images[..., :-1]).abs().mean()
    assert neighbours < 0.5 * images.std(), "noise has no neighbours"


def test_the_pictures_are_prepared_as_the_weights_want() -> None:
    dark = PreprocessConfig(img_size=(32, 32), mean=(0.9, 0.9, 0.9), std=(0.1, 0.2, 0.3))
    pixels = fixed_batch(TINY, None) * 0.5 + 0.5
    wanted = (pixels - 0.9) / torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    assert torch.allclose(fixed_batch(TINY, dark), wanted, atol=1e-5)


def test_answers_are_in_fp32_and_leave_the_model_as_it_is() -> None:
    model = network().bfloat16().train()
    images = fixed_batch(TINY, None)
    found = answer(model, images)
    assert found.dtype == torch.float32
    assert next(model.parameters()).dtype == torch.bfloat16
    assert model.training
    assert torch.equal(found, network().bfloat16().float()(images))


def test_without_a_head_features_are_compared() -> None:
    headless = network(ViTConfig(**{**vars(TINY), "num_classes": 0}))
    images = fixed_batch(TINY, None)
    assert answer(headless, images).shape == (2, 17, 32)
    masked = network(MAEConfig(encoder=headless.config, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2))
    assert torch.equal(answer(masked, images), masked.encoder.forward_features(images))


def test_another_library_is_heard_only_in_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    model = network()

    def loud(images: torch.Tensor) -> torch.Tensor:
        print("Loading weights: 100 %")
        print("Loading weights: 100 %", file=sys.stderr)
        warnings.warn("something is deprecated", stacklevel=1)
        return model(images)

    found = compare(model, "timm", lambda: loud, preprocessing=None)
    assert isinstance(found, Proof)
    assert capsys.readouterr() == ("", "")


def test_compare_needs_no_source() -> None:
    pytest.importorskip("timm")
    model = network()
    found = compare(model, "timm", lambda: lambda images: model(images) * 2, preprocessing=None)
    assert isinstance(found, Proof)
    assert found.largest_difference == pytest.approx(found.largest_output / 2)
