"""What the gradient monitor wrote, a row a look, and which layers leave the healthy range in it. Imports no torch."""

from __future__ import annotations

import math
from typing import Any

from vitscope.doctor.thresholds.monitor import GRADIENT_EXPLODES, GRADIENT_VANISHES, LAYER_GRADIENT_HIGH, UPDATE_HIGH

FILE = "monitor.jsonl"


def warnings(row: dict[str, Any]) -> list[tuple[str, str]]:
    """(kind, sentence) for what leaves the healthy range, by the name of the layer."""
    found = []
    total = row["gradient_total"]
    if not math.isfinite(total) or total > GRADIENT_EXPLODES:
        found.append(("exploding", f"gradients explode: their norm is {total:.3g} (above {GRADIENT_EXPLODES:g})"))
    elif total < GRADIENT_VANISHES:
        found.append(("vanishing", f"gradients vanish: their norm is {total:.3g} (below {GRADIENT_VANISHES:g})"))
    for layer, norm in row["gradient"].items():
        if norm > LAYER_GRADIENT_HIGH:
            found.append(
                (f"gradient {layer}", f"the gradient norm of {layer} is {norm:.3g} (above {LAYER_GRADIENT_HIGH:g})")
            )
    for layer, ratio in row["update"].items():
        if ratio > UPDATE_HIGH:
            found.append(
                (f"update {layer}", f"one update moved {layer} by {ratio:.1%} of its size: the lr is high for it")
            )
    for layer, size in row["activation"].items():
        if not math.isfinite(size):
            found.append((f"activation {layer}", f"{layer} gives values that are not finite"))
    return found
