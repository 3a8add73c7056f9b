"""What the monitor wrote of every layer (`vitscope train --monitor`): which one leaves the healthy range, by name."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from vitscope.core.run_layout import DIAGNOSTICS
from vitscope.core.run_view import RunView
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.monitor_rows import FILE, warnings
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.run_record import config_file, has_much_to_learn, json_lines, loss_at_end, lower_lr, lr_at
from vitscope.doctor.thresholds.monitor import GRADIENT_EXPLODES, GRADIENT_VANISHES, LAYER_GRADIENT_HIGH, UPDATE_HIGH
from vitscope.doctor.thresholds.runs import LOOKS_NEEDED, RUN_GROWTH, RUN_UPDATES_HIGH

MOST_SHOWN = 16
"""Layers in a picture: those with the largest numbers."""


def layers_check(run: RunView) -> Seen:
    """Gradients by medians over the later half of the looks, updates over all, as rates fall towards the end: what is
    large once is what clipping is for. What is not finite once is told, and so is what threw the layers out of range
    early, if the run has learnt nothing since."""
    rows = _standing(run)
    if not rows:
        return Seen(left_out="not_monitored")
    warned = Counter(kind for row in rows for kind, _ in warnings(row))
    seen = Seen(measured={"looks": len(rows), "warnings": dict(warned.most_common(50))})
    _not_finite(rows, seen)
    _thrown_out(run, rows, seen)
    if len(rows) < LOOKS_NEEDED:
        seen.left_out = None if seen.findings else "too_few_looks"
        return seen
    later = rows[len(rows) // 2 :]
    _gradients(run, later, _medians(later, "gradient"), seen)
    _updates(run, _medians(rows, "update"), seen)
    return seen


def _not_finite(rows: Sequence[dict[str, Any]], seen: Seen) -> None:
    for row in rows:
        bad = [layer for layer, size in row["activation"].items() if not math.isfinite(size)]
        if bad:
            seen.findings.append(
                Finding("layer_not_finite", 0.9, {"layer": bad[0], "at": row["step"], "count": len(bad)})
            )
            return


def _thrown_out(run: RunView, rows: Sequence[dict[str, Any]], seen: Seen) -> None:
    """A few large steps at the beginning can make values so large that later ones, however small a share of the weights
    they move, mend nothing."""
    looks = [row for row in rows if row["update"]]
    if not looks or not has_much_to_learn(run, 10):
        return
    worst = max(looks, key=lambda row: max(row["update"].values()))
    update = worst["update"]
    layer = max(update, key=update.__getitem__)
    middle = statistics.median(update.values())
    numbers = {"at": worst["step"], "layer": layer, "ratio": update[layer], "lr": lr_at(run, None)}
    numbers["config"] = config_file(run)
    first = rows[0]["activation"]
    largest = {name: max(row["activation"].get(name, 0.0) for row in rows) for name in first}
    growth = {name: largest[name] / max(first[name], 1.0) for name in first if math.isfinite(largest[name])}
    grown = max(growth, key=growth.__getitem__, default=None)
    seen.measured |= {"largest_update": update[layer], "largest_growth": 0.0 if grown is None else growth[grown]}
    if grown is not None and growth[grown] > RUN_GROWTH and update[layer] > UPDATE_HIGH:
        numbers |= {"grown": grown, "first": first[grown], "largest": largest[grown]}
        known = [row for row in rows if grown in row["activation"]]
        line = Line(grown, [row["step"] for row in known], [row["activation"][grown] for row in known])
        picture = Picture(f"Largest value of {grown}", "step", "value", [line], log_y=True, mark=worst["step"])
        seen.findings.append(Finding("run_updates_large", 0.87, numbers, lower_lr(run), picture=picture))
    elif middle > RUN_UPDATES_HIGH:
        picture = _bars("Update of each layer, as a share of its size", update, UPDATE_HIGH)
        numbers["middle"] = middle
        seen.findings.append(Finding("run_updates_large", 0.6, numbers, lower_lr(run), picture=picture))


def _gradients(run: RunView, later: Sequence[dict[str, Any]], medians: dict[str, float], seen: Seen) -> None:
    total = statistics.median(row["gradient_total"] for row in later)
    if not medians:
        return
    largest, least = max(medians, key=medians.__getitem__), min(medians, key=medians.__getitem__)
    picture = _bars("Gradient of each layer", medians, LAYER_GRADIENT_HIGH)
    numbers = {"looks": len(later), "norm": total, "loss": loss_at_end(run, len(later)), "config": config_file(run)}
    if not total <= GRADIENT_EXPLODES:
        named = {**numbers, "layer": largest, "of_layer": medians[largest]}
        seen.findings.append(Finding("run_gradients_explode", 0.85, named, lower_lr(run), picture=picture))
    elif total < GRADIENT_VANISHES and has_much_to_learn(run, 10):
        named = {**numbers, "layer": least, "of_layer": medians[least]}
        seen.findings.append(Finding("run_gradients_vanish", 0.9, named, picture=picture))
    elif medians[largest] > LAYER_GRADIENT_HIGH:
        above = sum(norm > LAYER_GRADIENT_HIGH for norm in medians.values())
        found = {"count": above, "layer": largest, "norm": medians[largest], "limit": LAYER_GRADIENT_HIGH}
        seen.notes.append(Note("layers_with_long_gradients", found))


def _updates(run: RunView, medians: dict[str, float], seen: Seen) -> None:
    if not medians:
        return
    picture = _bars("Update of each layer, as a share of its size", medians, UPDATE_HIGH)
    seen.picture = picture
    far = {layer: ratio for layer, ratio in medians.items() if not ratio <= UPDATE_HIGH}
    if not far:
        return
    layer = max(far, key=far.__getitem__)
    numbers = {"count": len(far), "of": len(medians), "layer": layer, "ratio": far[layer], "lr": lr_at(run, None)}
    if statistics.median(medians.values()) > RUN_UPDATES_HIGH:
        seen.findings.append(Finding("run_updates_large", 0.8, numbers, lower_lr(run), picture=picture))
    else:
        seen.notes.append(Note("layers_move_far", numbers))


def _standing(run: RunView) -> list[dict[str, Any]]:
    """Rows that have what is read here; where training went back, those of the steps it took anew."""
    rows: list[dict[str, Any]] = []
    for row in json_lines(run.path / DIAGNOSTICS / FILE):
        tables = [row.get(key) for key in ("gradient", "update", "activation")]
        numbers = [
            row.get("step"),
            row.get("gradient_total"),
            *(n for t in tables if isinstance(t, dict) for n in t.values()),
        ]
        if all(isinstance(table, dict) for table in tables) and all(isinstance(one, int | float) for one in numbers):
            while rows and rows[-1]["step"] >= row["step"]:
                rows.pop()
            rows.append(row)
    return rows


def _medians(rows: Sequence[dict[str, Any]], key: str) -> dict[str, float]:
    """Of each layer that every row has."""
    layers = [layer for layer in rows[0][key] if all(layer in row[key] for row in rows)]
    return {layer: statistics.median(row[key][layer] for row in rows) for layer in layers}


def _bars(title: str, medians: dict[str, float], level: float) -> Picture:
    shown = sorted(medians, key=medians.__getitem__, reverse=True)[:MOST_SHOWN]
    kept = [layer for layer in medians if layer in shown]
    lines = [Line("median", kept, [medians[layer] for layer in kept])]
    return Picture(title, "layer", "", lines, kind="bars", log_y=True, level=level)
