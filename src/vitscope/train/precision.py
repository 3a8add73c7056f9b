"""The type of the arithmetic, and the loss scale that keeps fp16 gradients from vanishing.

The scale follows torch's GradScaler (halved after an overflow, doubled after 2,000 good steps), but lives on the device
and never asks the host: a step that overflows is skipped like any other that is not finite.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vitscope.core.device import cpu_has_bf16
from vitscope.core.dtypes import TORCH_DTYPES
from vitscope.core.environment import ask_for_repeatable_kernels
from vitscope.core.errors import ConfigError, expected
from vitscope.models.config import ModelConfig, ViTConfig
from vitscope.train.config import PrecisionConfig

FIRST_SCALE = 2.0**16
GROWTH_STEPS = 2000
WIDE_ENOUGH_FOR_BF16 = 192
MOST_SCALE = 2.0**24  # far above any that helps, far below the one from which there is no way back


def choose_dtype(config: PrecisionConfig, device: torch.device) -> torch.dtype | None:
    """The type to cast to, or None for plain fp32."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" and _has_bf16(device) else None
    if config.dtype == "fp16" and device.type == "mps":
        raise ConfigError(expected("precision.dtype", "fp32 or bf16 on mps", "'fp16'"), fix="--precision.dtype bf16")
    return None if config.dtype == "fp32" else TORCH_DTYPES[config.dtype]


def _has_bf16(device: torch.device) -> bool:
    """By itself: cards before Ampere only imitate it, slower than fp32."""
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)


def bf16_would_pay(config: PrecisionConfig, model: ModelConfig, device: torch.device) -> bool:
    """Whether products in bf16 would train faster on this CPU than the fp32 that `auto` takes. A narrow ViT spends more
    on casting than it saves (docs/benchmarks.md)."""
    if config.dtype != "auto" or device.type != "cpu" or not cpu_has_bf16():
        return False
    return not isinstance(model, ViTConfig) or model.embed_dim >= WIDE_ENOUGH_FOR_BF16


def autocast(device: torch.device, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    """Weights and sums stay fp32; products are computed in `dtype`."""
    return contextlib.nullcontext() if dtype is None else torch.autocast(device.type, dtype)


@contextlib.contextmanager
def using_precision(config: PrecisionConfig) -> Iterator[None]:
    """Settings that torch keeps for the whole process, put back afterwards: another run may follow in it."""
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    convolution = torch.backends.cudnn.allow_tf32
    repeatable, warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = config.tf32
    if config.deterministic:
        ask_for_repeatable_kernels()
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolution
        torch.use_deterministic_algorithms(repeatable, warn_only=warns)
        torch.backends.cudnn.benchmark = cudnn


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
        grown = torch.where(grows, (self.scale * 2).clamp(max=MOST_SCALE), self.scale)
        scale = torch.where(overflowed > 0, self.scale * 0.5, grown)
        self.scale.copy_(torch.where(hold > 0, self.scale, scale))
        self.good_steps.copy_(torch.where(hold > 0, self.good_steps, torch.where(grows, 0.0, good_steps)))

    def state_dict(self) -> dict[str, Tensor]:
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """A run that changes to fp16 has no scale to go on from: it was 1."""
        was_active = float(state["scale"]) != 1.0 or float(state["good_steps"]) != 0.0
        if not (self.is_active and was_active):
            return
        self.scale.copy_(state["scale"])
        self.good_steps.copy_(state["good_steps"])
