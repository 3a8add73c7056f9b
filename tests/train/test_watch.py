"""The watch: which rows are bad, how many in a row are too many, and when a loss counts as exploded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vitscope.train.course import Course
from vitscope.train.watch import MOST_HIGH_STEPS, Watch, WentWrongError, is_bad

CHANCE = math.log(10)


def row(loss: float = 2.0, *, skipped: bool = False, norm: float = 1.0, step: int = 7, **more: float) -> dict[str, Any]:
    return {"step": step, "train/loss": loss, "train/grad_norm": norm, "train/skipped": float(skipped), **more}


def watch(most_bad_steps: int = 3) -> tuple[Watch, Course]:
    course = Course()
    return Watch(course, most_bad_steps=most_bad_steps, loss_at_chance=CHANCE), course


BAD = row(math.nan, skipped=True, norm=math.nan)
STEEP = row(2.0, skipped=True, norm=math.inf)


@pytest.mark.parametrize("bad", [BAD, STEEP])
def test_three_in_a_row_are_too_many(bad: dict[str, Any]) -> None:
    watching, course = watch()
    watching.see(bad)
    watching.see(bad)
    with pytest.raises(WentWrongError, match=r"gradient norm (nan|inf) at step 7, 3 steps in a row"):
        watching.see(bad)
    assert (course.skipped_steps, course.bad_in_a_row) == (3, 3)


def test_a_good_step_between_begins_the_count_anew() -> None:
    watching, course = watch()
    for _ in range(5):
        watching.see(BAD)
        watching.see(STEEP)
        watching.see(row())
    assert (course.skipped_steps, course.bad_in_a_row) == (10, 0)


def test_the_number_that_is_too_many_can_be_set() -> None:
    watching, _ = watch(most_bad_steps=1)
    with pytest.raises(WentWrongError):
        watching.see(BAD)


def test_counting_goes_on_in_a_resumed_course() -> None:
    first, course = watch()
    first.see(BAD)
    first.see(BAD)
    resumed = Course()
    resumed.load(course.to_dict())
    with pytest.raises(WentWrongError):
        Watch(resumed, most_bad_steps=3, loss_at_chance=CHANCE).see(BAD)


def test_what_the_loss_scale_of_fp16_answers_is_not_bad() -> None:
    overflow = {**STEEP, "train/loss_scale": 32768.0}
    watching, course = watch()
    for _ in range(10):
        watching.see(overflow)
    assert (course.skipped_steps, course.bad_in_a_row) == (0, 0)
    assert not is_bad(overflow)
    assert is_bad({**STEEP, "train/loss_scale": 1.0})  # there is nothing left to lower
    assert is_bad({**BAD, "train/loss_scale": 32768.0})  # the loss itself: no scale mends that
    assert not is_bad(row())


def test_a_loss_that_stays_above_three_times_its_beginning() -> None:
    watching, course = watch()
    watching.see(row(2.5))
    limit = 3 * 2.5
    for _ in range(MOST_HIGH_STEPS - 1):
        watching.see(row(limit + 0.1))
    watching.see(row(limit - 0.1))  # fell again in time
    for _ in range(MOST_HIGH_STEPS - 1):
        watching.see(row(limit + 0.1))
    with pytest.raises(WentWrongError, match=r"above 7.5 for 10 steps and is 7.6 at step 7; it began at 2.5"):
        watching.see(row(limit + 0.1))
    assert course.skipped_steps == 0


def test_a_lucky_beginning_is_not_held_against_a_run() -> None:
    """Fine-tuning begins with a small loss; up to three times chance nothing has exploded."""
    watching, _ = watch()
    watching.see(row(0.01))
    for _ in range(50):
        watching.see(row(3 * CHANCE - 0.01))
    for _ in range(MOST_HIGH_STEPS - 1):
        watching.see(row(3 * CHANCE + 0.01))
    with pytest.raises(WentWrongError):
        watching.see(row(3 * CHANCE + 0.01))


def test_a_bad_first_step_is_not_the_beginning() -> None:
    watching, course = watch()
    watching.see(BAD)
    assert course.first_loss is None
    watching.see({**row(math.inf, skipped=True), "train/loss_scale": 4.0})
    assert course.first_loss is None
    watching.see(row(2.4))
    assert course.first_loss == 2.4


def test_the_first_of_the_steps_that_go_wrong_is_remembered() -> None:
    """What was saved just before it is not to be trusted."""
    watching, course = watch()
    found = []
    for step, seen in enumerate((row(), BAD, row(99.0), BAD, row(), row(99.0), row(99.0), row(), BAD, BAD), start=1):
        watching.see({**seen, "step": step})
        found.append(course.trouble_since)
        assert course.is_in_trouble == (course.trouble_since is not None)
    assert found == [None, 2, 2, 2, None, 6, 6, None, 9, 9]
    with pytest.raises(WentWrongError):
        watching.see({**BAD, "step": 11})
    assert course.trouble_since == 9
    first, course = watch(most_bad_steps=1)
    with pytest.raises(WentWrongError):
        first.see({**BAD, "step": 5})
    assert course.trouble_since == 5
