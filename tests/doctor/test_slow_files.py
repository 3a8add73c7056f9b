"""Where files are slow, time runs out before all are read: what was read stands for the rest, whatever their order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from data.pictures_in_memory import InMemory, dataset_of, encoded, photograph
from doctor.seen import causes
from doctor.test_stored_pictures import settings
from doctor.test_test_part import write
from vitscope.data.dataset import Dataset, open_dataset
from vitscope.data.sources.source import Source, Stored
from vitscope.doctor.checks.data import plain, stored
from vitscope.doctor.checks.data.held_back import leak_into_test
from vitscope.doctor.checks.data.in_both import Common, common
from vitscope.doctor.checks.data.plain import plain_pictures
from vitscope.doctor.checks.data.stored import StoredPart, read_part
from vitscope.doctor.checks.data.truth import truth_of_labels
from vitscope.doctor.config_patient import config_patient
from vitscope.doctor.finding import Note, Seen

CLASSES, TRAIN, TEST = 10, 900, 200


def in_class_order(leaked: range, share: float) -> Dataset:
    """Of the test pictures of some classes so many are in training too. Contents are (a number, their class)."""
    train = [b"%d %d" % (number, number * CLASSES // TRAIN) for number in range(TRAIN)]
    test = []
    for number in range(TEST):
        label, place = divmod(number, TEST // CLASSES)
        is_copy = label in leaked and place < share * TEST / CLASSES
        test.append(train[label * TRAIN // CLASSES + place] if is_copy else b"test %d %d" % (number, label))
    labels = {part: [int(one.split()[-1]) for one in contents] for part, contents in (("train", train), ("test", test))}
    return dataset_of({"train": train, "test": test}, labels, CLASSES)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Moves by `seconds` for each picture that is read from memory: 192 of them, then time is over."""
    clock = SimpleNamespace(now=0.0, seconds=0.0026)
    read = InMemory.read

    def slow(source: InMemory, index: int) -> Stored:
        clock.now += clock.seconds
        return read(source, index)

    monkeypatch.setattr(InMemory, "read", slow)
    for module in (stored, plain):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def in_file_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one row group that takes longer than there is time."""

    def scan(source: Source, indices: Any, rng: np.random.Generator) -> Iterator[tuple[int, Stored | Exception]]:
        return source.scan(np.sort(indices))

    monkeypatch.setattr(Source, "scan_by_lot", scan)


def found_in(dataset: Dataset) -> tuple[StoredPart, StoredPart, Common]:
    train, test = read_part(dataset, "train"), read_part(dataset, "test")
    assert len(train.prints) < TRAIN / 4
    return train, test, common(train, test)


@pytest.mark.usefixtures("clock")
def test_a_leak_of_late_classes_is_found() -> None:
    train, test, found = found_in(in_class_order(range(5, 10), 0.88))
    assert (len(train.prints), len(test.prints)) == (192, 192)
    assert found.verdict == "leaked"
    assert found.share == pytest.approx(0.44, abs=0.15)


@pytest.mark.usefixtures("clock")
def test_one_of_the_first_class_is_not_blown_up() -> None:
    """2.5 % of the test pictures, and all of class 0: of the first 192 in training they are a tenth."""
    train, test, found = found_in(in_class_order(range(1), 0.25))
    assert train.is_fair
    assert test.is_fair
    assert found.verdict != "leaked"
    assert found.share < 0.05


def test_a_few_copies_where_time_was_short_may_be_many(clock: SimpleNamespace) -> None:
    """Beside a ninth of training, one copy in a hundred test pictures stands for nine."""
    clock.seconds = 0.0051
    train, test, found = found_in(in_class_order(range(10), 0.2))
    assert 0 < found.found < 3
    assert found.share == pytest.approx(found.found / 98 * TRAIN / 98)
    told = leak_into_test(train, test)
    assert isinstance(told, Note)
    assert told.name == "test_leaks_unclear"
    assert causes(Seen(notes=[told])) == [], "its sentences are there"


@pytest.mark.usefixtures("clock")
def test_of_the_beginning_of_a_file_nothing_is_concluded_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    in_file_order(monkeypatch)
    train, _, found = found_in(in_class_order(range(1), 0.25))
    assert not train.is_fair
    assert (found.found, found.share, found.verdict) == (5, 5 / 192, "unclear")
    train, _, found = found_in(in_class_order(range(1), 0.9))
    assert (found.found, found.verdict) == (18, "leaked"), "so many are found that they are a leak without any others"


def test_nor_for_the_rest_of_the_part_they_were_found_in(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    in_file_order(monkeypatch)
    clock.seconds = 0.0051
    train, test, found = found_in(in_class_order(range(1), 0.25))
    assert len(train.prints) == len(test.prints) == 98
    assert not test.is_fair
    assert (found.found, found.share) == (5, 5 / TEST)


@pytest.mark.usefixtures("clock")
def test_parts_are_drawn_independently() -> None:
    """Where test is training again, in its order, half of the pictures' copies must not all be among those drawn."""
    train = [b"%d" % number for number in range(TRAIN)]
    part, _, found = found_in(dataset_of({"train": train, "test": train}))
    assert found.found == pytest.approx(192 * len(part.prints) / TRAIN, abs=25)
    assert found.share == pytest.approx(1.0, abs=0.3)


