"""The learning curve of a run, as its folder has it, and what it shows."""

from __future__ import annotations

import math
import statistics
from typing import Any

from vitscope.core.run_view import RunView
from vitscope.doctor.curve import Curve, CurveVerdict, judge_curve
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.run_record import config_file, go_on, lower_lr, lower_rate, lr_at, section
from vitscope.doctor.thresholds.curves import CURVE_FEWEST, CURVE_LATE, NEARLY_ALL


def curve_check(run: RunView) -> Seen:
    curve = curve_of(run)
    verdict = judge_curve(curve)
    measured: dict[str, Any] = {
        "verdict": verdict.kind,
        "began": verdict.began,
        "best_epoch": verdict.best,
        "epochs": len(curve.epochs),
        "severe": verdict.is_severe,
        "noise": verdict.noise,
        "level": verdict.level,
    }
    seen = Seen(measured=measured, picture=_picture(curve, verdict))
    if verdict.kind == "not enough data":
        seen.left_out = "too_few_epochs"
        is_short = len(curve.epochs) < CURVE_FEWEST
        told = {"epochs": len(curve.epochs), "least": CURVE_FEWEST, "config": config_file(run)}
        seen.notes.append(Note("too_short_to_tell" if is_short else "too_noisy_to_tell", told))
        return seen
    last = curve.epochs[-1]
    has_more = not curve.train_accuracy or (curve.train_accuracy[-1] or 0.0) < NEARLY_ALL
    if verdict.falls_at_end and has_more and verdict.kind in ("healthy", "underfitting"):
        seen.notes.append(Note("still_improving", {"epoch": last}))
    elif verdict.kind == "overfitting" and verdict.is_rising:
        seen.notes.append(Note("stop_earlier", {"best": verdict.best, "epoch": last}))
    elif verdict.kind == "healthy" and verdict.is_overconfident:
        seen.notes.append(Note("overconfident", {"best": verdict.best}))
    if verdict.kind != "healthy" and not is_early(run, verdict):
        seen.findings.append(_finding(run, curve, verdict, seen.picture))
    return seen


def _finding(run: RunView, curve: Curve, verdict: CurveVerdict, picture: Picture | None) -> Finding:
    cause = {"oscillating": "loss_oscillates", "diverged": "loss_diverged"}.get(verdict.kind, verdict.kind)
    confidence = {"diverged": 0.95, "overfitting": 0.9 if verdict.is_severe else 0.7, "plateaued": 0.85}
    changes = {
        "oscillating": lower_lr(run, is_lost=False),
        "diverged": lower_lr(run),
        "overfitting": (Change("loop.early_stop", True),) if verdict.is_rising else (),
    }
    train = [loss for loss in curve.train_loss if math.isfinite(loss)]
    val = [loss for loss in curve.val_loss if loss is not None and math.isfinite(loss)]
    numbers: dict[str, Any] = {
        "began": 1.0 if verdict.began is None else verdict.began,
        "train_end": _end(train),
        "val_end": _end(val),
        "noise": verdict.noise,
        "level": verdict.level,
        "swing": verdict.swing,
        "lr": lr_at(run, None),
        "lower": lower_rate(run),
        "config": config_file(run),
    }
    if verdict.kind == "underfitting" and _would_go_on(verdict, curve):
        numbers |= {"train_first": train[0], "epochs": curve.epochs[-1], **_further(run, curve)}
    if verdict.kind == "diverged":
        numbers |= _lost(curve, train, val, verdict)
    if verdict.is_rising:
        numbers |= {"best": verdict.best, "val_best": min(val), "rise": verdict.rise}
    return Finding(cause, confidence.get(verdict.kind, 0.7), numbers, changes.get(verdict.kind, ()), picture=picture)


def _lost(curve: Curve, train: list[float], val: list[float], verdict: CurveVerdict) -> dict[str, Any]:
    """What shows it: epochs that are not finite, or where the loss began and came to."""
    known = zip(curve.epochs, curve.train_loss, curve.val_loss, strict=True)
    bad = [epoch for epoch, *losses in known if not all(loss is None or math.isfinite(loss) for loss in losses)]
    if verdict.began in bad:
        return {"bad": len(bad), "of": len(curve.epochs)}
    if verdict.is_of_validation:
        return {"val_first": val[0]}
    return {"train_first": train[0], "train_least": min(train)}


