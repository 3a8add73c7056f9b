"""Does a position table that is not learnt belong to this grid of patches?

P places, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitscope.doctor.attention_parts import MOST_PREFIX, has_attention
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.settings import EQUAL_ROWS, PERIOD

NAMES = ("pos_embed", "position_embed", "pos_emb", "positional", "sincos")
LEAST_SIDE = 3


def position_table(patient: Patient) -> Seen:
    facts = patient.facts
    found = _table(patient.model)
    if facts.patch_size is None or facts.img_size is None or found is None or not has_attention(patient.model):
        return Seen(left_out="no_position_table")
    name, table, is_learnt = found
    down, across = facts.img_size[0] // facts.patch_size[0], facts.img_size[1] // facts.patch_size[1]
    tokens, places = down * across, len(table)
    if is_learnt and patient.make_trainer is not None:
        is_learnt = name in patient.make_trainer().moved
    numbers = {"name": name, "places": places, "tokens": tokens, "down": down, "across": across}
    seen = Seen(measured={**numbers, "is_learnt": is_learnt})
    if not tokens <= places <= tokens + MOST_PREFIX:
        if is_learnt:
            seen.notes.append(Note("position_table_other_size", numbers))
        else:
            seen.findings.append(Finding("position_table_wrong_size", 0.85, {**numbers, "equal": 0.0, "period": 0}))
        return seen
    if is_learnt:
        return seen
    rows = table[places - tokens :]
    equal = 1 - len(rows.unique(dim=0)) / tokens
    period = _period(rows)
    seen.measured |= {"equal_rows": equal, "period": period}
    is_of_other_grid = period is not None and across >= LEAST_SIDE and period % across != 0
    if equal >= EQUAL_ROWS or is_of_other_grid:
        numbers = {**numbers, "equal": equal, "period": period or 0}
        seen.findings.append(Finding("position_table_wrong_size", 0.8, numbers))
    return seen


def _table(model: nn.Module) -> tuple[str, Tensor, bool] | None:
    """Name, (P, D), and whether it may learn."""
    held = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in held:
        if any(word in name.lower() for word in NAMES) and tensor.ndim >= 2 and tensor.is_floating_point():
            rows = tensor.detach().float()
            while rows.ndim > 2 and rows.shape[0] == 1:
                rows = rows[0]
            if rows.ndim == 2 and min(rows.shape) > 1:
                return name, rows, tensor.requires_grad
    return None


def _period(rows: Tensor) -> int | None:
    """How many places apart rows are more alike than rows a place nearer or further: the width of the grid they were
    made for. None where no distance stands out."""
    if len(rows) < 2 * LEAST_SIDE:
        return None
    rows = rows - rows.mean(0)
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    alike = rows @ rows.T
    means = torch.stack([alike.diagonal(apart).mean() for apart in range(1, len(rows) // 2 + 2)])
    sticks_out = means[1:-1] - (means[:-2] + means[2:]) / 2
    if not len(sticks_out) or float(sticks_out.max()) < PERIOD:
        return None
    return int(sticks_out.argmax()) + 2