def classes_of(pictures: list[Stored]) -> np.ndarray:
    assert all(isinstance(one, bytes) for one in pictures)
    return np.bincount([int(bytes(one).split()[-1]) for one in pictures], minlength=CLASSES)


@pytest.mark.parametrize("by_lot", [True, False])
def test_what_is_kept_to_decode_is_a_fair_sample_too(by_lot: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are the first ones of it: there may be time for them only."""
    if not by_lot:
        in_file_order(monkeypatch)
    monkeypatch.setattr(stored, "STORED_DECODED", 300)
    kept = read_part(in_class_order(range(0), 0.0), "train").kept
    assert len(kept) == len(set(kept)) == 300
    assert classes_of(kept).min() >= 15
    assert classes_of(kept[:100]).min() >= 3


@pytest.mark.usefixtures("clock")
def test_all_that_was_read_in_time_is_kept() -> None:
    part = read_part(in_class_order(range(0), 0.0), "train")
    assert len(part.kept) == len(part.prints) == 192


def test_no_more_bytes_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = in_class_order(range(0), 0.0)
    monkeypatch.setattr(stored, "STORED_BYTES", 1000)
    part = read_part(dataset, "train")
    sizes = [len(bytes(one)) for one in part.kept]
    assert len(part.prints) == TRAIN
    assert 900 < sum(sizes) <= 1000
    assert classes_of(part.kept).min() >= 5


def test_nothing_is_kept_where_looks_could_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than a tenth of training would be decoded."""
    dataset = in_class_order(range(0), 0.0)
    for most, count in ((89, 0), (90, 90)):
        monkeypatch.setattr(stored, "STORED_DECODED", most)
        assert [len(read_part(dataset, part).kept) for part in ("train", "test")] == [count, count]


def test_slow_decoding_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train", seed=0)
    now = 0.0
    decode = stored.decode_image

    def slow(content: Any, **settings: Any) -> Any:
        nonlocal now
        now += 0.05
        return decode(content, **settings)

    monkeypatch.setattr(stored, "decode_image", slow)
    monkeypatch.setattr(stored, "time", SimpleNamespace(perf_counter=lambda: now))
    part = read_part(open_dataset(str(tmp_path)), "train")
    assert len(part.kept) == 54
    assert len(part.small) == 11, "a half second, and the one that was begun"


@pytest.mark.parametrize(
    ("seconds", "count"),
    [(0.0001, 500), (0.0051, 392), (0.0151, 200), (0.051, 78), (5.0, 0)],
    ids=["quick", "two seconds", "a few more for enough to judge", "four seconds", "hopeless"],
)
def test_pictures_for_judging_labels_come_in_time_or_not_at_all(
    seconds: float, count: int, clock: SimpleNamespace
) -> None:
    clock.seconds = seconds
    dataset = dataset_of({"train": [encoded(photograph(number, 24)) for number in range(500)]})
    images, labels = plain_pictures(dataset, "train", 500)
    assert images.shape == (count, 3, 32, 32)
    assert labels.shape == (count,)
    assert labels.dtype == torch.int64


def test_without_a_picture_in_time_nothing_is_said_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, part in enumerate(("train", "val", "test")):
        write(tmp_path, part, seed=seed)
    config = settings(tmp_path)
    patient = config_patient(config, open_dataset(config.data), torch.device("cpu"))
    monkeypatch.setattr(plain, "time", SimpleNamespace(perf_counter=itertools.count(step=5).__next__))
    assert truth_of_labels(patient).left_out == "too_few_to_judge"
    patient.close()
