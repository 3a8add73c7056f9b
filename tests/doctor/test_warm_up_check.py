"""No warm-up: nothing where the model does without or it is not known, named where the first steps ruin the weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from doctor.broken import small_cnn
from doctor.conftest import small_vit
from doctor.seen import causes
from doctor.test_as_it_came import fingerprint
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.checks.training import CHECKS
from vitscope.doctor.checks.training import cold_start as check
from vitscope.doctor.checks.training.cold_start import warm_up
from vitscope.doctor.experiments.held import HeldRun
from vitscope.doctor.experiments.long_run import Beside
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def test_it_is_part_of_a_quick_examination() -> None:
    assert next(one for one in CHECKS if one.name == "warm_up").is_quick


def test_what_is_not_known_is_not_blamed(patient: Make) -> None:
    assert warm_up(patient(lr=0.1)).left_out == "warm_up_not_known"


def test_a_known_warm_up_costs_nothing(patient: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "hold", lambda *_, **__: pytest.fail("trained"))
    seen = warm_up(patient(warmup_steps=100))
    assert seen.measured == {"warmup_steps": 100}
    assert causes(seen) == []


@pytest.mark.parametrize("model", [small_vit, small_cnn], ids=["vit", "cnn"])
def test_models_that_do_without_give_nothing(patient: Make, model: Callable[[], nn.Module]) -> None:
    one = patient(model(), warmup_steps=0)
    before = fingerprint(one)
    with as_it_came(one):
        seen = warm_up(one)
    assert causes(seen) == []
    assert seen.measured["cold"] < seen.measured["start"]
    assert fingerprint(one) == before


class Fragile(nn.Module):
    """A step that changes its first weights by more than 3 % kills it for good: Adam's first ones are its largest."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = small_cnn()
        self.register_buffer("alive", torch.ones(()))
        self.register_buffer("last", torch.zeros(16, 3, 3, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        weight = self.inside[0].weight.detach()  # pyright: ignore
        if self.training and bool(self.last.any()) and (weight - self.last).norm() > 0.03 * self.last.norm():
            self.alive.zero_()
        if self.training:
            self.last.copy_(weight)
        return self.inside(images) * self.alive


def test_first_steps_that_ruin_a_model_are_named(patient: Make) -> None:
    one = patient(Fragile(), lr=5e-3, warmup_steps=0)
    before = fingerprint(one)
    with as_it_came(one):
        seen = warm_up(one)
    assert causes(seen) == ["warmup_missing"]
    (finding,) = seen.findings
    assert finding.confidence == 0.88
    assert finding.numbers["lr"] == 5e-3
    assert finding.numbers["cold"] > 1.3
    assert finding.numbers["warm"] < 0.5
    assert finding.changes == ()  # there are no settings to change
    assert fingerprint(one) == before


def test_the_same_model_with_a_warm_up_is_well(patient: Make) -> None:
    assert causes(warm_up(patient(Fragile(), lr=5e-3, warmup_steps=50))) == []


def falling(*, move: float) -> HeldRun:
    return HeldRun(3e-3, tuple(2.0 - 0.05 * step for step in range(24)), 2, (move,) * 24)


@pytest.mark.parametrize(
    ("harm", "cold", "sure"),
    [("harms", 1.99, 0.8), ("not seen", 1.99, 0.55), ("not seen", 1.5, None), ("helps", 1.99, None)],
)
def test_large_first_steps_are_judged_on_fresh_batches(
    patient: Make, monkeypatch: pytest.MonkeyPatch, harm: str, cold: float, sure: float | None
) -> None:
    """Few pictures are learnt at any rate; a network that learns fresh ones without a warm-up needs none."""
    runs = (falling(move=0.12), falling(move=0.12))
    monkeypatch.setattr(check, "hold", lambda *_, **__: falling(move=0.12))
    monkeypatch.setattr(check, "beside", lambda *_, **__: Beside(harm, cold, 1.8, 60, runs))  # pyright: ignore
    seen = warm_up(patient(lr=3e-3, warmup_steps=0))
    assert [finding.confidence for finding in seen.findings] == ([] if sure is None else [sure])
    assert causes(seen) == ([] if sure is None else ["warmup_missing"])
    if sure is not None:
        assert seen.findings[0].numbers["first"] == pytest.approx(12.0)


def test_where_there_is_no_time_for_fresh_batches_nothing_is_said(
    patient: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "hold", lambda *_, **__: falling(move=0.12))
    monkeypatch.setattr(check, "beside", lambda *_, **__: None)
    assert causes(warm_up(patient(warmup_steps=0))) == []
