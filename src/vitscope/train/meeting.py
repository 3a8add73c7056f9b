"""How processes meet: each says that it is there, and when all have, they are connected."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from vitscope.core.errors import VitscopeError

MEETING = timedelta(minutes=30)
"""How long one waits for the others to come."""
PATIENCE = timedelta(days=7)
"""Once met, the others wait while the first decodes, draws and tests. One that has died is noticed at once, by its
connection."""

_meetings = itertools.count()
_stores: list[Any] = []
"""Kept: where no torchrun holds the store the first process does, and the others come to it again."""


def meet(device: torch.device, rank: int, world: int) -> Any:
    """Connect with the others: again too, after all have left. For all processes, as often in each. The store where
    they met, which outlives the connection."""
    # What the host says goes through gloo on a GPU too: nccl would make it wait for the device.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    # What was said in an earlier meeting, such as addresses that nobody answers at any more, stays in the store.
    name = f"vitscope-{next(_meetings)}"
    try:
        common = next(distributed.rendezvous("env://", rank, world, timeout=MEETING))[0]  # pyright: ignore[reportPrivateImportUsage]
        _stores[:] = [common]
        store = distributed.PrefixStore(name, common)  # pyright: ignore[reportPrivateImportUsage]
        _await_all(store, rank, world)
        store.set_timeout(PATIENCE)
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise VitscopeError(
            f"process {rank} of {world} cannot meet the others: {str(error).partition(chr(10))[0]}",
            where="torch.distributed",
            fix="start with `torchrun --standalone --nproc-per-node N -m vitscope train ...`",
        ) from error
    return store


def _await_all(store: Any, rank: int, world: int) -> None:
    """Until every process has come. Asked before they connect, for connecting has the patience of what follows it."""
    store.set(f"here-{rank}", "")
    try:
        store.wait([f"here-{other}" for other in range(world)], MEETING)
    except distributed.DistError as error:
        absent = [str(other) for other in range(world) if not store.check([f"here-{other}"])]
        if not absent:
            raise
        raise VitscopeError(
            f"process {rank} of {world} has waited {MEETING.total_seconds() / 60:g} minutes for "
            f"{'process' if len(absent) == 1 else 'processes'} {', '.join(absent)}",
            where="torch.distributed",
            fix="see what the absent one says; every process must make the same calls of vitscope.fit",
        ) from error
