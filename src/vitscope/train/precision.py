"""The type of the arithmetic, and the loss scale that keeps fp16 gradients from vanishing.

The scale follows torch's GradScaler (halved after an overflow, doubled after 2,000 good steps), but lives on the device
and never asks the host: a step that overflows is skipped like any other that is not finite.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from vitscope.core.errors import ConfigError, expected
from vitscope.train.config import PrecisionConfig

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_SCALE = 2.0**16
GROWTH_STEPS = 2000


def choose_dtype(config: PrecisionConfig, device: torch.device) -> torch.dtype | None:
    """The type to cast to, or None for plain fp32."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    if config.dtype == "fp16" and device.type == "mps":
        raise ConfigError(expected("precision.dtype", "fp32 or bf16 on mps", "'fp16'"))
    return DTYPES[config.dtype]


def autocast(device: torch.device, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    """Weights and sums stay fp32; products are computed in `dtype`."""
    return contextlib.nullcontext() if dtype is None else torch.autocast(device.type, dtype)


class LossScale:
    """What the loss is multiplied by before the backward pass. Without fp16 it is 1 for ever."""

    def __init__(self, device: torch.device, dtype: torch.dtype | None) -> None:
        self.is_active = dtype is torch.float16
        self.scale = torch.full((), FIRST_SCALE if self.is_active else 1.0, device=device)
        self.good_steps = torch.zeros((), device=device)

    def update(self, overflowed: Tensor, hold: Tensor) -> None:
        """After a step: `overflowed` and `hold` are 0 or 1; a held step changes nothing."""
        if not self.is_active:
            return
        good_steps = torch.where(overflowed > 0, 0.0, self.good_steps + 1)
        grows = good_steps >= GROWTH_STEPS
        scale = torch.where(overflowed > 0, self.scale * 0.5, torch.where(grows, self.scale * 2, self.scale))
        self.scale.copy_(torch.where(hold > 0, self.scale, scale))
        self.good_steps.copy_(torch.where(hold > 0, self.good_steps, torch.where(grows, 0.0, good_steps)))

    def state_dict(self) -> dict[str, Tensor]:
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """A run that changes to fp16 has no scale to go on from: it was 1."""
        if self.is_active and float(state["scale"]) == 1.0 and not float(state["good_steps"]):
            return
        if not self.is_active:
            return
        self.scale.copy_(state["scale"])
        self.good_steps.copy_(state["good_steps"])
