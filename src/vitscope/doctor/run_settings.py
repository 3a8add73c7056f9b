"""What a run's settings say by their numbers alone, where its curve shows that little was learnt.

The rules are those of the settings' own examination, so that both say the same of one set-up; what has to be measured
on the model or its pictures, only that one can tell. Of a run that learns well nothing is said: it bears its settings.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from vitscope.core.run_view import RunView
from vitscope.doctor.curve import judge_curve
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.run_curve import curve_of, is_early
from vitscope.doctor.run_record import lr_at, section
from vitscope.doctor.setting_numbers import (
    decay_numbers,
    head_changes,
    head_numbers,
    head_sure,
    is_eating,
    patch_numbers,
)
from vitscope.doctor.thresholds.runs import FAR_PIXELS, NOT_ALONE_SURE
from vitscope.doctor.thresholds.settings import COARSE_TOKENS, HEAVY_DROP, MOST_DROP


def settings_check(run: RunView) -> Seen:
    if run.config is None or not run.rows:
        return Seen(left_out="nothing_recorded")
    verdict = judge_curve(curve_of(run))
    seen = Seen(measured={"verdict": verdict.kind})
    if verdict.kind == "not enough data":
        seen.left_out = "too_few_epochs"
    elif verdict.kind in ("plateaued", "underfitting") and not is_early(run, verdict):
        found = (_normalisation(run), _decay(run), _patches(run), _heads(run), _drops(run))
        seen.findings += [one for one in found if one is not None]
        if verdict.kind == "plateaued":
            seen.findings = [_not_alone(one) for one in seen.findings]
    return seen


def _not_alone(found: Finding) -> Finding:
    """Coarse patches and narrow heads cost accuracy, but such a network learns something: where nothing was learnt
    there is more to find, and the curve comes first."""
    if found.cause not in ("patch_too_coarse", "head_dim_too_small"):
        return found
    return dataclasses.replace(found, confidence=min(found.confidence, NOT_ALONE_SURE))


def _normalisation(run: RunView) -> Finding | None:
    """By its numbers: what they make of pixels from 0 to 1."""
    data = section(run, "data")
    given = zip(_numbers(data.get("mean")), _numbers(data.get("std")), strict=False)
    ends = [(end - mean) / std for mean, std in given if std > 0 for end in (0.0, 1.0)]
    if not ends or max(map(abs, ends)) <= FAR_PIXELS:
        return None
    numbers = {"run_low": min(ends), "run_high": max(ends)}
    return Finding("normalisation_wrong", 0.86, numbers, (Change("data.mean", None), Change("data.std", None)))


def _decay(run: RunView) -> Finding | None:
    optim = section(run, "optim")
    decay, name = optim.get("weight_decay"), str(optim.get("name"))
    if not isinstance(decay, int | float):
        return None  # the optimiser's usual one
    numbers = decay_numbers(float(decay), lr_at(run, None), name)
    changes = (Change("optim.weight_decay", numbers["usual"]),)
    return Finding("weight_decay_too_high", 0.88, numbers, changes) if is_eating(numbers) else None


def _patches(run: RunView) -> Finding | None:
    model = section(run, "model")
    img, patch = _pair(model.get("img_size")), _pair(model.get("patch_size"))
    if img is None or patch is None or not isinstance(model.get("num_heads"), int):
        return None
    numbers = patch_numbers(img, patch)
    if numbers["tokens"] > COARSE_TOKENS:
        return None
    changes = (Change("model.patch_size", numbers["better"]),) if numbers["better"] < patch[0] else ()
    return Finding("patch_too_coarse", 0.4 if _is_pretrained(run) else 0.85, numbers, changes)


def _heads(run: RunView) -> Finding | None:
    model = section(run, "model")
    width, heads = model.get("embed_dim"), model.get("num_heads")
    if not isinstance(width, int) or not isinstance(heads, int) or heads < 1 or _is_pretrained(run):
        return None
    dim = model.get("head_dim")
    numbers = head_numbers(width, heads, dim if isinstance(dim, int) else None)
    sure = head_sure(numbers["dim"])
    return None if sure is None else Finding("head_dim_too_small", sure, numbers, head_changes(numbers))


def _drops(run: RunView) -> Finding | None:
    rate = section(run, "model").get("drop_rate")
    if not isinstance(rate, int | float) or rate < HEAVY_DROP:
        return None
    sure = 0.9 if rate >= MOST_DROP else 0.6
    return Finding("dropout_too_high", sure, {"run_rate": float(rate)}, (Change("model.drop_rate", 0.1),))


def _is_pretrained(run: RunView) -> bool:
    return section(run, "checkpoint").get("init_from") is not None


def _numbers(given: Any) -> list[float]:
    values = given if isinstance(given, list | tuple) else []
    return [float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool)]


def _pair(size: Any) -> tuple[int, int] | None:
    sides: list[Any] = list(size) if isinstance(size, list | tuple) else [size, size]
    are_sides = len(sides) == 2 and all(isinstance(one, int) and one > 0 for one in sides)
    return (sides[0], sides[1]) if are_sides else None
