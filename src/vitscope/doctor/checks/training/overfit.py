"""Whether the model can learn 32 pictures by heart. If not, the implementation is wrong: no setting mends it."""

from __future__ import annotations

from vitscope.doctor.experiments.overfit import Attempt, overfit
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds import (
    GUIDE_OVERFIT_LRS,
    GUIDE_OVERFIT_STEPS,
    OVERFIT_GOAL,
    OVERFIT_LRS,
    OVERFIT_PASSED,
    OVERFIT_PASSED_STEPS,
    OVERFIT_PICTURES,
    OVERFIT_STEPS,
)

GUIDE = "guide_overfit"
"""The one model for which a fixed learning rate is asked."""


def one_batch(patient: Patient) -> Seen:
    """Passed: all 32 right, or, in the short form, more than 95 % within 100 steps."""
    _, labels = patient.sample(OVERFIT_PICTURES)
    if len(labels) < 2 or len(labels.unique()) < 2:
        return Seen(left_out="one_class_to_overfit")
    if int(labels.min()) < 0 or int(labels.max()) >= patient.num_classes:
        return Seen(left_out="labels_do_not_fit_outputs")
    is_guide = getattr(getattr(patient.settings, "model", None), "name", None) == GUIDE
    attempts = overfit(
        patient,
        lrs=GUIDE_OVERFIT_LRS if is_guide else OVERFIT_LRS,
        steps=GUIDE_OVERFIT_STEPS if is_guide else OVERFIT_STEPS,
        goal=OVERFIT_GOAL if is_guide else OVERFIT_PASSED,
        pictures=OVERFIT_PICTURES,
    )
    best = max(attempts, key=lambda one: one.best)
    seen = Seen(
        measured={
            "accuracy": best.best,
            "lr": best.lr,
            "steps": best.steps,
            "pictures": len(labels),
            "check_up_passed": best.best > OVERFIT_PASSED - 1e-9 and best.steps <= OVERFIT_PASSED_STEPS,
            "tried": {f"{one.lr:g}": one.best for one in attempts},
        },
        picture=_picture(attempts),
    )
    passed = best.best >= (OVERFIT_GOAL if is_guide else OVERFIT_PASSED)
    if passed:
        return seen
    if any(one.was_cut_short for one in attempts):
        return Seen(measured=seen.measured, picture=seen.picture, left_out="overfit_had_no_time")
    seen.findings.append(
        Finding(
            "cannot_overfit",
            0.9 if best.best < 0.8 else 0.7,
            {
                "accuracy": best.best,
                "lr": best.lr,
                "steps": best.steps,
                "pictures": len(labels),
                "first_loss": best.losses[0],
                "last_loss": min(best.losses),
                "lrs": ", ".join(f"{one.lr:g}" for one in attempts),
            },
            picture=seen.picture,
            ends=True,
        )
    )
    return seen


def _picture(attempts: list[Attempt]) -> Picture:
    lines = [Line(f"lr {one.lr:g}", list(range(one.steps)), list(one.accuracies)) for one in attempts]
    return Picture("One batch learnt by heart", "step", "accuracy", lines, level=1.0)
