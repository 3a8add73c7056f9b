"""Copies among pictures as they are stored: where training shows each varied, nothing else can tell them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from doctor.seen import causes, notes
from doctor.test_test_part import VIT, write
from vitscope.data.config import AugmentConfig, DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.doctor.checks.data import stored
from vitscope.doctor.checks.data.copies import copies
from vitscope.doctor.checks.data.in_both import common
from vitscope.doctor.checks.data.leaks import leaks
from vitscope.doctor.checks.data.stored import read_part
from vitscope.doctor.config_patient import config_patient
from vitscope.doctor.examination import Report
from vitscope.doctor.settings_door import examine_settings
from vitscope.train.config import LoopConfig, TrainConfig, named_model


def settings(folder: Path) -> TrainConfig:
    """With pictures that are mirrored by chance."""
    return TrainConfig(
        model=named_model("vit", VIT),
        data=DataConfig(name=str(folder), batch_size=16, workers=0),
        augment=AugmentConfig(flip="random", crop="padded"),
        loop=LoopConfig(epochs=2, device="cpu"),
    )


def examined(folder: Path, check: str) -> Report:
    return examine_settings(settings(folder), only=(check,))


def comment(text: str) -> PngInfo:
    """Which makes other bytes of the same picture."""
    note = PngInfo()
    note.add_text("copy", text)
    return note


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


@pytest.mark.parametrize("way", ["copied", "other PNGs", "JPEGs"])
def test_the_same_pictures_again_and_again(tmp_path: Path, way: str) -> None:
    write(tmp_path, "train", seed=0, count=4)
    for one in list((tmp_path / "train").rglob("*.png")):
        for copy in range(20):
            again = one.with_name(f"copy{copy}-{one.name}")
            if way == "copied":
                again.write_bytes(one.read_bytes())
            elif way == "other PNGs":
                Image.open(one).save(again, pnginfo=comment(str(copy)))
            else:
                Image.open(one).save(again.with_suffix(".jpg"), quality=70 + copy)
    write(tmp_path, "val", seed=1)
    (asked,) = examined(tmp_path, "copies").asked
    assert causes(asked.seen) == ["duplicate_only_data"]
    assert asked.seen.findings[0].numbers["distinct"] == 8


def test_without_a_picture_read_in_time_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train", seed=0)
    write(tmp_path, "val", seed=1)
    monkeypatch.setattr(stored, "STORED_SECONDS", -1.0)
    (asked,) = examined(tmp_path, "copies").asked
    assert asked.seen.left_out == "too_few_to_judge"
    (asked,) = examined(tmp_path, "leaks").asked
    assert causes(asked.seen) == []


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


def test_pictures_of_one_colour_look_like_no_other(tmp_path: Path) -> None:
    """Red ones in both parts are no leak, though their channels differ."""
    for part in ("train", "test"):
        write(tmp_path, part, seed=len(part))
        for number in range(20):
            place = tmp_path / part / f"cat/red{number}.png"
            Image.new("RGB", (24, 24), (200, 10, 10)).save(place, pnginfo=comment(f"{part} {number}"))
    dataset = open_dataset(str(tmp_path))
    train, test = read_part(dataset, "train"), read_part(dataset, "test")
    assert (len(test.kept), len(test.small)) == (100, 80)
    assert common(train, test).found == 0


def test_pictures_are_let_go_of_when_they_are_small(tmp_path: Path) -> None:
    write(tmp_path, "train", seed=0)
    part = read_part(open_dataset(str(tmp_path)), "train")
    assert part.tells_looks
    assert part.kept == []
    assert part.tells_looks
    assert len(part.small) == 54


def test_nothing_that_was_read_stays_after_the_last_who_asks(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "val", "test")):
        write(tmp_path, part, seed=seed)
    config = settings(tmp_path)
    patient = config_patient(config, open_dataset(config.data), torch.device("cpu"))
    copies(patient)
    assert "stored train" in patient.glances
    leaks(patient)
    assert not [name for name in patient.glances if name.startswith("stored")]
    patient.close()


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
    assert found.share == pytest.approx(found.found / 30 * 72 / 30)
    assert found.found > 3


def test_slow_files_end_the_reading_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train", seed=0)
    dataset = open_dataset(str(tmp_path))
    now = 0.0

    def slow(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def later(index: int) -> bytes:
            nonlocal now
            now += 0.05
            return read(index)

        return later

    monkeypatch.setattr(dataset.source, "read", slow(dataset.source.read))
    monkeypatch.setattr(stored, "time", SimpleNamespace(perf_counter=lambda: now))
    part = read_part(dataset, "train")
    assert len(part.prints) == 10, "of 72: a half second"
