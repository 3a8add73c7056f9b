"""One pass over what a loader gives, kept as a few numbers of each picture: every check of the data asks these.

N pictures, C channels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.doctor.batch import with_channels
from vitscope.doctor.patient import Batches, Patient, one_class_each
from vitscope.doctor.pixel_prints import pixel_prints
from vitscope.doctor.thresholds.data import GLANCE_KEPT, GLANCE_PICTURES, GLANCE_SECONDS

FIELDS = ("labels", "share", "bad", "flat", "mean", "std", "middle", "low", "high", "small")
SIDE = 32
"""Larger pictures are kept at this side: enough to tell classes and copies, and little memory."""


@dataclass(frozen=True)
class Glance:
    """The pictures of one epoch in their order, or the beginning of it."""

    labels: Tensor
    """(N,) int64 on the CPU; of mixed pictures the class with the largest share."""
    share: Tensor
    """(N,) of that class: 1 where pictures are not mixed."""
    prints: tuple[int, ...]
    """A number for each picture's pixels: equal pixels, equal numbers."""
    is_bad: Tensor
    """(N,) some pixel is not finite."""
    is_flat: Tensor
    """(N,) every channel has one value only, or that and the border a shift has left."""
    mean: Tensor
    """(N, C) of the finite pixels."""
    std: Tensor
    """(N, C)."""
    middle: Tensor
    """(N, 2 C) means, then spreads, of the middle quarter of a picture: no padding reaches it."""
    lows: Tensor
    """(C,) least of the finite pixels: black, where there is any."""
    highs: Tensor
    """(C,)."""
    small: Tensor
    """(n, C, h, w) float32: the first pictures, at most SIDE pixels high and wide."""
    batch: int
    """Pictures in the first batch."""
    is_whole: bool
    """Whether the epoch came to its end."""
    has_classes: bool
    """Whether labels are one class each, or shares of classes; only then can they be judged."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def low(self) -> float:
        return float(self.lows.min())

    @property
    def high(self) -> float:
        return float(self.highs.max())


def glance(patient: Patient, part: str = "train") -> Glance:
    """Looked at once; each caller has the same."""
    batches = patient.train if part == "train" else patient.val
    if batches is None:
        raise ValueError("there is no validation part to look at")
    held = patient.glances.get(part)
    if held is None:
        held = patient.glances[part] = look(batches)
    return held


def look(batches: Batches, *, most: int = GLANCE_PICTURES, seconds: float = GLANCE_SECONDS) -> Glance:
    """Ends after `most` pictures or `seconds` from the first batch on (what a loader does before it is its own affair),
    whichever comes first, but not before there are GLANCE_KEPT, unless that takes twice as long. Pictures are looked at
    where they are: a GPU is quicker than the way from it."""
    began: float | None = None
    parts: dict[str, list[Tensor]] = {name: [] for name in FIELDS}
    prints: list[int] = []
    batch, is_whole, has_classes = 0, True, True
    for images, labels in batches():
        now = time.perf_counter()
        began = now if began is None else began
        late = now - began > seconds
        if len(prints) >= most or (late and len(prints) >= GLANCE_KEPT) or now - began > 2 * seconds:
            is_whole = False
            break
        batch = batch or len(images)
        pixels = with_channels(images.detach())
        flat = pixels.float().flatten(2)
        finite = flat.isfinite()
        bad = ~finite.flatten(1).all(1)
        clean = flat.where(finite, 0.0) if bad.any() else flat
        least, largest = clean.amin(2), clean.amax(2)
        parts["low"].append(least.amin(0, keepdim=True))
        parts["high"].append(largest.amax(0, keepdim=True))
        parts["bad"].append(bad)
        parts["flat"].append((least == largest).all(1) | _flat_but_for_padding(clean.view_as(pixels)))
        parts["mean"].append(clean.mean(2))
        parts["std"].append(clean.std(2, correction=0))
        parts["middle"].append(_middle(clean.view_as(pixels)))
        classes, share, are_classes = _classes(labels.detach().cpu())
        has_classes &= are_classes
        parts["labels"].append(classes)
        parts["share"].append(share)
        prints += pixel_prints(pixels).tolist()
        if sum(map(len, parts["small"])) < GLANCE_KEPT:
            parts["small"].append(_small(clean.view_as(pixels)))
    if not prints:
        raise ValueError("the loader gives no pictures")
    joined = {name: torch.cat(some).cpu() for name, some in parts.items()}
    return Glance(
        labels=joined["labels"],
        share=joined["share"],
        prints=tuple(prints),
        is_bad=joined["bad"],
        is_flat=joined["flat"],
        mean=joined["mean"],
        std=joined["std"],
        middle=joined["middle"],
        lows=joined["low"].amin(0),
        highs=joined["high"].amax(0),
        small=joined["small"][:GLANCE_KEPT],
        batch=batch,
        is_whole=is_whole,
        has_classes=has_classes,
    )


def _classes(labels: Tensor) -> tuple[Tensor, Tensor, bool]:
    """The class of each picture, its share, and whether there is such a thing."""
    if labels.ndim == 2 and labels.shape[1] > 1:
        adds_up = bool(torch.allclose(labels.double().sum(1), torch.ones(len(labels), dtype=torch.float64), atol=0.02))
        return labels.argmax(1), labels.double().amax(1).float(), adds_up
    flat = one_class_each(labels)
    is_whole = not flat.is_floating_point() or bool((flat == flat.round()).all())
    return flat.long(), torch.ones(len(flat)), is_whole and not flat.is_complex()


def _flat_but_for_padding(images: Tensor) -> Tensor:
    """(N,) one colour in a rectangle that touches the sides it was shifted to, another around it."""
    height, width = images.shape[-2:]
    middle = images[..., height // 2, width // 2, None, None]
    same = (images == middle).all(1)
    found = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    for number in (same.flatten(1).float().mean(1) > 0.5).nonzero().flatten().tolist():
        down, across = same[number].any(1), same[number].any(0)
        box = down[:, None] & across[None]
        touches = bool((down[0] | down[-1]) & (across[0] | across[-1]))
        around = images[number][:, ~box]
        is_even = around.numel() == 0 or bool((around == around[:, :1]).all())
        found[number] = touches and is_even and bool((same[number] == box).all())
    return found


def _middle(images: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    inner = images[..., height // 4 : height - height // 4, width // 4 : width - width // 4].flatten(2)
    return torch.cat([inner.mean(2), inner.std(2, correction=0)], 1)


def _small(images: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    if max(height, width) <= SIDE:
        return images.float()
    size = (max(1, min(height, SIDE)), max(1, min(width, SIDE)))
    return F.interpolate(images.float(), size=size, mode="area")
