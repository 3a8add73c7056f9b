"""The door for runs: what a run folder itself tells, after or during training; no model is needed."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from vitscope.core.run_folder import RunFolder
from vitscope.core.run_layout import BAD_SAMPLES, DIAGNOSTICS
from vitscope.core.run_view import RunView, read_run
from vitscope.doctor.check import Check
from vitscope.doctor.curve import CurveVerdict, curve_of, judge_curve
from vitscope.doctor.examination import Asked, OnCheck, Report
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds import (
    BAD_PICTURES_SHARE,
    GRADIENT_EXPLODES,
    GRADIENT_VANISHES,
    RUN_LAST_SHARE,
    SKIPPED_SHARE,
)


def examine_run(
    folder: str | os.PathLike[str], *, only: Collection[str] = (), on_check: OnCheck | None = None
) -> Report:
    """Reads only; a run at work is not disturbed."""
    run = read_run(folder)
    subject = {"run": str(run.path), "state": run.state, "alive": run.is_alive, "problems": list(run.problems)}
    report = Report(subject={**subject, "steps": run.rows[-1]["step"] if run.rows else 0})
    questions: tuple[tuple[str, Callable[[RunView], Seen]], ...] = (
        ("steps", _steps),
        ("divergence", _divergence),
        ("curve", _curve),
        ("gradient_norms", _gradients),
        ("pictures_left_out", _left_out),
    )
    for name, ask in questions:
        if only and name not in only:
            continue
        if on_check is not None:
            on_check(name)
        began = time.perf_counter()
        seen = ask(run)
        check = Check(name, "training", lambda patient, seen=seen: seen)
        report.asked.append(Asked(check, time.perf_counter() - began, seen))
    return report


def _divergence(run: RunView) -> Seen:
    if run.state != "diverged":
        return Seen(measured={"state": run.state})
    step = int((run.status or {}).get("step") or (run.rows[-1]["step"] if run.rows else 0))
    numbers = {"where": "step", "began": step, "lr": _lr_at(run, step)}
    return Seen(measured={"state": run.state}, findings=[Finding("loss_diverged", 0.97, numbers)])


def _curve(run: RunView) -> Seen:
    curve = curve_of(run)
    verdict = judge_curve(curve)
    measured: dict[str, Any] = {
        "verdict": verdict.kind,
        "began": verdict.began,
        "best_epoch": verdict.best,
        "epochs": len(curve.epochs),
        "severe": verdict.is_severe,
    }
    epochs = list(curve.epochs)
    lines = [Line("train", epochs, list(curve.train_loss)), Line("validation", epochs, list(curve.val_loss))]
    picture = Picture("Learning curves", "epoch", "loss", lines, mark=verdict.began) if epochs else None
    if verdict.kind == "not enough data":
        return Seen(measured=measured, picture=picture, left_out="too_few_epochs")
    seen = Seen(measured=measured, picture=picture)
    last = epochs[-1]
    if verdict.is_falling and verdict.kind in ("healthy", "underfitting"):
        seen.notes.append(Note("still_improving", {"epoch": last}))
    elif verdict.kind == "overfitting" and verdict.best is not None:
        seen.notes.append(Note("stop_earlier", {"best": verdict.best, "epoch": last}))
    if verdict.kind != "healthy":
        seen.findings.append(_said(run, verdict, list(curve.train_loss), list(curve.val_loss), picture))
    return seen


def _said(
    run: RunView, verdict: CurveVerdict, train: list[float], val: list[float], picture: Picture | None
) -> Finding:
    names = {"oscillating": "loss_oscillates", "diverged": "loss_diverged"}
    confidence = {"diverged": 0.95, "overfitting": 0.9 if verdict.is_severe else 0.7, "plateaued": 0.85}
    few = max(3, len(val) // 4)
    numbers = {
        "began": verdict.began if verdict.began is not None else 1,
        "best": verdict.best,
        "where": "epoch",
        "train_end": statistics.median(train[-few:]),
        "val_end": statistics.median(val[-few:]),
        "val_best": min((loss for loss in val if math.isfinite(loss)), default=math.nan),
        "noise": verdict.noise,
        "level": verdict.level,
        "swing": statistics.median(abs(a - b) for a, b in itertools.pairwise(train)),
        "lr": _lr_at(run, None),
    }
    cause = names.get(verdict.kind, verdict.kind)
    return Finding(cause, confidence.get(verdict.kind, 0.7), numbers, picture=picture)


def _steps(run: RunView) -> Seen:
    """Steps that changed nothing, as the log has them, and what was kept of them."""
    steps, skipped = run.column("train/skipped")
    if not steps:
        return Seen(left_out="nothing_recorded")
    scaled = dict(zip(*run.column("train/loss_scale"), strict=True))
    losses = {row["step"]: row.get("train/loss") for row in run.rows if "train/loss" in row}
    # fp16 looks for its scale by overflowing now and then: that is its way of working, not a fault.
    bad = [
        step
        for step, one in zip(steps, skipped, strict=True)
        if one and not (scaled.get(step, 0.0) > 1.0 and _is_finite(losses.get(step)))
    ]
    captures = sorted((run.path / DIAGNOSTICS).glob("bad-step-*"))
    measured = {"steps": len(steps), "skipped": len(bad), "captures": [str(place) for place in captures]}
    if not bad:
        return Seen(measured=measured)
    numbers = {
        "skipped": len(bad),
        "steps": len(steps),
        "share": len(bad) / len(steps),
        "first": bad[0],
        "captures": len(captures),
        "capture": str(captures[0]) if captures else "CAPTURE",
    }
    in_a_row = len(bad) >= 3 and any(c - a == 2 for a, c in zip(bad, bad[2:], strict=False))
    if not in_a_row and len(bad) / len(steps) < SKIPPED_SHARE:
        return Seen(measured=measured, notes=[Note("some_steps_skipped", numbers)])
    return Seen(measured=measured, findings=[Finding("steps_not_finite", 0.9, numbers)])


def _gradients(run: RunView) -> Seen:
    """By medians over many steps: a single large one is what clipping is for."""
    _, norms = run.column("train/grad_norm")
    norms = [norm for norm in norms if math.isfinite(norm)]
    if len(norms) < 10:
        return Seen(left_out="nothing_recorded")
    count = max(10, int(len(norms) * RUN_LAST_SHARE))
    first, last = statistics.median(norms[:count]), statistics.median(norms[-count:])
    losses = [loss for loss in run.column("train/loss")[1] if math.isfinite(loss)]
    numbers = {"count": count, "norm": last, "before": first, "loss": statistics.median(losses[-count:] or [math.nan])}
    measured = {"first_norm": first, "last_norm": last, "largest_norm": max(norms)}
    picture = Picture("Gradient norm", "step", "norm", [Line("norm", list(range(len(norms))), norms)], log_y=True)
    seen = Seen(measured=measured, picture=picture)
    if last > GRADIENT_EXPLODES:
        seen.findings.append(Finding("run_gradients_explode", 0.75, numbers, picture=picture))
    elif last < GRADIENT_VANISHES and numbers["loss"] > 0.5 * (losses[0] if losses else math.inf):
        seen.findings.append(Finding("run_gradients_vanish", 0.85, numbers, picture=picture))
    return seen


def _left_out(run: RunView) -> Seen:
    path = RunFolder.open(run.path).path / BAD_SAMPLES
    bad = {str(one.get("where")): one for one in _json_lines(path)}
    if not bad:
        return Seen(measured={"pictures": 0})
    first = next(iter(bad.values()))
    numbers = {"count": len(bad), "where": str(first.get("where")), "reason": str(first.get("reason"))}
    batch = ((run.config or {}).get("data") or {}).get("batch_size")
    per_epoch = [row["step"] for row in run.rows if row.get("epoch") == 1]
    pictures = max(per_epoch, default=0) * batch if isinstance(batch, int) else 0
    confidence = 0.8 if pictures and len(bad) > BAD_PICTURES_SHARE * pictures else 0.3
    return Seen(measured={"pictures": len(bad)}, findings=[Finding("pictures_left_out", confidence, numbers)])


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """What can be read of it: a run at work may be in the middle of a line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        found += [one] if isinstance(one, dict) else []
    return found


def _lr_at(run: RunView, step: int | None) -> float:
    """The rate of that step, or the highest of the run."""
    steps, rates = run.column("train/lr")
    if not rates:
        return math.nan
    if step is None:
        return max(rates)
    return next((rate for at, rate in zip(reversed(steps), reversed(rates), strict=True) if at <= step), rates[-1])


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
