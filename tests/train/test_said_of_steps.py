"""What settings and data make of a run is said where a person may not expect it, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from train.tiny_runs import VIT, tiny
from vitscope.core.config import updated
from vitscope.core.run_folder import RunFolder
from vitscope.data.config import DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.train.config import CheckpointConfig, TrainConfig, named_model
from vitscope.train.fit import fit
from vitscope.train.said_of_steps import said_of_classes, said_of_updates
from vitscope.weights.load import load_model

TYPED = "vitscope train --data photos --model.num-classes 10"


def asking(num_classes: int, **more: Any) -> TrainConfig:
    return TrainConfig(
        model=named_model("vit_tiny").changed(num_classes=num_classes), data=DataConfig(name="photos"), **more
    )


@pytest.mark.parametrize("command", [TYPED, TYPED.replace("num-classes ", "num_classes=")])
def test_a_number_of_classes_that_was_typed_is_not_dropped_in_silence(command: str) -> None:
    assert said_of_classes(asking(10), 4, command) == ["num_classes 10 -> 4, from the data"]
    assert said_of_classes(asking(10), 10, command) == []


def test_a_number_of_classes_that_was_set_is_not_dropped_in_silence() -> None:
    assert said_of_classes(asking(7), 4, None) == ["num_classes 7 -> 4, from the data"]
    assert said_of_classes(tiny(updated(VIT, num_classes=7)), 4, None) == ["num_classes 7 -> 4, from the data"]


def test_a_preset_s_number_of_classes_is_nobody_s_wish() -> None:
    usual: Any = named_model("vit_tiny")
    assert said_of_classes(asking(usual.num_classes), 4, "vitscope train --data photos") == []
    taken_over = CheckpointConfig(init_from="runs/first")
    assert said_of_classes(asking(7, checkpoint=taken_over), 4, "vitscope train --from runs/first") == []
    assert said_of_classes(asking(7, checkpoint=taken_over), 4, TYPED) != []


def test_pictures_left_out_are_counted_where_they_are_many() -> None:
    config = tiny(data={"batch_size": 128}, loop={"epochs": 1000})
    (said,) = said_of_updates(config, pictures=163, steps_per_epoch=1)
    assert said.startswith("35 of 163 training pictures are left out of each epoch (the last incomplete batch)")
    assert said_of_updates(config, pictures=1300, steps_per_epoch=10) == []


@pytest.mark.parametrize(
    ("epochs", "said"),
    [(15, "15 updates in all: 1 in each of 15 epochs; "), (1, "1 update in all: one epoch; "), (100, None)],
)
def test_a_run_of_few_updates_says_how_many(epochs: int, said: str | None) -> None:
    found = said_of_updates(tiny(loop={"epochs": epochs}), pictures=72, steps_per_epoch=1)
    assert [line.startswith(str(said)) for line in found] == ([] if said is None else [True])


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("empty", [0, 1, 7])
def test_classes_without_pictures_are_told(empty: int, tmp_path: Path) -> None:
    """They count, as with torchvision: the number of classes, and the labels of the model, go by the folders."""
    for number in range(empty):
        (tmp_path / "photos" / f"nothing-{number}").mkdir(parents=True)
    for name in ("cat", "owl"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            Image.new("L", (8, 8), 40 * number).save(tmp_path / "photos" / name / f"{number}.png")
    data = {"name": str(tmp_path / "photos"), "batch_size": 6}
    fit(tiny(data=data, loop={"epochs": 1}), out=tmp_path / "run", quiet=True)
    log = RunFolder(tmp_path / "run").log_path.read_text()
    assert len(load_model(tmp_path / "run").labels or ()) == 2 + empty
    assert log.count("no pictures. ") == bool(empty)
    assert ("warning: class 'nothing-0' has no pictures. It is one of the model's 3 classes" in log) == (empty == 1)
    assert ("'nothing-4' and 2 more have no pictures. They are among the model's 9 classes" in log) == (empty == 7)


@pytest.mark.usefixtures("no_pictures")
def test_the_log_has_it_once(tmp_path: Path) -> None:
    config = tiny(updated(VIT, num_classes=7), data={"batch_size": 40}, loop={"epochs": 1})
    assert len(open_dataset(config.data).splits["train"]) == 72
    fit(config, out=tmp_path / "run", quiet=True)
    log = RunFolder(tmp_path / "run").log_path.read_text()
    for words in ("num_classes 7 -> 4, from the data", "32 of 72 training pictures are left out", "1 update in all"):
        assert log.count(words) == 1
