"""Copies among pictures as they are stored: where training shows each varied, nothing else can tell them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from doctor.seen import causes, notes
from doctor.test_test_part import VIT, write
from vitscope.data.config import AugmentConfig, DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.doctor.checks.data import stored
from vitscope.doctor.checks.data.stored import common, read_part, read_some
from vitscope.doctor.examination import Report
from vitscope.doctor.settings_door import examine_settings
from vitscope.train.config import LoopConfig, TrainConfig, named_model


def examined(folder: Path, check: str) -> Report:
    """With pictures that are mirrored by chance."""
    config = TrainConfig(
        model=named_model("vit", VIT),
        data=DataConfig(name=str(folder), batch_size=16, workers=0),
        augment=AugmentConfig(flip="random", crop="padded"),
        loop=LoopConfig(epochs=2, device="cpu"),
    )
    return examine_settings(config, only=(check,))


def test_validation_pictures_that_training_has(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=0)
    write(tmp_path, "test", seed=1)
    (asked,) = examined(tmp_path, "leaks").asked
    assert causes(asked.seen) == ["validation_leaked"]
    assert asked.seen.findings[0].numbers["kind"] == "exact"
    assert asked.seen.findings[0].numbers["found"] == 80


def test_those_that_were_saved_again(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=0, suffix="jpg")
    write(tmp_path, "test", seed=1)
    (asked,) = examined(tmp_path, "leaks").asked
    assert causes(asked.seen) == ["validation_leaked"]
    assert asked.seen.findings[0].numbers["kind"] == "near"
    assert asked.seen.findings[0].numbers["found"] > 60


def test_others_are_no_fault(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "val", "test")):
        write(tmp_path, part, seed=seed)
    (asked,) = examined(tmp_path, "leaks").asked
    assert (causes(asked.seen), notes(asked.seen)) == ([], [])


def test_the_same_pictures_again_and_again(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0, count=4)
    for place in (tmp_path / "train/cat", tmp_path / "train/dog"):
        for one in list(place.iterdir()):
            for copy in range(20):
                (place / f"copy{copy}-{one.name}").write_bytes(one.read_bytes())
    write(tmp_path, "val", seed=1)
    (asked,) = examined(tmp_path, "copies").asked
    assert causes(asked.seen) == ["duplicate_only_data"]
    assert asked.seen.findings[0].numbers["distinct"] == 8


def test_looks_are_compared_only_where_they_can_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 training pictures 4 are decoded: even a whole copy would share no more than a twentieth."""
    write(tmp_path, "train", seed=0)
    write(tmp_path, "test", seed=0, suffix="jpg")
    dataset = open_dataset(str(tmp_path))
    assert common(read_part(dataset, "train"), read_part(dataset, "test")).kind == "near"
    monkeypatch.setattr(stored, "STORED_DECODED", 4)
    train = read_part(dataset, "train")
    found = common(train, read_part(dataset, "test"))
    assert (found.found, found.kind) == (0, "exact")
    assert "small" not in vars(train), "nothing was decoded"


def test_what_was_read_stands_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there was time for a part of training only, the share is as if all had been read."""
    write(tmp_path, "train", seed=0)
    write(tmp_path, "test", seed=0)
    dataset = open_dataset(str(tmp_path))
    monkeypatch.setattr(stored, "STORED_READ", 30)
    train, test = read_part(dataset, "train"), read_part(dataset, "test")
    assert (len(train.prints), len(test.prints), train.total) == (30, 30, 72)
    found = common(train, test)
    assert found.kind == "exact"
    assert found.share == min(1.0, found.found / 30 * 72 / 30)
    assert found.found > 3


def test_reading_goes_in_the_order_asked_for_and_ends_in_time(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "test", seed=1)
    source = open_dataset(str(tmp_path)).source
    asked = np.random.default_rng(3).permutation(len(source))
    assert [number for number, _ in read_some(source, asked)] == asked.tolist()
    assert len(list(read_some(source, asked, seconds=0.0))) == stored.READ_FIRST
    Path(source.where(int(asked[5]))).unlink()
    assert [number for number, _ in read_some(source, asked)] == np.delete(asked, 5).tolist()
