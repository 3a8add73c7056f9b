"""Whether the model can learn 32 pictures by heart. If not, the implementation is wrong: no setting mends it."""

from __future__ import annotations

from collections.abc import Sequence

from vitscope.doctor.experiments.overfit import Attempt, overfit, random_batch
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.training import (
    GUIDE_OVERFIT_LRS,
    GUIDE_OVERFIT_STEPS,
    LARGE_MODEL,
    OVERFIT_GOAL,
    OVERFIT_LRS,
    OVERFIT_LRS_OF_LARGE,
    OVERFIT_PASSED,
    OVERFIT_PASSED_STEPS,
    OVERFIT_PICTURES,
    OVERFIT_STEPS,
)

GUIDE = "guide_overfit"
"""The one model for which a fixed learning rate is asked."""


def one_batch(patient: Patient) -> Seen:
    """Passed: all 32 right at one rung of the ladder. `check_up_passed` is the short form: more than 95 % within 100
    steps."""
    _, labels = random_batch(patient, OVERFIT_PICTURES)
    if len(labels) < 2 or len(labels.unique()) < 2:
        return Seen(left_out="one_class_to_overfit")
    if int(labels.min()) < 0 or int(labels.max()) >= patient.num_classes:
        return Seen(left_out="labels_do_not_fit_outputs")
    is_guide = getattr(getattr(patient.settings, "model", None), "name", None) == GUIDE
    attempts = overfit(
        patient,
        lrs=GUIDE_OVERFIT_LRS if is_guide else _ladder(patient),
        steps=GUIDE_OVERFIT_STEPS if is_guide else OVERFIT_STEPS,
        goal=OVERFIT_GOAL,
        pictures=OVERFIT_PICTURES,
        gives_up=not is_guide,
    )
    best = max(attempts, key=lambda one: one.best)
    soon = [step for one in attempts if (step := one.first_above(OVERFIT_PASSED)) is not None]
    numbers = {"accuracy": best.best, "lr": best.lr, "steps": best.steps, "pictures": len(labels)}
    seen = Seen(
        measured={
            **numbers,
            "check_up_passed": bool(soon) and min(soon) <= OVERFIT_PASSED_STEPS,
            "tried": {f"{one.lr:g}": one.best for one in attempts},
        },
        picture=_picture(attempts),
    )
    if best.best >= OVERFIT_GOAL:
        return seen
    if any(one.was_cut_short for one in attempts):
        seen.left_out = "overfit_had_no_time"
        return seen
    numbers |= {"lrs": ", ".join(f"{one.lr:g}" for one in attempts)}
    if best.best >= OVERFIT_PASSED and not is_guide:
        seen.notes.append(Note("almost_by_heart", numbers))
        return seen
    numbers |= {"first_loss": best.losses[0], "last_loss": min(best.losses)}
    sure = 0.9 if best.best < 0.8 else 0.7
    seen.findings.append(Finding("cannot_overfit", sure, numbers, picture=seen.picture, ends=True))
    return seen


def _ladder(patient: Patient) -> Sequence[float]:
    size = sum(parameter.numel() for parameter in patient.model.parameters())
    return OVERFIT_LRS_OF_LARGE if size >= LARGE_MODEL else OVERFIT_LRS


def _picture(attempts: list[Attempt]) -> Picture:
    lines = [Line(f"lr {one.lr:g}", list(range(one.steps)), list(one.accuracies)) for one in attempts]
    return Picture("One batch learnt by heart", "step", "accuracy", lines, level=1.0)
