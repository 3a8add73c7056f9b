"""What a load says beside the fates of tensors: casts, numbers that are none, a proof of the contrary, a lost head."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights import proof as proof_file
from vitscope.weights.certificate import Entry, Ledger, Proof
from vitscope.weights.convert import convert
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model, warnings_of

TINY = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5)
LABELS = ["cat", "dog", "elk", "fox", "owl"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = build_model(TINY)
    fill_with_large_random_weights(model)
    save_model(model, tmp_path / "model", labels=LABELS, preprocessing=PreprocessConfig(img_size=(32, 32)))
    return tmp_path / "model"


def with_a_huge_number(folder: Path, number: float) -> Path:
    model: Any = load_model(folder)
    with torch.no_grad():
        model.head.bias[0] = number
    save_model(model, folder, overwrite=True)
    return folder


# --- types --------------------------------------------------------------------------------------------------------


def test_a_cast_is_said(folder: Path, tmp_path: Path) -> None:
    plain = load_model(folder).certificate
    assert (plain.dtype, plain.remarks) == ("float32", ())
    assert load_model(folder, dtype=torch.float32).certificate.remarks == ()
    small = load_model(folder, dtype=torch.bfloat16).certificate
    assert (small.dtype, small.remarks) == ("bfloat16", ("numbers cast from float32 to bfloat16",))
    assert "of bfloat16" in str(small)
    assert "matched: same name, same numbers, then cast to bfloat16" in str(small)
    assert "then cast" not in str(plain)
    convert(folder, tmp_path / "out", dtype=torch.bfloat16, prove=False)
    told = json.loads((tmp_path / "out/certificate.json").read_text())
    assert told["dtype"] == "bfloat16"
    (remark,) = told["remarks"]
    measured = remark.split("outputs change by up to ")[1].split(" (they reach ")
    change, reach = float(measured[0]), float(measured[1].rstrip(")"))
    assert 1e-4 * reach < change < reach


@pytest.mark.parametrize("source", [123, None, b"model", ["model"]], ids=str)
def test_a_source_of_another_kind_is_refused_in_words(source: Any) -> None:
    with pytest.raises(ConfigError, match="source: expected a folder, a weights file or a name on the hub, received"):
        load_model(source)


@pytest.mark.parametrize("resampling", ["bicubic", {"positions": "bicubic"}, True], ids=str)
def test_a_resampling_of_another_kind_is_refused_in_words(resampling: Any, folder: Path) -> None:
    with pytest.raises(ConfigError, match="resampling: expected a Resampling, received") as caught:
        load_model(folder, resampling=resampling)
    assert "from vitscope import Resampling" in str(caught.value.fix)


def test_numbers_never_become_infinite(folder: Path) -> None:
    with_a_huge_number(folder, 1e6)
    with pytest.raises(VitscopeError, match=r"head\.bias holds numbers up to 1e\+06"):
        load_model(folder, dtype=torch.float16)


@pytest.mark.parametrize("dtype", ["bf16", torch.int8])
def test_other_types_are_refused_in_words(dtype: Any, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dtype: expected one of torch\.float32"):
        load_model(folder, dtype=dtype)
    with pytest.raises(ConfigError, match=r"dtype: expected one of torch\.float32"):
        convert(folder, tmp_path / "out", dtype=dtype)


# --- warnings -----------------------------------------------------------------------------------------------------


def test_numbers_that_are_none_are_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_a_huge_number(folder, float("nan"))
    with caplog.at_level(logging.WARNING, "vitscope"):
        assert load_model(folder).certificate.warnings == ("1 number is not finite",)
    assert "1 number is not finite" in caplog.text
    with pytest.raises(VitscopeError, match="strict: 1 number is not finite"):
        load_model(folder, strict=True)


def test_a_head_left_out_is_told_and_refused_under_strict(folder: Path) -> None:
    headless = load_model(folder, num_classes=0)
    assert warnings_of(headless.certificate) == ["left out: head.weight, head.bias (features are wanted, not classes)"]
    with pytest.raises(VitscopeError, match=r"strict: left out: head\.weight"):
        load_model(folder, num_classes=0, strict=True)


def test_each_reason_has_its_line(folder: Path) -> None:
    certificate = load_model(folder, img_size=64, in_chans=1).certificate
    assert warnings_of(certificate) == [
        "resampled: pos_embed (bicubic with antialias, 4 x 4 -> 8 x 8)",
        "resampled: patch_embed.proj.weight (summed, 3 -> 1 channels)",
    ]


def off_by(difference: float) -> Any:
    return lambda *_, **__: Proof("timm 1.0", "two photographs", difference, 2.0)


@pytest.mark.parametrize(
    ("difference", "words"), [(1.9e-5, ""), (2.1e-5, "differ by up to 2.1e-05, and reach 2"), (float("nan"), "finite")]
)
def test_a_proof_of_the_contrary_has_consequences(
    difference: float, words: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_file, "prove", off_by(difference))
    told = warnings_of(load_model(folder, prove=True).certificate)
    if not words:
        assert told == []
        convert(folder, tmp_path / "out", strict=True)
        return
    assert len(told) == 1
    assert words in told[0]
    with pytest.raises(VitscopeError, match="strict: timm"):
        load_model(folder, prove=True, strict=True)
    with pytest.raises(VitscopeError, match=words) as refused:
        convert(folder, tmp_path / "out")
    assert "--no-proof" in str(refused.value.fix)
    assert not (tmp_path / "out").exists()
    convert(folder, tmp_path / "out", prove=False)


def test_what_is_written_is_held_to_the_same(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitscope.weights.written.prove_written", off_by(0.5))
    with pytest.raises(VitscopeError, match="answers otherwise: outputs differ by up to"):
        convert(folder, tmp_path / "out", to="timm")
    assert not (tmp_path / "out").exists()


# --- what goes along ----------------------------------------------------------------------------------------------


def test_preprocessing_is_what_the_model_carries(folder: Path) -> None:
    model = load_model(folder, img_size=64, in_chans=1)
    assert model.preprocessing is not None
    assert tuple(model.certificate.preprocessing["img_size"]) == model.preprocessing.img_size == (64, 64)
    assert model.certificate.preprocessing["in_chans"] == 1


def test_labels_stay_with_their_head(folder: Path) -> None:
    assert load_model(folder).labels == LABELS
    assert load_model(folder, num_classes=4).labels is None
    state = load_file(folder / "model.safetensors")
    del state["head.weight"]
    save_file(state, folder / "model.safetensors")
    partial = load_model(folder, allow_partial=True)
    assert partial.num_classes == 5
    assert partial.labels is None, "a head that begins anew knows no names"


def test_in_one_line(folder: Path) -> None:
    certificate = load_model(folder).certificate
    assert "\n" not in repr(certificate)
    assert len(repr(certificate)) < 200 + len(str(folder))
    assert "100 % of the backbone" in repr(certificate)


def test_a_head_missing_and_left_out_is_nowhere() -> None:
    ledger = Ledger()
    ledger.add(Entry("missing", "head.bias", (5,), in_head=True))
    ledger.change(Entry("left out", "head.bias", None, how="features are wanted", in_head=True))
    assert ledger.entries(["head.bias"]) == ()
