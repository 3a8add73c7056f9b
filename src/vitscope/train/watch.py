"""Sees from the rows of the steps that training goes wrong: values that are not finite, or a loss that has exploded."""

from __future__ import annotations

import math
from typing import Any

from vitscope.train.course import Course

HIGH = 3.0
"""A loss this many times the one at the start (or at chance, if larger) has nothing to do with learning any more."""
MOST_HIGH_STEPS = 10


class WentWrongError(Exception):
    """Training cannot go on from where it is. The loop answers by going back once, then by giving up."""


class Watch:
    """Judges rows in order. Counts are kept in the course, so that a resumed run goes on counting."""

    def __init__(self, course: Course, *, most_bad_steps: int, loss_at_chance: float) -> None:
        self.course = course
        self.most_bad_steps = most_bad_steps
        self.loss_at_chance = loss_at_chance

    def see(self, row: dict[str, Any]) -> None:
        """Raises when it is one bad step too many, or the loss has been too high for too long."""
        course, was_in_trouble = self.course, self.course.is_in_trouble
        try:
            self._judge(row)
        finally:
            if not course.is_in_trouble:
                course.trouble_since = None
            elif not was_in_trouble:
                course.trouble_since = row["step"]

    def _judge(self, row: dict[str, Any]) -> None:
        course, loss = self.course, row["train/loss"]
        if not is_bad(row):
            course.bad_in_a_row = 0
            self._see_height(row)
            return
        course.skipped_steps += 1
        course.bad_in_a_row += 1
        if course.bad_in_a_row >= self.most_bad_steps:
            norm = row["train/grad_norm"]
            raise WentWrongError(
                f"loss {loss:g} and gradient norm {norm:g} at step {row['step']}, "
                f"{course.bad_in_a_row} steps in a row that are not finite"
            )

    def _see_height(self, row: dict[str, Any]) -> None:
        course, loss = self.course, float(row["train/loss"])
        if not math.isfinite(loss):  # an overflow that fp16's loss scale answers
            return
        if course.first_loss is None:
            course.first_loss = loss
        limit = HIGH * max(course.first_loss, self.loss_at_chance)
        course.high_in_a_row = course.high_in_a_row + 1 if loss > limit else 0
        if course.high_in_a_row >= MOST_HIGH_STEPS:
            raise WentWrongError(
                f"the loss has been above {limit:.3g} for {MOST_HIGH_STEPS} steps and is {loss:.3g} at step "
                f"{row['step']}; it began at {course.first_loss:.3g}"
            )


def is_bad(row: dict[str, Any]) -> bool:
    """A skipped step, except one in which fp16's gradients overflowed and the loss scale can still be lowered."""
    if not row["train/skipped"]:
        return False
    can_scale_down = row.get("train/loss_scale", 0.0) > 1.0
    return not (can_scale_down and math.isfinite(row["train/loss"]))
