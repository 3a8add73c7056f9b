"""Learning rates, update by update, against numbers worked out by hand and torch's own schedulers."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest
import torch

from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.train.config import LoopConfig, OptimConfig, ScheduleConfig, TrainConfig
from vitscope.train.optim.schedule import Plateau, lr_table


def table(*, lr: float = 1.0, steps_per_epoch: int = 1, epochs: int = 10, **settings: Any) -> list[float]:
    rates = lr_table(ScheduleConfig(**settings), lr=lr, steps_per_epoch=steps_per_epoch, epochs=epochs)
    assert rates.dtype == torch.float32
    assert rates.shape == (steps_per_epoch * epochs,)
    return rates.tolist()


def followed(make: Any, steps: int, lr: float) -> list[float]:
    """The rates a torch scheduler gives, one an update."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_cosine_after_a_warmup_by_hand() -> None:
    # Warm-up of 2: 0.2, 0.6; then a cosine over the 5 updates 2..6 from 1 to 0.2, quarter by quarter.
    root = math.sqrt(0.5)
    expected = [0.2, 0.6, 1.0, 0.2 + 0.8 * (1 + root) / 2, 0.6, 0.2 + 0.8 * (1 - root) / 2, 0.2]
    rates = table(name="cosine", warmup="2 steps", warmup_lr=0.2, min_lr=0.2, epochs=7)
    assert rates == pytest.approx(expected, rel=1e-6)


def test_step_decay_by_hand_counts_epochs_from_the_start() -> None:
    # 2 updates an epoch, down after epochs 2 and 4; the 3 updates of warm-up do not push the steps back.
    expected = [0.1, 0.4, 0.7, 1.0, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01]
    rates = table(name="step", step_epochs=2, warmup="3 steps", warmup_lr=0.1, steps_per_epoch=2, epochs=5)
    assert rates == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["constant", "plateau"])
def test_constant_and_plateau_stay_at_the_top(name: str) -> None:
    rates = table(name=name, warmup="4 steps", warmup_lr=0.5, lr=0.9, epochs=6)
    assert rates == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9, 0.9], rel=1e-6)


@pytest.mark.parametrize(
    ("warmup", "length"), [("30 steps", 30), ("3 epochs", 30), ("0.5 epochs", 5), ("10 %", 10), ("0 steps", 0)]
)
def test_the_warmup_has_the_length_asked_for(warmup: str, length: int) -> None:
    rates = table(name="constant", warmup=warmup, steps_per_epoch=10, epochs=10)
    assert rates.index(1.0) == length
    assert min(rates) >= 1e-6 * (1 - 1e-6)


def test_cosine_and_warmup_agree_with_torch() -> None:
    lr, warmup, total = 3e-3, 37, 500
    settings = ScheduleConfig(warmup="37 steps", warmup_lr=1e-5, min_lr=2e-5)
    ours = lr_table(settings, lr=lr, steps_per_epoch=50, epochs=10).tolist()
    rise = followed(
        lambda one: torch.optim.lr_scheduler.LinearLR(one, start_factor=1e-5 / lr, total_iters=warmup), warmup, lr
    )
    fall = followed(
        lambda one: torch.optim.lr_scheduler.CosineAnnealingLR(one, T_max=total - 1 - warmup, eta_min=2e-5),
        total - warmup,
        lr,
    )
    assert ours == pytest.approx(rise + fall, rel=1e-5)
    assert ours[-1] == pytest.approx(2e-5, rel=1e-6)


def test_step_decay_agrees_with_torch() -> None:
    ours = table(name="step", step_epochs=30, step_factor=0.1, warmup="0 steps", steps_per_epoch=3, epochs=100)
    theirs = followed(lambda one: torch.optim.lr_scheduler.StepLR(one, step_size=90, gamma=0.1), 300, 1.0)
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("name", ["cosine", "step", "plateau", "constant"])
def test_no_schedule_rises_after_its_warmup(name: str) -> None:
    rates = table(name=name, steps_per_epoch=7, epochs=90)
    top = 63
    assert rates[:top] == sorted(rates[:top])
    assert rates[top] == 1.0
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert all(rate > 0 for rate in rates)


def test_the_shortest_runs() -> None:
    assert table(warmup="0 steps", epochs=1) == [1.0]  # one update is made at the top, not at min_lr
    assert table(warmup="0 steps", min_lr=0.0, epochs=2) == [1.0, 0.0]
    assert table(warmup="100 %", warmup_lr=0.5, epochs=2) == [0.5, 0.75]
    assert table(warmup="2 steps", warmup_lr=0.5, epochs=3) == [0.5, 0.75, 1.0]


@pytest.mark.parametrize("warmup", ["11 steps", "5.5 epochs"])
def test_a_warmup_longer_than_the_run_is_refused(warmup: str) -> None:
    with pytest.raises(ConfigError, match=r"schedule.warmup: expected at most the run's 10 steps.*11 steps"):
        table(warmup=warmup, steps_per_epoch=2, epochs=5)


