"""Masked weights are exactly 0 after every step of the ordinary engine: a hook after the step, no second loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vitscope.core.errors import InputError, expected
from vitscope.train.ema import Ema
from vitscope.train.shards import local, own_part
from vitscope.train.state import TrainState
from vitscope.train.work import Work


class MaskHook:
    """`fit(..., after_step=[hook], between_steps=[hook])`.

    A mask is a condition, not a move: it holds after skipped and held steps as well, where multiplying by it a second
    time changes nothing. As one of `between_steps` the hook also masks what training begins with, the running mean
    included; weights that were masked before need only the first. The running mean then stays masked by itself,
    because it is a mean of zeros.
    """

    name = "sparse_masks"

    def __init__(self, masks: Mapping[str, Tensor]) -> None:
        if not masks:
            raise InputError(expected("masks", "at least one tensor", "none"))
        self.masks = {name: mask.detach().to("cpu", torch.bool, copy=True) for name, mask in masks.items()}
        self._wholes: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._factors: list[Tensor] = []
        self._bound: list[Tensor] = []

    def begin(self, work: Work, sample: Callable[[], Any]) -> None:
        """Mask the weights and their running mean before the first step."""
        self._bind(work.state)
        self._multiply(self._weights)
        for hook in work.after:
            if isinstance(hook, Ema):
                self._multiply([local(hook.mean[name]) for name in self.masks])

    def see(self, work: Work) -> None:
        """Nothing: it is all done on the device."""

    def __call__(self, state: TrainState) -> None:
        if not self._weights:
            self._bind(state)
        self._multiply(self._weights)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.masks)

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        if {name: mask.shape for name, mask in saved.items()} != {name: m.shape for name, m in self.masks.items()}:
            raise InputError(
                expected(
                    "masks of the checkpoint", f"those of {len(self.masks)} tensors", f"{len(saved)}, or other shapes"
                ),
                fix="resume with the masks the run began with",
            )
        for name, mask in self.masks.items():
            mask.copy_(saved[name])
        self._refresh()

    def _bind(self, state: TrainState) -> None:
        """Find the weights, and lay factors of their type beside them: one launch multiplies them all."""
        parameters = dict(state.model.named_parameters())
        misfits = [n for n, m in self.masks.items() if n not in parameters or parameters[n].shape != m.shape]
        if misfits:
            raise InputError(
                f"no parameter of the model fits the mask of {misfits[0]}", fix="make the masks from this model"
            )
        self._wholes = [parameters[name].detach() for name in self.masks]
        self._weights = [local(whole) for whole in self._wholes]
        self._factors = [torch.ones_like(weight) for weight in self._weights]
        self._bound = list(self.masks.values())
        self._refresh()

    @torch.no_grad()
    def _refresh(self) -> None:
        """In place: a captured step goes on reading the same memory."""
        for whole, factor, mask in zip(self._wholes, self._factors, self._bound, strict=True):
            factor.copy_(own_part(whole, mask))

    @torch.no_grad()
    def _multiply(self, tensors: list[Tensor]) -> None:
        torch._foreach_mul_(tensors, self._factors)  # pyright: ignore[reportPrivateImportUsage]
