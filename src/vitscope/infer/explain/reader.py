"""Which tokens the head reads, and how much of each: the rows of an attention map that count.

T tokens, P of them before the N patches, h heads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.core.errors import InputError, expected
from vitscope.models.layers.pool import AttentionPool
from vitscope.models.modes import in_mode
from vitscope.models.vit import ViT


@torch.no_grad()
def reader_of(model: ViT, images: Tensor, patch: tuple[int, int] | None = None) -> Tensor:
    """(T,), summing to 1. The class token; with a distillation token half of each; with mean pooling every patch alike;
    with attention pooling what its learned query takes of each patch. Or one patch (row, column), where that is asked
    about."""
    cfg = model.config
    shares = torch.zeros(cfg.num_tokens)
    if patch is not None:
        down, across = cfg.grid_size
        if not (0 <= patch[0] < down and 0 <= patch[1] < across):
            raise InputError(expected("patch", f"(row, column) within {down} x {across}", patch))
        shares[cfg.num_prefix_tokens + patch[0] * across + patch[1]] = 1
    elif cfg.pool == "cls":
        shares[: 2 if cfg.distilled else 1] = 0.5 if cfg.distilled else 1.0
    elif cfg.pool == "attention":
        shares[cfg.num_prefix_tokens :] = pool_looks(model, images).mean(0).flatten()
    else:
        shares[cfg.num_prefix_tokens :] = 1 / cfg.num_patches
    return shares


@torch.no_grad()
def pool_looks(model: ViT, images: Tensor) -> Tensor:
    """(h, down, across): what each head of the model's attention pool takes of each patch; on the CPU."""
    cfg, pool = model.config, model.attn_pool
    if pool is None:
        raise InputError(expected("model", "attention pooling", f"pool='{cfg.pool}'"))
    with in_mode(model, training=False):
        patches = model.forward_features(images)[0, cfg.num_prefix_tokens :]
        return pool_weights(pool, patches).float().cpu().unflatten(1, cfg.grid_size)


def pool_weights(pool: AttentionPool, patches: Tensor) -> Tensor:
    """(h, N): what the pool's learned query takes of each patch token (N, D), by the plain formula."""
    heads = pool.num_heads
    q = pool.q(pool.latent)[0, 0].unflatten(0, (heads, -1))
    k = pool.kv(patches).unflatten(1, (2, heads, -1))[:, 0]
    exact = torch.promote_types(q.dtype, torch.float32)
    scores = torch.einsum("hd,nhd->hn", q.to(exact) * q.shape[1] ** -0.5, k.to(exact))
    return scores.softmax(dim=-1)


def who_looks(model: ViT, patch: tuple[int, int] | None) -> str:
    """In words."""
    cfg = model.config
    if patch is not None:
        return f"patch ({patch[0]}, {patch[1]}) looks"
    if cfg.pool == "cls":
        return "class and distillation tokens look" if cfg.distilled else "the class token looks"
    return "all patches look" if cfg.pool == "mean" else "patches look, as the pool weighs them"
