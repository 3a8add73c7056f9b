"""What a run's record says of its steps, its gradients and its pictures."""

from __future__ import annotations

import json
import math
import shlex
import statistics
from pathlib import Path
from typing import Any

from vitscope.core.run_layout import BAD_SAMPLES, CONFIG, DIAGNOSTICS
from vitscope.core.run_view import RunView
from vitscope.core.strict_json import decode
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.monitor import GRADIENT_EXPLODES, GRADIENT_VANISHES
from vitscope.doctor.thresholds.runs import BAD_PICTURES_SHARE, RUN_LAST_SHARE, SKIPPED_SHARE
from vitscope.train.guide import FINE_TUNING, SGD_FACTOR, START_LR


def divergence_check(run: RunView) -> Seen:
    if run.state == "diverged":
        # The status may be of the step that training went back to.
        step = max(int((run.status or {}).get("step") or 0), run.rows[-1]["step"] if run.rows else 0)
        numbers = {"step": step, "lr": lr_at(run, step), "lower": lower_rate(run), "config": config_file(run)}
        return Seen(measured={"state": run.state}, findings=[Finding("loss_diverged", 0.97, numbers, lower_lr(run))])
    seen = Seen(measured={"state": run.state}, left_out=None if run.rows else "nothing_recorded")
    if run.state == "failed":
        lines = str((run.status or {}).get("error") or "?").splitlines()
        seen.notes.append(Note("run_failed", {"what": lines[0]}))
    elif run.state in ("starting", "running") and not run.is_alive:
        seen.notes.append(Note("run_killed", {"again": go_on(run)}))
    return seen


def steps_check(run: RunView) -> Seen:
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


def gradient_norms_check(run: RunView) -> Seen:
    """By medians over many steps: a single large one is what clipping is for."""
    steps, norms = run.column("train/grad_norm")
    known = [(step, norm) for step, norm in zip(steps, norms, strict=True) if math.isfinite(norm)]
    if len(known) < 10:
        return Seen(left_out="nothing_recorded")
    steps, norms = [step for step, _ in known], [norm for _, norm in known]
    count = max(10, int(len(norms) * RUN_LAST_SHARE))
    first, last = statistics.median(norms[:count]), statistics.median(norms[-count:])
    loss = loss_at_end(run, count)
    numbers = {"count": count, "norm": last, "before": first, "loss": loss, "config": config_file(run)}
    measured = {"first_norm": first, "last_norm": last, "largest_norm": max(norms)}
    picture = Picture("Gradient norm", "step", "norm", [Line("norm", steps, norms)], log_y=True)
    seen = Seen(measured=measured, picture=picture)
    if last > GRADIENT_EXPLODES:
        seen.findings.append(Finding("run_gradients_explode", 0.75, numbers, lower_lr(run), picture=picture))
    elif last < GRADIENT_VANISHES and has_much_to_learn(run, count):
        seen.findings.append(Finding("run_gradients_vanish", 0.85, numbers, picture=picture))
    return seen


def pictures_check(run: RunView) -> Seen:
    bad = {str(one.get("where")): one for one in json_lines(run.path / BAD_SAMPLES)}
    if not bad:
        return Seen(measured={"pictures": 0}) if run.rows else Seen(left_out="nothing_recorded")
    first = next(iter(bad.values()))
    numbers = {"count": len(bad), "where": str(first.get("where")), "reason": str(first.get("reason"))}
    batch = section(run, "data").get("batch_size")
    per_epoch = [row["step"] for row in run.rows if row.get("epoch") == 1]
    pictures = max(per_epoch, default=0) * batch if isinstance(batch, int) else 0
    confidence = 0.8 if pictures and len(bad) > BAD_PICTURES_SHARE * pictures else 0.3
    return Seen(measured={"pictures": len(bad)}, findings=[Finding("pictures_left_out", confidence, numbers)])


def has_much_to_learn(run: RunView, count: int) -> bool:
    """Whether the loss is still more than half of the first: who has learnt all has no gradients either."""
    losses = [loss for loss in run.column("train/loss")[1] if math.isfinite(loss)]
    return bool(losses) and loss_at_end(run, count) > 0.5 * losses[0]


def loss_at_end(run: RunView, count: int) -> float:
    losses = [loss for loss in run.column("train/loss")[1] if math.isfinite(loss)]
    return statistics.median(losses[-count:] or [math.nan])


def lr_at(run: RunView, step: int | None) -> float:
    """The rate of that step, or the highest of the run, in steps too that were taken anew at another; that of the
    settings where no step has one."""
    steps, rates = run.column("train/lr")
    if not rates:
        lr = section(run, "optim").get("lr")
        return float(lr) if isinstance(lr, int | float) else math.nan
    if step is None:
        return max(float(row["train/lr"]) for row in run.rows if _is_finite(row.get("train/lr")))
    return next((rate for at, rate in zip(reversed(steps), reversed(rates), strict=True) if at <= step), rates[-1])


def config_file(run: RunView) -> str:
    """The run's settings as they are typed after a command; a word for them where the run has none."""
    path = run.path / CONFIG
    return shlex.quote(str(path)) if path.is_file() else CONFIG


def go_on(run: RunView) -> str:
    return f"vitscope train --resume --out {shlex.quote(str(run.path))}"


def lower_rate(run: RunView, rate: float | None = None) -> float:
    """A first guess where `rate` (by default what is set, or was highest) is far too high: a tenth of it, and no more
    than one usually begins with. Of what is set, as that is typed: it may be scaled, and need not be reached."""
    optim = section(run, "optim")
    if rate is None:
        lr = optim.get("lr")
        rate = float(lr) if isinstance(lr, int | float) else lr_at(run, None)
    name = str(optim.get("name"))
    if section(run, "checkpoint").get("init_from") is not None:
        start = FINE_TUNING.get(name, FINE_TUNING["adamw"]).lr
    else:
        start = START_LR * (SGD_FACTOR if name == "sgd" else 1.0)
    return float(f"{min(rate / 10, start):.3g}")


def lower_lr(run: RunView, *, is_lost: bool = True) -> tuple[Change, ...]:
    """Such a rate, and gradients clipped; nothing where the settings are not known. What is not lost swings about what
    it learns: there a tenth is enough."""
    optim = section(run, "optim")
    if not isinstance(optim.get("lr"), int | float):
        return ()
    rates = {f"optim.{name}": optim.get(name) for name in ("lr", "muon_lr")}
    lower = [
        Change(name, lower_rate(run, rate) if is_lost else float(f"{rate / 10:.3g}"))
        for name, rate in rates.items()
        if isinstance(rate, int | float)
    ]
    clip = [] if optim.get("clip_norm") or optim.get("clip_value") else [Change("optim.clip_norm", 1.0)]
    return (*lower, *clip)


def json_lines(path: Path) -> list[dict[str, Any]]:
    """What can be read of it: a run at work may be in the middle of a line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            one = decode(json.loads(line))
        except ValueError:
            continue
        found += [one] if isinstance(one, dict) else []
    return found


def section(run: RunView, name: str) -> dict[str, Any]:
    found = (run.config or {}).get(name)
    return found if isinstance(found, dict) else {}


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
