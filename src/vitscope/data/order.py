"""Which picture comes at which place of an epoch: a function of (seed, epoch), the same on any device.

Places count through the whole epoch, over all processes. A batch of B takes the next B places; of these, process r of
w takes the r-th w-th part. So the batches are the same whatever the processes, and a resumed epoch goes on at any
batch without having drawn the ones before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitscope.core.errors import ConfigError, DataError
from vitscope.data.draws import epoch_key, picture_keys

ORDER = "order"
"""Purpose of the keys that sort pictures: others than those that vary them."""


class Order(NamedTuple):
    """The pictures of an epoch, place by place."""

    rows: Tensor
    """(M,) which picture, counted within the part that is loaded."""
    copies: Tensor
    """(M,) which variation of it: 0 unless a picture comes more than once."""


def epoch_order(
    labels: Tensor,
    *,
    seed: int,
    epoch: int,
    sampling: str = "shuffled",
    repeats: int = 1,
) -> Order:
    """The order of one training epoch over pictures with these labels (N,), on the labels' device."""
    key = epoch_key(seed, epoch, ORDER)
    if sampling == "balanced":
        return _balanced(labels, key)
    shuffled = _shuffled(len(labels), key, labels.device)
    if repeats == 1:
        return Order(shuffled, torch.zeros_like(shuffled))
    # As many places as before: the first pictures of the order, each `repeats` times in a row.
    places = torch.arange(len(labels), device=labels.device)
    return Order(shuffled[places // repeats], places % repeats)


def in_sequence(count: int, device: torch.device | str = "cpu") -> Order:
    """Evaluation: every picture once, as it lies."""
    rows = torch.arange(count, device=device)
    return Order(rows, torch.zeros_like(rows))


def _shuffled(count: int, key: int, device: torch.device) -> Tensor:
    """Sorted by a hash: integers compare alike everywhere, where generators differ between devices."""
    return torch.argsort(picture_keys(key, torch.arange(count, device=device)), stable=True)


def _balanced(labels: Tensor, key: int) -> Order:
    """Every class equally often (one more for some, where it does not divide), as many places as pictures.

    A class goes through its pictures in random order, again from the start when they are used up; a picture's copy
    number counts how often it has come. So a rare class repeats as late as it can.
    """
    count, device = len(labels), labels.device
    shuffled = _shuffled(count, key, device)
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    sizes = torch.bincount(labels)
    present = torch.nonzero(sizes).flatten()
    starts = torch.cumsum(sizes, 0) - sizes
    # Which classes get the odd places changes from epoch to epoch.
    turn = torch.argsort(picture_keys(key + 1, present), stable=True)
    places = torch.arange(count, device=device)
    classes = present[turn][places % len(present)]
    nth = places // len(present)
    rows = by_class[starts[classes] + nth % sizes[classes]]
    # Class after class in turn would be no random order.
    mixed = _shuffled(count, key + 2, device)
    return Order(rows[mixed], (nth // sizes[classes])[mixed])


class Lane(NamedTuple):
    """Which process this is, of how many: each has its lane through every batch."""

    rank: int = 0
    world: int = 1


ALONE = Lane()


def batch_count(places: int, batch_size: int, *, training: bool) -> int:
    """Batches in an epoch. Training leaves an incomplete last one out: steps are alike, and the next epoch's order
    leaves out other pictures."""
    return places // batch_size if training else -(-places // batch_size)


def batch_places(batch: int, places: int, batch_size: int, lane: Lane) -> slice:
    """The places of one batch that belong to one process: an even share, in order."""
    start = batch * batch_size
    size = min(batch_size, places - start)
    return slice(start + size * lane.rank // lane.world, start + size * (lane.rank + 1) // lane.world)


def refuse_batch(pictures: int, batch_size: int, lane: Lane) -> None:
    """A training batch must exist and be shared evenly."""
    if batch_size > pictures:
        raise DataError(
            f"a batch of {batch_size:,} is larger than the training set of {pictures:,} pictures",
            where="data.batch_size",
            fix=f"--batch-size {2 ** (max(1, pictures // 2).bit_length() - 1)}, or any up to {pictures:,}"
            if pictures
            else "give some pictures",
        )
    if batch_size % lane.world:
        nearest = max(1, round(batch_size / lane.world)) * lane.world
        raise ConfigError(
            f"a batch of {batch_size:,} cannot be shared evenly by {lane.world} processes",
            where="data.batch_size",
            fix=f"--batch-size {nearest}, or another multiple of {lane.world}",
        )