def settings(*, lr: float = 1e-3, epochs: int = 10, **schedule: Any) -> TrainConfig:
    return TrainConfig(optim=OptimConfig(lr=lr), schedule=ScheduleConfig(**schedule), loop=LoopConfig(epochs=epochs))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"lr": 1e-7, "warmup": "0 steps"}, "min_lr: expected at most the learning rate, 1e-07, received 1e-06"),
        ({"lr": 1e-7, "name": "constant"}, "warmup_lr: expected at most the learning rate, 1e-07, received 1e-06"),
        ({"lr": 1e-7, "name": "plateau", "warmup": "0 %"}, "min_lr: expected at most"),
        ({"warmup": "5 epochs", "epochs": 3}, "warmup: expected at most the run's 3 epochs, received '5 epochs'"),
        ({"warmup": "1.5 epoch", "epochs": 1}, "warmup: expected at most the run's 1 epoch, received '1.5 epoch'"),
    ],
)
def test_what_the_settings_alone_show_to_be_no_schedule_is_refused_with_them(
    given: dict[str, Any], wanted: str
) -> None:
    """Before a picture is read."""
    with pytest.raises(ConfigError, match=re.escape(f"schedule.{wanted}")) as refused:
        settings(**given)
    assert refused.value.fix


def test_bounds_that_are_not_used_may_be_anywhere() -> None:
    assert settings(lr=1e-7, name="constant", warmup="0 steps").lr == 1e-7
    assert settings(warmup="3 epochs", epochs=3).loop.epochs == 3
    assert settings(warmup="5000 steps", epochs=1).loop.epochs == 1, "nobody has counted yet"


def test_a_plateau_by_hand() -> None:
    plateau = Plateau(ScheduleConfig(name="plateau", plateau_patience=2, plateau_factor=0.5, min_lr=0.2), lr=1.0)
    values = [1.0, 0.9, 0.9, 0.95, 0.9, 0.8, math.nan, 0.8, math.inf, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    lowered = [plateau.update(value) for value in values]
    # Third bad value in a row: at 4, 8, 11 (to min_lr) and 14, where nothing is left to lower.
    assert [index for index, one in enumerate(lowered) if one] == [4, 8, 11]
    assert plateau.factor == pytest.approx(0.2)


def test_a_plateau_whose_first_values_are_nan() -> None:
    plateau = Plateau(ScheduleConfig(name="plateau", plateau_patience=1), lr=1.0)
    assert [plateau.update(math.nan) for _ in range(2)] == [False, True]
    assert plateau.update(5.0) is False
    assert plateau.best == 5.0


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("patience", [0, 1, 5])
def test_a_plateau_agrees_with_torch(mode: Any, patience: int) -> None:
    lr, floor = 0.1, 1e-3
    config = ScheduleConfig(name="plateau", plateau_mode=mode, plateau_patience=patience, min_lr=floor)
    plateau = Plateau(config, lr=lr)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode=mode, factor=0.5, patience=patience, threshold=0.0, min_lr=floor, eps=0.0
    )
    draws, seen = random.Random(patience), set()
    for step in range(200):
        value = draws.choice([draws.random() / (1 + step) if mode == "min" else draws.random() * step, math.nan, 0.5])
        before = optimizer.param_groups[0]["lr"]
        theirs.step(value)
        lowered = plateau.update(value)
        assert lowered == (optimizer.param_groups[0]["lr"] < before)
        assert lr * plateau.factor == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        seen.add(plateau.factor)
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("metric", "rises_well"),
    [("val/loss", False), ("val/accuracy", True), ("train/epoch_loss", False), ("train/epoch_accuracy", True)],
)
def test_a_plateau_knows_by_itself_what_is_good(metric: Any, rises_well: bool) -> None:
    for mode, good in (("auto", rises_well), ("max", True), ("min", False)):
        config = ScheduleConfig(name="plateau", plateau_metric=metric, plateau_mode=mode, plateau_patience=0)
        plateau = Plateau(config, lr=1.0)
        assert [plateau.update(value) for value in (1.0, 2.0, 3.0)] == [False, not good, not good]
    assert ScheduleConfig().plateau_mode == "auto"


def test_a_plateau_goes_on_where_it_was() -> None:
    config = ScheduleConfig(name="plateau", plateau_patience=3)
    draws = random.Random(0)
    values = [draws.random() for _ in range(60)]
    whole = Plateau(config, lr=1.0)
    uninterrupted = [whole.update(value) for value in values]
    for cut in (0, 1, 7, 30):
        first = Plateau(config, lr=1.0)
        before = [first.update(value) for value in values[:cut]]
        state = first.state_dict()
        assert all(value is None or type(value) in (int, float) for value in state.values())
        second = Plateau(config, lr=1.0)
        second.load_state_dict(state)
        assert before + [second.update(value) for value in values[cut:]] == uninterrupted
        assert second.factor == whole.factor
    assert sum(uninterrupted) > 5


def test_a_plateau_refuses_another_state() -> None:
    plateau = Plateau(ScheduleConfig(name="plateau"), lr=1.0)
    with pytest.raises(VitscopeError, match="factor, best and bad"):
        plateau.load_state_dict({"factor": 0.5})
    assert plateau.factor == 1.0
