"""Steps that are not finite, inside a captured graph."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_runs import DEVICE, DRY_VIT, RESNET, VIT, most_off, settings, trained
from torch import Tensor

from vitscope.core.errors import DivergedError
from vitscope.train.objective import Objective
from vitscope.train.state import TrainState


class Poison:
    """Makes the loss NaN in chosen steps, counted on the device: a captured step asks nobody."""

    def __init__(self, steps: Iterable[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = torch.zeros((), device=DEVICE)
        bad = torch.tensor([float(step) for step in steps], device=DEVICE)
        poison, call = self, Objective.__call__

        def poisoned(objective: Objective, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            loss, logits = call(objective, images, labels)
            is_bad = (bad == poison.taken + 1).any()
            return loss * torch.where(is_bad, math.nan, 1.0), logits

        monkeypatch.setattr(Objective, "__call__", poisoned)

    def __call__(self, state: TrainState) -> None:
        self.taken += 1 - state.hold


@pytest.mark.parametrize("how", ["eager", "graph"])
@pytest.mark.parametrize("model", [VIT, RESNET], ids=["vit", "resnet"])
def test_a_step_that_is_not_finite_changes_nothing(
    model: dict[str, Any], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = trained(
        settings(model, precision={"launch": how}, loop={"ema_decay": 0.9}),
        tmp_path / "run",
        after_step=[Poison(range(9, 10), monkeypatch)],
    )
    rows = [row for row in ended.run.metrics if "train/loss" in row]
    assert [row["step"] for row in rows if row["train/skipped"]] == [9]
    assert not math.isfinite(rows[8]["train/loss"])
    assert "step 9 skipped" in ended.log
    assert list(ended.run.folder.diagnostics.glob("bad-step-*"))
    assert all(bool(tensor.isfinite().all()) for tensor in ended.state.values())


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_three_in_a_row_lead_back_with_half_the_rate(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = trained(
        settings(precision={"launch": how}, loop={"ema_decay": 0.9}, schedule={"name": "constant"}),
        tmp_path / "run",
        after_step=[Poison(range(16, 19), monkeypatch)],
    )
    assert ended.run.state == "finished"
    assert "back to step 14, with half the learning rate" in ended.log
    rows = {row["step"]: row for row in ended.run.metrics if "train/loss" in row}
    assert rows[24]["train/lr"] == pytest.approx(rows[14]["train/lr"] / 2)
    assert float(ended.state["state/updates"]) == 24


def test_a_rate_that_is_far_too_high_is_called_divergence(tmp_path: Path) -> None:
    config = settings(optim={"name": "sgd", "lr": 1e4, "clip_norm": None}, schedule={"warmup": "0 steps"})
    with pytest.raises(DivergedError, match="training diverged"):
        trained(config, tmp_path / "run")


@pytest.mark.parametrize("how", ["eager", "graph"])
@pytest.mark.parametrize("model", [DRY_VIT, RESNET], ids=["vit", "resnet"])
def test_fp16_finds_its_scale(model: dict[str, Any], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = trained(settings(model, precision={"launch": how, "dtype": "fp16"}), tmp_path / "fp16")
    rows = [row for row in half.run.metrics if "train/loss" in row]
    skipped = {row["step"] for row in rows if row["train/skipped"]}
    assert len(skipped) <= 5
    assert 1.0 < rows[-1]["train/loss_scale"] <= 2.0**16

    # The same steps are skipped in fp32, so that both learn from the same pictures.
    config = settings(model, precision={"launch": how, "dtype": "fp32"}, loop={"most_bad_steps": 10})
    full = trained(config, tmp_path / "fp32", after_step=[Poison(skipped, monkeypatch)])
    learnt = [number for number, row in enumerate(rows) if row["step"] not in skipped]
    assert most_off([half.losses[n] for n in learnt], [full.losses[n] for n in learnt]) < 0.03
