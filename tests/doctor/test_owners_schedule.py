"""A schedule that is stepped for each batch and was made for epochs, beside those that are as they should be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim import lr_scheduler as schedulers

from doctor.broken import small_resnet
from doctor.conftest import pictures, small_vit
from doctor.seen import causes, notes
from doctor.test_as_it_came import fingerprint
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.causes import cause_for
from vitscope.doctor.checks.backward import CHECKS
from vitscope.doctor.checks.backward.schedule import schedule
from vitscope.doctor.finding import Seen
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]
Schedule = Callable[[Optimizer], Any]
EPOCH, EPOCHS = 8, 60
"""Of the patient's loader: 256 pictures in batches of 32."""
STEPS = EPOCH * EPOCHS


def stepping(model: nn.Module, optimizer: Optimizer, turn: Callable[[], Any]) -> Callable[[Tensor, Tensor], Tensor]:
    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        turn()
        return loss

    return step


def scheduled(patient: Make, make: Schedule, model: nn.Module | None = None, **given: Any) -> Patient:
    moved: nn.Module = small_vit() if model is None else model
    optimizer = torch.optim.AdamW(moved.parameters(), 1e-3)
    turn = make(optimizer).step
    return patient(moved, optimizer=optimizer, step=stepping(moved, optimizer, turn), **{"epochs": EPOCHS, **given})


def seen(patient: Make, make: Schedule, **given: Any) -> Seen:
    return schedule(scheduled(patient, make, **given))


def warmed_up(optimizer: Optimizer) -> Any:
    rises = schedulers.LinearLR(optimizer, 0.01, total_iters=10)
    return schedulers.SequentialLR(optimizer, [rises, schedulers.StepLR(optimizer, 20)], [10])


