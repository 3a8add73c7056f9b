"""Networks small enough for milliseconds, of every kind that can lose units, and units to lose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.vit import ViT
from vitscope.sparse.units import Units, units_of

SMALL: dict[str, Any] = {
    "img_size": 8,
    "patch_size": 4,
    "in_chans": 1,
    "num_classes": 4,
    "embed_dim": 24,
    "depth": 2,
    "num_heads": 3,
    "mlp_dim": 20,
}
KINDS_OF_VIT: dict[str, dict[str, Any]] = {
    "plain": {},
    "registers": {"num_registers": 2},
    "mean": {"pool": "mean", "class_token": False},
    "attention_pool": {"pool": "attention"},
    "distilled": {"distilled": True},
    "layer_scale": {"layer_scale": 0.5},
    "rope": {"position": "rope"},
    "relative": {"position": "relative"},
    "sincos": {"position": "sincos"},
    "swiglu": {"mlp": "swiglu"},
    "qk_norm": {"qk_norm": True},
    "no_qkv_bias": {"qkv_bias": False},
    "post_norm": {"norm_order": "post"},
    "relu": {"act": "relu"},
    "dinov2": {"layer_scale": 1e-1, "num_registers": 2, "mlp": "swiglu", "prefix_position": False},
    "unlike_blocks": {"num_heads": (3, 2), "head_dim": 8, "mlp_dim": (20, 12)},
}


def vit(*, seed: int = 0, **settings: Any) -> ViT:
    """In eval mode, with weights large enough that every unit matters."""
    torch.manual_seed(seed)
    model: Any = build_model(ViTConfig(**{**SMALL, **settings})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def some_kept(model: ViT, *, seed: int = 3) -> Units:
    """About half of the units of each block by lot; one stays and one goes in any case."""
    rng = torch.Generator().manual_seed(seed)

    def kept(count: int) -> tuple[bool, ...]:
        flags = torch.rand(count, generator=rng) < 0.5
        first = int(torch.randint(count, (), generator=rng))
        flags[first], flags[first - 1] = True, False
        return tuple(flags.tolist())

    whole = units_of(model)
    return Units({kind: tuple(kept(count) for count in whole.totals(kind)) for kind in whole.kinds})


def pictures(count: int = 6, *, seed: int = 5) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def batches(number: int = 10, count: int = 6) -> list[tuple[Tensor, Tensor]]:
    return [(pictures(count, seed=100 + n), (torch.arange(count) + n) % 4) for n in range(number)]
