"""What a loaded model carries to where it is saved again: preprocessing and labels, as long as they are true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, MAEConfig, ViTConfig
from vitscope.weights.folder import load_labels, load_preprocessing, save_model
from vitscope.weights.load import load_model

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
TINY = ViTConfig(**SMALL, num_classes=3)
OWN = PreprocessConfig(img_size=(32, 32), crop_share=0.9, mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3))
NAMES = ["cat", "dog", "elk"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_model(build_model(TINY), tmp_path / "first", preprocessing=OWN, labels=NAMES)


def test_load_then_save_keeps_them(saved: Path, tmp_path: Path) -> None:
    model = load_model(saved)
    assert (model.preprocessing, model.labels) == (OWN, NAMES)
    again = save_model(model, tmp_path / "again")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in saved.iterdir()
    }


def test_what_is_given_goes_first(saved: Path, tmp_path: Path) -> None:
    other = half_normalised((32, 32), 3)
    save_model(load_model(saved), tmp_path / "m", preprocessing=other, labels=["a", "b", "c"])
    assert load_preprocessing(tmp_path / "m") == other
    assert load_labels(tmp_path / "m") == ["a", "b", "c"]


def test_labels_of_another_number_of_classes_are_not_reused(saved: Path, tmp_path: Path) -> None:
    model = load_model(saved)
    model.reset_classifier(2)
    save_model(model, tmp_path / "m")
    assert load_labels(tmp_path / "m") == ["0", "1"]
    assert load_preprocessing(tmp_path / "m") == OWN


def test_the_size_follows_the_model(saved: Path, tmp_path: Path) -> None:
    model = load_model(saved)
    model.set_input_size((16, 64))
    save_model(model, tmp_path / "m")
    assert load_preprocessing(tmp_path / "m") == updated(OWN, img_size=(16, 64))
    assert load_labels(tmp_path / "m") == NAMES
    assert model.preprocessing == OWN or model.preprocessing == updated(OWN, img_size=(16, 64))


def test_a_new_model_carries_nothing() -> None:
    model = build_model(TINY)
    assert (model.preprocessing, model.labels) == (None, None)


def test_what_is_absent_is_carried_as_nothing(saved: Path) -> None:
    for name in ("preprocessing.json", "labels.json"):
        (saved / name).unlink()
    model = load_model(saved)
    assert (model.preprocessing, model.labels) == (None, None)


def test_an_encoder_taken_away_takes_the_preprocessing_with_it(tmp_path: Path) -> None:
    config = MAEConfig(
        encoder=ViTConfig(**SMALL, num_classes=0, position="sincos"),
        decoder_embed_dim=16,
        decoder_depth=1,
        decoder_num_heads=2,
    )
    save_model(build_model(config), tmp_path / "mae", preprocessing=OWN)
    encoder: Any = load_model(tmp_path / "mae").encoder
    encoder.reset_classifier(2)
    save_model(encoder, tmp_path / "m")
    assert load_preprocessing(tmp_path / "m") == OWN
    assert load_labels(tmp_path / "m") == ["0", "1"]


@pytest.mark.parametrize("config", [TINY, CNNConfig(img_size=32, in_chans=3, widths=(4, 8))], ids=["vit", "cnn"])
@pytest.mark.parametrize(
    ("wrong", "what", "fix"),
    [
        (
            half_normalised((64, 64), 3),
            "preprocessing.img_size: expected the model's (32, 32), received (64, 64)",
            "give preprocessing with img_size=(32, 32), or call model.set_input_size first",
        ),
        (
            half_normalised((32, 32), 1),
            "preprocessing.in_chans: expected the model's 3, received 1",
            "give preprocessing with in_chans=3, or build the model with it",
        ),
    ],
)
def test_preprocessing_the_model_cannot_read_is_refused(
    config: Any, wrong: PreprocessConfig, what: str, fix: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        save_model(build_model(config), tmp_path / "m", preprocessing=wrong)
    assert (refused.value.what, refused.value.fix) == (what, fix)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("labels.json", ["cat"], "labels: expected 3 names, one per class, received 1"),
        ("preprocessing.json", {"img_size": [8, 8]}, "preprocessing.img_size: expected the model's (32, 32)"),
    ],
)
def test_a_file_that_no_longer_fits_is_named(name: str, content: Any, what: str, saved: Path) -> None:
    (saved / name).write_text(json.dumps(content))
    with pytest.raises(ConfigError) as refused:
        load_model(saved)
    assert refused.value.what.startswith(what)
    assert (refused.value.where, refused.value.fix) == (str(saved / name), "correct the file, or take it away")
