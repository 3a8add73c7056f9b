"""Where a run stands: means over finite steps, the best however small its lead, patience that counts by more."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from vitscope.core.errors import VitscopeError
from vitscope.train.course import Course


def judged(values: list[float], *, larger: bool = True, delta: float = 0.0) -> tuple[Course, list[bool], list[int]]:
    course, best, waited = Course(), [], []
    for number, value in enumerate(values):
        best.append(course.judge(value, step=10 * (number + 1), larger_is_better=larger, min_delta=delta))
        waited.append(course.waited)
        course.next_epoch()
    return course, best, waited


def test_larger_and_smaller_are_better() -> None:
    course, best, waited = judged([0.5, 0.7, 0.6, 0.8])
    assert best == [True, True, False, True]
    assert waited == [0, 0, 1, 0]
    assert (course.best, course.best_step, course.best_epoch) == (0.8, 40, 3)
    course, best, waited = judged([0.5, 0.7, 0.4, 0.4], larger=False)
    assert best == [True, False, True, False]
    assert waited == [0, 1, 0, 1]
    assert (course.best, course.best_step) == (0.4, 30)


def test_a_flat_curve_waits() -> None:
    _, best, waited = judged([0.5] * 5)
    assert best == [True, False, False, False, False]
    assert waited == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("larger", [True, False])
def test_best_is_apart_from_delta(larger: bool) -> None:
    """Each value leads by too little for patience, which counts from the last one that led by enough."""
    values = [0.50, 0.52, 0.54, 0.56, 0.58, 0.65]
    course, best, waited = judged(values if larger else [-v for v in values], larger=larger, delta=0.0501)
    assert all(best)
    assert waited == [0, 1, 2, 0, 1, 0]
    assert abs(course.best or 0) == 0.65


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_best(bad: float) -> None:
    course, best, waited = judged([bad, bad, 0.1, bad])
    assert best == [False, False, True, False]
    assert waited == [1, 2, 0, 1]
    assert course.best == 0.1


def test_means_are_over_finite_steps_of_this_epoch() -> None:
    course = Course()
    assert math.isnan(course.epoch_means()["train/epoch_loss"])
    for loss, accuracy in ((1.0, 0.5), (math.nan, 0.0), (2.0, 1.0)):
        course.count({"train/loss": loss, "train/accuracy": accuracy})
    course.pictures, course.train_seconds = 300, 2.0
    assert course.epoch_means() == {"train/epoch_loss": 1.5, "train/epoch_accuracy": 0.75, "train/images_per_s": 150.0}
    course.batch = 3
    course.next_epoch()
    assert (course.epoch, course.batch, course.steps_counted, course.pictures) == (1, 0, 0, 0)
    course.count({"train/loss": 4.0, "train/accuracy": 0.0})
    assert course.epoch_means()["train/epoch_loss"] == 4.0


def test_saved_and_loaded() -> None:
    course, _, _ = judged([0.5, 0.4])
    course.count({"train/loss": 0.25, "train/accuracy": 0.5})
    course.skipped_steps, course.went_back, course.is_over = 2, 1, True
    plain: dict[str, Any] = json.loads(json.dumps(course.to_dict()))
    again = Course()
    again.load(plain)
    assert again == course
    assert again != Course()


@pytest.mark.parametrize("change", [{"more": 1}, {"best": ...}])
def test_another_kind_of_course_is_refused(change: dict[str, Any]) -> None:
    data = Course().to_dict()
    for key, value in change.items():
        if value is ...:
            del data[key]
        else:
            data[key] = value
    course = Course(epoch=3)
    with pytest.raises(VitscopeError, match="the course of a checkpoint") as refused:
        course.load(data)
    assert "--from RUN" in str(refused.value.fix)
    assert course == Course(epoch=3)
