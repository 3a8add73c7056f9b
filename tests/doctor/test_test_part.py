"""Test pictures that training has too, in a folder with train/ and val/ only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

from doctor.seen import causes, notes
from vitscope.data.config import AugmentConfig, DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.doctor.check import Check
from vitscope.doctor.checks.data.held_back import given_as_test, leak_into_test
from vitscope.doctor.checks.data.stored import read_part
from vitscope.doctor.examination import examine
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.settings_door import examine_settings
from vitscope.models.config import ViTConfig
from vitscope.train.config import LoopConfig, TrainConfig, named_model

VIT = ViTConfig(img_size=24, patch_size=6, embed_dim=32, depth=1, num_heads=1, num_classes=2)


def write(folder: Path, part: str, seed: int, *, count: int = 40, suffix: str = "png") -> None:
    """`count` pictures of each of two classes, others with each seed."""
    for label, name in enumerate(("cat", "dog")):
        place = folder / part / name
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            draw = np.random.default_rng([seed, label, number])
            coarse = Image.fromarray(draw.integers(0, 256, (6, 6, 3), np.uint8))
            coarse.resize((24, 24), Image.Resampling.BICUBIC).save(place / f"{part}{number}.{suffix}")


def the_first_of_training(folder: Path) -> Path:
    """That validation is not carved from."""
    dataset = open_dataset(str(folder))
    return Path(dataset.source.where(int(dataset.splits.train[0])))


def said(folder: Path) -> Finding | Note | None:
    dataset = open_dataset(str(folder))
    found = leak_into_test(read_part(dataset, "train"), read_part(dataset, "test"))
    causes(
        Seen(findings=[found] if isinstance(found, Finding) else [], notes=[found] if isinstance(found, Note) else [])
    )
    return found


def test_validation_that_is_a_copy_of_training_is_found(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=0)
    found = said(tmp_path)
    assert isinstance(found, Finding)
    assert found.cause == "test_leaked"
    assert found.numbers["found"] == 72, "those that are in training, and not in the validation cut from it"
    assert (found.numbers["kind"], found.numbers["pictures"]) == ("exact", 80)


def test_copies_that_were_saved_again(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=0, suffix="jpg")
    found = said(tmp_path)
    assert isinstance(found, Finding)
    assert found.numbers["kind"] == "near"
    assert found.numbers["found"] > 60


def test_other_pictures_are_no_fault(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=1)
    assert said(tmp_path) is None
    (tmp_path / "val/cat/val0.png").write_bytes(the_first_of_training(tmp_path).read_bytes())
    one = said(tmp_path)
    assert one == Note("few_test_leaks", {"found": 1, "share": 1 / 80, "pictures": 80, "kind": "exact"})


def test_of_few_test_pictures_a_copy_may_be_chance_or_not(tmp_path: Path) -> None:
    """One of ten is more than changes nothing, and less than shows a leak."""
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=1, count=5)
    (tmp_path / "val/cat/val0.png").write_bytes(the_first_of_training(tmp_path).read_bytes())
    one = said(tmp_path)
    assert one == Note("test_leaks_unclear", {"found": 1, "share": 0.1, "pictures": 10, "kind": "exact"})


def test_what_became_of_val_is_told(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=1)
    note = given_as_test(open_dataset(str(tmp_path)))
    assert note is not None
    assert note.numbers == {"name": "val", "train": "train", "share": 0.1}
    causes(Seen(notes=[note]))
    write(tmp_path, "test", seed=2)
    assert given_as_test(open_dataset(str(tmp_path))) is None


@pytest.mark.parametrize("flip", ["none", "random"])
def test_the_settings_door_says_both(tmp_path: Path, flip: Literal["none", "random"]) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=0)
    config = TrainConfig(
        model=named_model("vit", VIT),
        data=DataConfig(name=str(tmp_path), batch_size=16, workers=0),
        augment=AugmentConfig(flip=flip),
        loop=LoopConfig(epochs=2, device="cpu"),
    )
    report = examine_settings(config, only=("leaks",))
    (leaks,) = [asked.seen for asked in report.asked]
    assert causes(leaks) == ["test_leaked"]
    assert "validation_became_test" in notes(leaks)
    assert report.verdict == "unwell"
    assert "Test pictures that are in training too" in str(report)


def test_the_rest_is_still_examined(patient: Callable[..., Patient]) -> None:
    def leaks(cause: str) -> Check:
        return Check("leaks", "data", lambda patient: Seen(findings=[Finding(cause, 0.95)]))

    short = Check("short_run", "training", lambda patient: Seen())
    assert examine(patient(), [leaks("test_leaked"), short]).not_asked == []
    assert examine(patient(), [leaks("validation_leaked"), short]).not_asked == [short]