def is_early(run: RunView, verdict: CurveVerdict) -> bool:
    """What is at work and still falls has not ended high: it has not ended."""
    return run.is_alive and verdict.kind == "underfitting" and verdict.is_falling


def _would_go_on(verdict: CurveVerdict, curve: Curve) -> bool:
    """It fell to the end, or nearly, where schedules end too. What was flat for long gains nothing by more of it."""
    return verdict.has_learnt and (verdict.began is None or verdict.began > curve.epochs[-1] * CURVE_LATE)


def _further(run: RunView, curve: Curve) -> dict[str, Any]:
    """How: as planned, where it ended before; else twice as long."""
    planned, done = section(run, "loop").get("epochs"), curve.epochs[-1]
    if not isinstance(planned, int) or planned <= done:
        return {"longer": 2 * done}
    if run.state == "finished" or run.is_alive:
        return {}  # ended by early stopping, or not ended yet
    return {"planned": planned, "again": go_on(run)}


def _picture(curve: Curve, verdict: CurveVerdict) -> Picture | None:
    known = [(epoch, loss) for epoch, loss in zip(curve.epochs, curve.val_loss, strict=True) if loss is not None]
    lines = [Line("train", list(curve.epochs), list(curve.train_loss))]
    lines += [Line("validation", [epoch for epoch, _ in known], [loss for _, loss in known])] if known else []
    return Picture("Learning curves", "epoch", "loss", lines, mark=verdict.began) if len(curve.epochs) > 1 else None


def _end(losses: list[float]) -> float:
    return statistics.median(losses[-max(3, len(losses) // 4) :] or [math.nan])


def curve_of(run: RunView) -> Curve:
    """Every epoch that stands; where it was not evaluated, validation is missing."""
    rows: list[dict[str, Any]] = []
    for row in run.rows:
        if _is_number(row.get("train/epoch_loss")):
            while rows and rows[-1]["step"] >= row["step"]:
                rows.pop()  # training went back, and has taken these steps anew
            rows.append(row)
    return Curve(
        [float(row.get("epoch", place)) for place, row in enumerate(rows, start=1)],
        [float(row["train/epoch_loss"]) for row in rows],
        [_number(row, "val/loss") for row in rows],
        train_accuracy=[_number(row, "train/epoch_accuracy") for row in rows],
        val_accuracy=[_number(row, "val/accuracy") for row in rows],
        loss_at_chance=chance_of(run),
        train_error=_error(run, rows),
    )


def _error(run: RunView, rows: list[dict[str, Any]]) -> float | None:
    """How far an epoch's mean is off by chance, as a share of it: from its steps, whose spread has the fall within the
    epoch in it and so is rather too large."""
    steps = dict(zip(*run.column("train/loss"), strict=True))
    shares: list[float] = []
    for before, row in zip([None, *rows], rows, strict=False):
        first = 0 if before is None else before["step"]
        losses = [steps[step] for step in range(first + 1, row["step"] + 1) if step in steps]
        losses = [loss for loss in losses if math.isfinite(loss)]
        if len(losses) >= 2 and statistics.fmean(losses) > 0:
            shares.append(statistics.stdev(losses) / math.sqrt(len(losses)) / statistics.fmean(losses))
    return statistics.median(shares) if len(shares) > len(rows) / 2 else None


def chance_of(run: RunView) -> float | None:
    """ln(classes), where the settings say how many there are."""
    model = (run.config or {}).get("model")
    fields = [model, *(part for part in model.values() if isinstance(part, dict))] if isinstance(model, dict) else []
    classes = next((one["num_classes"] for one in fields if isinstance(one.get("num_classes"), int)), None)
    return math.log(classes) if classes is not None and classes > 1 else None


def _number(row: dict[str, Any], key: str) -> float | None:
    return float(row[key]) if _is_number(row.get(key)) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