MADE_FOR_EPOCHS: dict[str, Schedule] = {
    "steps": lambda optimizer: schedulers.StepLR(optimizer, 20),
    "milestones": lambda optimizer: schedulers.MultiStepLR(optimizer, [30, 45]),
    "line": lambda optimizer: schedulers.LinearLR(optimizer, 1.0, 0.0, total_iters=EPOCHS),
    "exponential": lambda optimizer: schedulers.ExponentialLR(optimizer, 0.95),
    "one cycle, which refuses to go on": lambda optimizer: schedulers.OneCycleLR(optimizer, 1e-3, total_steps=EPOCHS),
    "a warm-up and steps": warmed_up,
}
SOUND: dict[str, Schedule] = {
    "half wave": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, STEPS),
    "warm-up and half wave": lambda optimizer: schedulers.LambdaLR(
        optimizer, lambda step: min(1, step / 30) * (1 + math.cos(math.pi * min(1.0, step / STEPS))) / 2
    ),
    "one cycle": lambda optimizer: schedulers.OneCycleLR(optimizer, 1e-3, total_steps=STEPS),
    "steps": lambda optimizer: schedulers.MultiStepLR(optimizer, [STEPS // 3, 2 * STEPS // 3]),
    "one over root": lambda optimizer: schedulers.LambdaLR(
        optimizer, lambda step: min((step + 1) / 5, (5 / (step + 1)) ** 0.5)
    ),
    "held": lambda optimizer: schedulers.ConstantLR(optimizer, 1.0),
}


@pytest.mark.parametrize("name", list(MADE_FOR_EPOCHS))
def test_a_schedule_for_epochs_that_each_batch_turns_on(patient: Make, name: str) -> None:
    looked = seen(patient, MADE_FOR_EPOCHS[name])
    assert causes(looked) == ["schedule_too_fast"]
    (found,) = looked.findings
    assert found.confidence > 0.9
    assert found.numbers["top"] == pytest.approx(1e-3)
    assert found.numbers["rate"] <= 2e-5
    assert 20 < found.numbers["step"] <= STEPS / 4
    assert found.picture is not None
    assert found.picture.mark == found.numbers["step"]
    refuses = "refuses" in name
    assert found.numbers.get("ends") == (EPOCHS + 1 if refuses else None)
    assert ("in an error" in cause_for(found.cause, found.numbers).evidence.en) == refuses


@pytest.mark.parametrize("name", list(SOUND))
@pytest.mark.parametrize("epochs", [EPOCHS, None])
def test_a_schedule_that_lasts(patient: Make, name: str, epochs: int | None) -> None:
    looked = seen(patient, SOUND[name], epochs=epochs)
    assert (causes(looked), notes(looked), looked.left_out) == ([], [], None)
    assert looked.measured["watched"] == (EPOCH // 2 if epochs is None else STEPS // 4)


class Counting:
    """Turns a schedule on at every so many calls, and counts them."""

    def __init__(self, schedule: Any, every: int = 1) -> None:
        self.schedule, self.every, self.calls = schedule, every, 0

    def step(self) -> None:
        self.calls += 1
        if self.calls % self.every == 0:
            self.schedule.step()


def counting(make: Schedule, every: int = 1) -> tuple[list[Counting], Schedule]:
    made: list[Counting] = []

    def counted(optimizer: Optimizer) -> Counting:
        made.append(Counting(make(optimizer), every))
        return made[-1]

    return made, counted


@pytest.mark.parametrize("name", ["steps", "one cycle, which refuses to go on"])
def test_the_owners_step_is_taken_a_few_times_only(patient: Make, name: str) -> None:
    made, make = counting(MADE_FOR_EPOCHS[name])
    assert causes(seen(patient, make)) == ["schedule_too_fast"]
    assert made[0].calls == 4
    assert str(schedule(patient(step=lambda *_: made[0].step())).left_out) == "no_scheduler_found"
    assert made[0].calls == 4


def test_a_schedule_stepped_once_an_epoch(patient: Make) -> None:
    """The owner counts the batches."""
    made, make = counting(MADE_FOR_EPOCHS["steps"], EPOCH)
    looked = seen(patient, make)
    assert (causes(looked), looked.left_out) == ([], "schedule_turned_elsewhere")
    assert made[0].calls == 8


def test_a_schedule_stepped_at_every_second_batch(patient: Make) -> None:
    looked = seen(patient, counting(MADE_FOR_EPOCHS["steps"], 2)[1])
    assert causes(looked) == ["schedule_too_fast"]
    assert looked.findings[0].numbers["step"] == 80
    assert causes(seen(patient, counting(SOUND["steps"], 2)[1])) == []


def test_schedulers_beside_each_other_and_within_a_chain(patient: Make) -> None:
    def chained(optimizer: Optimizer) -> Any:
        parts = [schedulers.ConstantLR(optimizer, 0.5, 3), schedulers.StepLR(optimizer, 20)]
        return schedulers.ChainedScheduler(parts)

    def beside(optimizer: Optimizer) -> Any:
        warm, falls = schedulers.LinearLR(optimizer, 0.1, total_iters=5), schedulers.StepLR(optimizer, 20)

        class Both:
            def step(self) -> None:
                warm.step()
                falls.step()

        return Both()

    for make in (chained, beside):
        looked = seen(patient, make)
        assert causes(looked) == ["schedule_too_fast"]
        assert looked.findings[0].numbers["step"] == 40


@pytest.mark.parametrize("first", [620, 3050])
def test_a_warm_restart_long_after_the_rate_is_gone(patient: Make, first: int) -> None:
    looked = seen(patient, lambda one: schedulers.CosineAnnealingWarmRestarts(one, first), epochs=3200)
    assert (causes(looked), notes(looked)) == ([], ["rate_goes_round"])
    assert looked.measured["watched"] > 2 * first


def test_a_rate_that_is_not_the_schedules_count_alone_is_left_out(patient: Make) -> None:
    drawn = iter(range(100))
    looked = seen(patient, lambda one: schedulers.LambdaLR(one, lambda _: 0.7 ** next(drawn)))
    assert (causes(looked), looked.left_out) == ([], "schedule_not_repeated")
    assert next(drawn) < 12

    def scaled(optimizer: Optimizer) -> Any:
        falls = schedulers.ExponentialLR(optimizer, 0.95)

        class Scaling:
            def step(self) -> None:
                falls.step()
                optimizer.param_groups[0]["lr"] = 1e-3 / (1 + falls.last_epoch)

        return Scaling()

    assert seen(patient, scaled).left_out == "schedule_not_repeated"


def test_without_the_epochs_a_rate_that_is_gone_is_a_note_that_asks_for_them(patient: Make) -> None:
    images, labels = pictures(1024)
    for make in (
        lambda optimizer: schedulers.LinearLR(optimizer, 1.0, 0.0, total_iters=12),  # a budget of 12 steps
        lambda optimizer: schedulers.CosineAnnealingLR(optimizer, 12),
        lambda optimizer: schedulers.CosineAnnealingLR(optimizer, 6),
    ):
        looked = seen(patient, make, images=images, labels=labels, epochs=None)
        assert (causes(looked), notes(looked)) == ([], ["rate_gone_within_epoch"])


class EndsError(Exception):
    pass


def test_a_step_that_ends_after_some_calls_is_no_failure(patient: Make) -> None:
    made, make = counting(MADE_FOR_EPOCHS["steps"])
    one = scheduled(patient, make)
    assert one.make_trainer is not None
    own = one.make_trainer().own_step  # pyright: ignore[reportAttributeAccessIssue]

    def step(images: Tensor, labels: Tensor) -> Tensor:
        if made[0].calls >= 3:
            raise EndsError
        return own(images, labels)

    ending = patient(one.model, optimizer=one.optimizer, step=step, epochs=EPOCHS)
    assert causes(schedule(ending)) == ["schedule_too_fast"]
    with pytest.raises(EndsError):
        schedule(ending)  # its very first call


def test_it_is_asked_last(patient: Make) -> None:
    assert CHECKS[-1].ask is schedule


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_near_its_end(patient: Make, momentum: float) -> None:
    """Without momentum its state is empty, with momentum it counts nothing: the schedule does."""
    model = small_resnet()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=momentum)
    turn = schedulers.CosineAnnealingLR(optimizer, STEPS).step
    one = patient(model, optimizer=optimizer, step=stepping(model, optimizer, turn), epochs=EPOCHS)
    optimizer.step()  # before the schedule, or torch warns
    for _ in range(STEPS - 20):
        turn()
    assert causes(schedule(one)) == []
    assert schedule(one).left_out == "training_has_begun"
    assert one.make_trainer is not None
    one.make_trainer().step(*one.sample(8))
    assert causes(schedule(one)) == []
    assert schedule(one).left_out == "training_has_begun"


def test_momentum_that_came_with_a_new_schedule_is_a_training_of_unknown_length(patient: Make) -> None:
    model = small_resnet()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    stepping(model, optimizer, lambda: None)(*patient().sample(8))
    turn = MADE_FOR_EPOCHS["steps"](optimizer).step
    one = patient(model, optimizer=optimizer, step=stepping(model, optimizer, turn), epochs=EPOCHS)
    assert schedule(one).left_out == "training_has_begun"


def test_a_half_wave_that_goes_on_is_likely_and_cycles_on_purpose_are_a_note(patient: Make) -> None:
    def wave(optimizer: Optimizer) -> Any:
        return schedulers.CosineAnnealingLR(optimizer, 6)

    looked = seen(patient, wave)  # which other waves of the training's length are not
    assert causes(looked) == ["schedule_too_fast"]
    assert looked.findings[0].confidence == 0.6
    assert looked.findings[0].numbers["back"] == pytest.approx(1e-3, rel=0.01)
    for cycles in (
        lambda optimizer: schedulers.CosineAnnealingWarmRestarts(optimizer, 20, eta_min=1e-6),
        lambda optimizer: schedulers.CyclicLR(optimizer, 1e-6, 1e-3, step_size_up=10, cycle_momentum=False),
    ):
        looked = seen(patient, cycles)
        assert (causes(looked), notes(looked)) == ([], ["rate_goes_round"])


def test_what_cannot_be_known_is_left_out(patient: Make) -> None:
    assert schedule(patient()).left_out == "no_schedule_to_see"
    plateau = seen(patient, lambda optimizer: _Following(schedulers.ReduceLROnPlateau(optimizer, patience=2)))
    assert plateau.left_out == "schedule_follows_loss"
    one = scheduled(patient, MADE_FOR_EPOCHS["steps"], model=small_resnet())
    assert one.make_trainer is not None
    trainer = one.make_trainer()
    for _ in range(STEPS // 4):
        trainer.step(*one.sample(8))
    assert causes(schedule(one)) == []
    assert schedule(one).left_out == "training_has_begun"


@pytest.mark.parametrize("name", ["steps", "one cycle, which refuses to go on"])
def test_a_step_that_wants_what_the_pass_leaves_beside(patient: Make, name: str) -> None:
    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small_resnet()

        def forward(self, images: Tensor) -> Tensor:
            self.logits = self.inner(images)
            return self.logits

    model = Beside()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    turn = MADE_FOR_EPOCHS[name](optimizer).step

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        model(images)
        F.cross_entropy(model.logits, labels).backward()
        optimizer.step()
        turn()

    looked = schedule(patient(model, optimizer=optimizer, step=step, epochs=EPOCHS))
    assert causes(looked) == ["schedule_too_fast"]


def test_training_that_has_begun_counts_from_where_it_is(patient: Make) -> None:
    one = scheduled(patient, MADE_FOR_EPOCHS["steps"], model=small_resnet())
    assert one.make_trainer is not None
    trainer = one.make_trainer()
    for _ in range(70):
        trainer.step(*one.sample(8))
    looked = schedule(one)
    assert causes(looked) == ["schedule_too_fast"]
    assert looked.findings[0].numbers["step"] == 71
    assert looked.findings[0].numbers["top"] == pytest.approx(1e-3)


def test_a_warm_up_that_has_begun_is_no_end(patient: Make) -> None:
    rising = lambda optimizer: schedulers.LambdaLR(optimizer, lambda step: min(1.0, 1e-4 * (step + 1)))  # noqa: E731
    one = scheduled(patient, rising, model=small_resnet())
    assert one.make_trainer is not None
    one.make_trainer().step(*one.sample(8))
    assert causes(schedule(one)) == []


class _Following:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def step(self) -> None:
        self.inner.step(1.0)


@pytest.mark.parametrize("name", list(MADE_FOR_EPOCHS))
def test_schedulers_are_given_back_as_they_came(patient: Make, name: str) -> None:
    one = scheduled(patient, MADE_FOR_EPOCHS[name], model=small_resnet())
    assert one.schedulers
    assert one.make_trainer is not None
    before = [str(held.state_dict()) for held in one.schedulers]
    whole = fingerprint(one)
    with as_it_came(one):
        for _ in range(25):
            one.make_trainer().step(*one.sample(8))
        assert [str(held.state_dict()) for held in one.schedulers] != before
    assert [str(held.state_dict()) for held in one.schedulers] == before
    assert fingerprint(one) == whole
    assert "_opt_called" not in vars(one.optimizer)


def test_a_scheduler_of_another_optimiser_is_not_ours(patient: Make) -> None:
    other = schedulers.StepLR(torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1), 3)
    one = scheduled(patient, MADE_FOR_EPOCHS["steps"])
    assert len(one.schedulers) == 1
    assert other not in one.schedulers
