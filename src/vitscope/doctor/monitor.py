"""The gradient monitor: what happens in every layer while a run trains (`vitscope train --monitor`).

Now and then it notes, layer by layer, how long the gradient was, how far one update moved the weights, how large
activations are and how spread attention is, and says by name which layer leaves the healthy range. It looks between
steps: the training step itself only leaves the gradients' norms. How often it looks, it decides by what a look costs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vitscope.core.strict_json import encode
from vitscope.data.loaders.loader import Batch
from vitscope.doctor.activations import watched_forward
from vitscope.doctor.monitor_rows import FILE, warnings
from vitscope.doctor.thresholds.monitor import MONITOR_SHARE
from vitscope.models.modes import in_mode
from vitscope.train.precision import autocast
from vitscope.train.work import Work, say

PICTURES = 32
"""Enough for ranges and entropies, and a small part of a training batch."""
NOTHING = 1e-6
"""Of weights: they begin at zero."""
MOST_WARNINGS = 10
"""Of one kind; after that the file goes on and the voice does not."""


class Monitor:
    """A `BetweenSteps`. Rows go to diagnostics/monitor.jsonl, warnings to the log and to whoever watches."""

    def __init__(self, *, every: int | None = None, share: float = MONITOR_SHARE) -> None:
        """`every` so many steps; by default as often as a `share` of the time allows, from every 10 to every 1,000."""
        self.every = every
        self.share = share
        self.rows: list[dict[str, Any]] = []
        self._next = 2  # the first step compiles and captures
        self._before: list[Tensor] | None = None
        self._images: Tensor | None = None
        self._told: dict[str, int] = {}
        self._last = (0, 0.0)
        self._spent = 0.0
        self._seen = -1
        self._trouble: int | None = None
        """Since which step things went wrong when it last looked out of its turn."""

    def begin(self, work: Work, sample: Callable[[], Batch]) -> None:
        if work.processes.world > 1:
            say(work, "the monitor is off when several processes train: it looks at one process's training only")
            self._next = -1
            return
        work.state.watch_gradients()
        self._images = sample().images[:PICTURES].clone()
        self._next = work.step + 2

    def see(self, work: Work) -> None:
        """First the weights before a step, then what that step has done."""
        if self._next < 0:
            return
        if work.step <= self._seen:  # training went back to a checkpoint: what was kept is of steps that are undone
            self._before, self._last, self._next = None, (0, 0.0), work.step + 2
            self._trouble = None
        self._seen = work.step
        trouble = work.course.trouble_since
        if trouble is not None and trouble != self._trouble:  # soon it goes back or ends: seen now or never
            self._trouble, self._next = trouble, min(self._next, work.step + 1)
        if work.step < self._next - 1:
            return
        began = time.perf_counter()
        if self._before is None:
            self._last = self._last if self._last[0] else (work.step, began)
            self._before = [parameter.detach().clone() for parameter in work.state.optimizer.params]
            self._spent = time.perf_counter() - began
            return
        row = self._looked(work)
        self._before = None
        self.rows.append(row)
        _append(work, row)
        for kind, text in warnings(row):
            self._warn(work, kind, text)
        self._spent += time.perf_counter() - began
        self._plan(work)

    @torch.no_grad()
    def _looked(self, work: Work) -> dict[str, Any]:
        """One number a layer; where the host waits for the device."""
        state = work.state
        names, now, before = state.optimizer.names, list[Tensor](state.optimizer.params), self._before or []
        moved = _norms(torch._foreach_sub(now, before))  # pyright: ignore[reportPrivateImportUsage]
        sizes = _norms(before)
        # Nothing is dropped, so nothing is drawn.
        with in_mode(state.model, training=False), autocast(state.device, state.dtype):
            seen = watched_forward(state.model, self._images)  # pyright: ignore[reportArgumentType]
        gradients = [] if state.grad_norms is None else state.grad_norms.tolist()
        size, move = by_layer(names, sizes), by_layer(names, moved)
        return {
            "step": work.step,
            "gradient": by_layer(names, gradients),
            "gradient_total": _length(gradients),
            # Of a layer that begins at zero every step is infinitely long.
            "update": {layer: move[layer] / size[layer] for layer in size if size[layer] > NOTHING},
            "activation": seen.largest,
            "entropy": seen.entropy,
        }

    def _plan(self, work: Work) -> None:
        """When to look again: so that looking takes its share of the time, and no more."""
        step, since = self._last
        now, steps = time.perf_counter(), max(1, work.step - step)
        each = max((now - since - self._spent) / steps, 1e-9)
        wanted = self.every or min(1000, max(10, math.ceil(self._spent / (self.share * each))))
        self._last, self._next = (work.step, now), work.step + wanted

    def _warn(self, work: Work, kind: str, text: str) -> None:
        self._told[kind] = self._told.get(kind, 0) + 1
        if self._told[kind] <= MOST_WARNINGS:
            more = "; more of the kind are in diagnostics/monitor.jsonl" if self._told[kind] == MOST_WARNINGS else ""
            say(work, f"monitor, step {work.step}: {text}{more}")


def by_layer(names: Sequence[str], norms: Sequence[float]) -> dict[str, float]:
    """Parameters of one layer (weight and bias) as one."""
    found: dict[str, list[float]] = {}
    for name, norm in zip(names, norms, strict=False):
        found.setdefault(name.rpartition(".")[0] or name, []).append(norm)
    return {layer: _length(parts) for layer, parts in found.items()}


def _length(norms: Sequence[float]) -> float:
    return math.sqrt(sum(norm * norm for norm in norms))


def _norms(tensors: Sequence[Tensor]) -> list[float]:
    return torch.stack([norm.float() for norm in torch._foreach_norm(list(tensors))]).tolist()  # pyright: ignore[reportPrivateImportUsage]


def _append(work: Work, row: dict[str, Any]) -> None:
    """A full disk ends no run: the row is lost."""
    folder = work.run.diagnostics
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / FILE).open("a") as file:
            file.write(json.dumps(encode(row)) + "\n")
    except OSError as error:
        say(work, f"the monitor's row of step {work.step} is not kept: {error}")
