"""torch's learning rate schedulers: an owner's step may turn one on, and nothing it was given holds it."""

from __future__ import annotations

import copy
import gc
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

PLAIN = (bool, int, float, str, Tensor, type(None))


def schedulers_of(optimizer: Optimizer) -> tuple[LRScheduler, ...]:
    """Those that move its rate. A scheduler knows its optimiser, which knows nothing of it: so all are asked."""
    living = (one for one in gc.get_objects() if issubclass(type(one), LRScheduler))
    return tuple(one for one in living if vars(one).get("optimizer") is optimizer)


class KeptScheduler:
    """What it counts, whatever its kind; functions and other schedulers it holds have no part in that."""

    def __init__(self, scheduler: LRScheduler) -> None:
        self.scheduler = scheduler
        self.counted = {key: copy.deepcopy(value) for key, value in vars(scheduler).items() if _is_plain(value)}

    def put_back(self) -> None:
        vars(self.scheduler).update(self.counted)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(one) for one in value.values())
    return all(_is_plain(one) for one in value) if isinstance(value, list | tuple | set) else isinstance(value, PLAIN)
