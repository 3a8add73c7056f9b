"""What to start with, judged by the pictures."""

from __future__ import annotations

import pytest

from vitscope.core.strict_json import encode
from vitscope.data.survey.duplicates import Duplicates
from vitscope.data.survey.suggest import mirrored_means_something_else, suggest
from vitscope.data.survey.survey import Survey


def surveyed(sizes: dict[tuple[int, int], int], *, train: int = 1000, grey: bool = False, total: int = 0) -> Survey:
    count = sum(sizes.values())
    return Survey(
        total=total or train,
        looked_at=count,
        counts={"train": [train], "val": [0], "test": [0]},
        bad=[],
        unusual=[],
        formats={"PNG": count},
        modes={"RGB": count},
        sizes=sizes,
        grey=count if grey else 0,
        plain=[],
        mean=(0.1, 0.2, 0.3),
        std=(0.4, 0.5, 0.6),
        duplicates=Duplicates((), 0, 0, {}, (), 0, 16.0, 0),
    )


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ({(32, 32): 10}, (32, 32)),
        ({(28, 28): 10}, (28, 28)),
        ({(48, 64): 10}, (48, 64)),
        ({(1080, 1920): 10}, (384, 384)),
        ({(375, 500): 8, (500, 333): 8, (500, 375): 9}, (224, 224)),
        ({(600, 800): 5, (700, 900): 5}, (384, 384)),
        ({(30, 31): 5, (29, 30): 5}, (32, 32)),
        ({(70, 80): 5, (75, 90): 5}, (64, 64)),
        ({(155, 200): 5, (156, 200): 5}, (160, 160)),
        ({(48, 48): 5, (48, 50): 5}, (64, 64)),
        ({(200, 250): 5, (250, 200): 5}, (224, 224)),
        ({(1, 20_000): 1, (1, 1): 1}, (32, 32)),
        ({(4000, 4000): 1, (64, 64): 99}, (64, 64)),
    ],
)
def test_size_follows_the_pictures(sizes: dict[tuple[int, int], int], wanted: tuple[int, int]) -> None:
    assert suggest(surveyed(sizes), ["a cat", "a dog"]).preprocess.img_size == wanted


def test_grey_pictures_get_one_channel_and_its_mean() -> None:
    told = suggest(surveyed({(28, 28): 10}, grey=True), ["shirt", "shoe"])
    assert told.preprocess.in_chans == 1
    assert told.preprocess.mean == (0.5,)
    assert told.measured_mean == (0.1,)
    coloured = suggest(surveyed({(28, 28): 10}), ["shirt", "shoe"])
    assert coloured.preprocess.in_chans == 3
    assert coloured.measured_std == (0.4, 0.5, 0.6)


@pytest.mark.parametrize(
    ("train", "strength"),
    [(100, "strong"), (9_999, "strong"), (10_000, "medium"), (100_000, "medium"), (100_001, "basic")],
)
def test_strength_follows_the_guide(train: int, strength: str) -> None:
    assert suggest(surveyed({(32, 32): 10}, train=train), ["cat", "dog"]).strength == strength


def test_digits_are_not_mirrored() -> None:
    names = [str(n) for n in range(10)]
    told = suggest(surveyed({(32, 32): 10}, grey=True), names)
    assert told.augment.flip == "none"
    assert "flip" in told.reasons
    assert suggest(surveyed({(32, 32): 10}), names).augment.flip == "random"  # numbered classes of photographs
    assert suggest(surveyed({(32, 32): 10}), ["cat", "dog"]).augment.flip == "random"


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["0", "1", "2"], True),
        (["0 - zero", "1 - one"], True),
        (["digit_3", "digit_4"], True),
        (["A", "b", "Ω"], True),
        (["10", "11"], False),
        (["one"], False),
        (["cat", "dog"], False),
        (["n01440764", "n02102040"], False),
        (["0", "cat", "dog"], False),
        (["class 0", "class 1"], False),
    ],
)
def test_which_names_look_like_characters(names: list[str], wanted: bool) -> None:
    assert mirrored_means_something_else(names) is wanted


def test_loader_follows_size_and_number() -> None:
    assert suggest(surveyed({(32, 32): 10}, total=60_000), ["a cat", "b"]).loader == "device"
    assert suggest(surveyed({(32, 32): 10}, total=60_000_000), ["a cat", "b"]).loader == "worker"
    assert suggest(surveyed({(224, 224): 10}), ["a cat", "b"]).loader == "device"
    assert suggest(surveyed({(224, 224): 9, (224, 200): 1}), ["a cat", "b"]).loader == "worker"


def test_suggestions_are_plain_data() -> None:
    told = suggest(surveyed({(32, 32): 10}), ["cat", "dog"]).to_dict()
    assert encode(told)["preprocess"]["img_size"] == [32, 32]
    assert set(told["reasons"]) >= {"img_size", "in_chans", "normalisation", "augment", "loader"}
