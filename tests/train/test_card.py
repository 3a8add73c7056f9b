"""The page beside a model says what it was told, and what it says to type works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binomtest

import vitscope
from vitscope.core.config import updated
from vitscope.data.config import DataConfig
from vitscope.train.config import LoopConfig, OptimConfig, TrainConfig, named_model
from vitscope.train.show.card import MOST_LABELS, model_card, wilson_interval

DIGITS = tuple(str(number) for number in range(10))
SMALL: dict[str, Any] = {"img_size": 8, "patch_size": 2, "in_chans": 1, "num_classes": 10, "depth": 1}


def config(**sections: Any) -> TrainConfig:
    return TrainConfig(model=named_model("guide_tiny").changed(**SMALL), **sections)


def card(**changes: Any) -> str:
    given: dict[str, Any] = {
        "config": config(),
        "dataset_line": "digits: 1,797 pictures of 8 x 8",
        "classes": DIGITS,
        "params": 123_456,
        "best": {"step": 300, "epoch": 15, "val/loss": 0.1234, "val/accuracy": 0.9769, "val/count": 216},
        "test": {"step": 400, "epoch": 20, "test/loss": 0.25, "test/accuracy": 0.95, "test/count": 360},
        "commands": ["vitscope train digits_vit --seed 3", "vitscope train --resume --out RUN"],
        "versions": "vitscope 0.1, torch 2.15",
    }
    return model_card(**{**given, **changes})


def row(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_figures_stand_with_their_pictures_and_interval() -> None:
    text = card()
    exact = binomtest(342, 360).proportion_ci(method="wilson")
    interval = f"{100 * exact.low:.2f} to {100 * exact.high:.2f} %"
    assert row(text, "test") == ["test", "95.00 %", interval, "360", "0.2500"]
    assert row(text, "validation")[:2] == ["validation", "97.69 %"]
    assert "epoch 15, the best by val/accuracy" in text


@pytest.mark.parametrize(("right", "count"), [(0, 10), (10, 10), (1, 3), (9000, 10_000), (50, 100)])
def test_the_interval_is_wilsons(right: int, count: int) -> None:
    low, high = wilson_interval(right, count)
    exact = binomtest(right, count).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-12)
    assert 0 <= low <= right / count <= high <= 1


def test_nothing_measured_is_nothing_known() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    text = card(test=None, best={"step": 1, "epoch": 1})
    assert row(text, "test")[1] == "not measured"
    assert row(text, "validation")[1] == "not measured"
    without_count = card(test={"step": 1, "epoch": 1, "test/accuracy": 0.5, "test/loss": float("nan")})
    assert row(without_count, "test") == ["test", "50.00 %", "", "", "nan"]


def test_what_was_given_is_said() -> None:
    text = card(
        config=config(
            loop=LoopConfig(epochs=21, seed=3, ema_decay=0.99),
            optim=OptimConfig(name="muon", lr=2e-3, weight_decay=0.07),
            data=DataConfig(batch_size=96, normalisation="mnist"),
        )
    )
    for fact in (
        "123,456 parameters",
        "digits: 1,797 pictures of 8 x 8",
        "vitscope train digits_vit --seed 3",
        "21 epochs at most, batches of 96, seed 3",
        "optimiser muon, learning rate 0.002",
        "weight decay 0.07",
        "running mean (EMA, decay 0.99)",
        "grey",
        "8 x 8",
        "0.1307",
        "0.3081",
        "vitscope 0.1, torch 2.15",
        "The numbers 0 to 9.",
    ):
        assert fact in text, fact


def test_no_path_stands_in_it() -> None:
    cfg = config(data=DataConfig(name="/home/someone/pictures"))
    cfg = updated(cfg, checkpoint=updated(cfg.checkpoint, init_from="/home/someone/runs/x"))
    cfg = updated(cfg, loss=updated(cfg.loss, teacher="/home/someone/runs/y"))
    text = card(config=cfg)
    assert "/home" not in text
    assert "weights began as those of another model" in text
    assert "taught by another model" in text


def test_the_same_facts_give_the_same_page() -> None:
    assert card() == card()


def test_a_name_is_not_markdown() -> None:
    text = card(classes=["a|b", "<script>", "c_d*e*", "two\nlines"])
    assert "0 a\\|b, 1 \\<script\\>, 2 c\\_d\\*e\\*, 3 two lines" in text


def test_many_classes_are_not_all_listed() -> None:
    text = card(classes=[f"class{number}" for number in range(1000)])
    assert "1,000 classes" in text
    assert f"class{MOST_LABELS - 1}," in text
    assert f"class{MOST_LABELS}" not in text
    assert "900 more in `labels.json`" in text


def test_the_python_it_shows_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = vitscope.create_model("guide_tiny", **SMALL)
    labels = [f"digit {number}" for number in range(10)]
    preprocessing = DataConfig().preprocess(8, 1)
    vitscope.save_model(model, tmp_path / "model", labels=labels, preprocessing=preprocessing)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    (program,) = re.findall(r"```python\n(.*?)```", card(), flags=re.DOTALL)
    program = program.replace("FOLDER", str(tmp_path / "model")).replace("PICTURE", str(tmp_path / "picture.png"))
    exec(program, {})
    said = capsys.readouterr().out
    name, share = re.fullmatch(r"(digit \d) ([\d.]+)\n", said).groups()  # type: ignore[union-attr]
    assert name in labels
    assert 0.1 <= float(share) <= 1
