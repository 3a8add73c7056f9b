"""Do training and validation have their colours in the same order?"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import FEW, SWAP_FITS, SWAP_FITS_SHARE, SWAP_SURE

MOST_CHANNELS = 4


def channel_order(patient: Patient) -> Seen:
    if patient.val is None:
        return Seen(left_out="no_validation_part")
    train, val = glance(patient), glance(patient, "val")
    channels = train.mean.shape[1]
    if channels < 2 or channels > MOST_CHANNELS or val.mean.shape[1] != channels:
        return Seen(left_out="no_colours")
    if min(len(train), len(val)) < 2 * FEW:
        return Seen(left_out="too_few_to_judge")
    weights = _as_often(train, val)
    as_given = train.middle.double(), val.middle.double()
    tried = [_orders(ours, theirs, weights) for ours, theirs in (as_given, _from_black_to_white(train, val))]
    as_is = min(orders[tuple(range(channels))] for orders in tried)
    best, distance = min((one for orders in tried for one in orders.items()), key=lambda one: one[1])
    seen = Seen(measured={"as_they_are": round(as_is, 2), "best_order": list(best), "best": round(distance, 2)})
    if as_is >= SWAP_SURE and distance <= max(SWAP_FITS, SWAP_FITS_SHARE * as_is):
        numbers = {"distance": as_is, "order": ", ".join(map(str, best)), "best": distance}
        seen.findings.append(Finding("channels_swapped", 0.85, numbers))
    return seen


def _orders(ours: Tensor, theirs: Tensor, weights: Tensor) -> dict[tuple[int, ...], float]:
    return {order: _distance(ours, theirs, weights, order) for order in permutations(range(ours.shape[1] // 2))}


def _from_black_to_white(train: Glance, val: Glance) -> tuple[Tensor, Tensor]:
    """(N, 2 C) means and spreads of each, on a scale from both parts' least pixel of a channel to their largest:
    normalisation by numbers of another channel is undone."""
    low, high = torch.minimum(train.lows, val.lows).double(), torch.maximum(train.highs, val.highs).double()
    room = (high - low).clamp(min=1e-12)
    shift, scale = torch.cat([low, torch.zeros_like(low)]), torch.cat([room, room])
    return (train.middle.double() - shift) / scale, (val.middle.double() - shift) / scale


def _as_often(train: Glance, val: Glance) -> Tensor:
    """(N,) weights of validation pictures that make each class as frequent as in training: a part with more skies is
    bluer without any channel being swapped."""
    if not (train.has_classes and val.has_classes):
        return torch.full((len(val),), 1 / len(val), dtype=torch.float64)
    classes = int(max(train.labels.max(), val.labels.max())) + 1
    wanted, there = (torch.bincount(one.labels.clamp(min=0), minlength=classes).double() for one in (train, val))
    weights = (wanted / there.clamp(min=1))[val.labels.clamp(min=0)]
    return weights / weights.sum().clamp(min=1e-12)


def _distance(ours: Tensor, theirs: Tensor, weights: Tensor, order: tuple[int, ...]) -> float:
    """Largest difference, in standard errors, of how far channels lie from the pictures' own mean over channels. What
    differs from picture to picture but not between channels, such as light, takes no part."""
    count = len(order)
    taken = [*order, *(place + count for place in order)]
    first, second = _apart(ours, count), _apart(theirs[:, taken], count)
    mean = weights @ second
    spread = (weights**2) @ (second - mean) ** 2
    error = (first.var(0) / len(first) + spread).sqrt()
    off = (first.mean(0) - mean).abs()
    varies = error > 1e-9 * (off + 1)
    return float((off[varies] / error[varies]).max()) if bool(varies.any()) else 0.0


def _apart(numbers: Tensor, count: int) -> Tensor:
    mean, std = numbers[:, :count], numbers[:, count:]
    return torch.cat([mean - mean.mean(1, keepdim=True), std - std.mean(1, keepdim=True)], 1)
