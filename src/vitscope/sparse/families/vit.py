"""A ViT's units: heads are rows of q, k and v and columns of proj; neurons are rows of fc1 and columns of fc2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vitscope.core.config import updated
from vitscope.models.config import ViTConfig
from vitscope.sparse.pieces import HEADS, NEURONS, Group, Piece


def groups(config: ViTConfig) -> tuple[Group, ...]:
    """Block by block; of each block its heads, then its neurons."""
    counts = zip(config.block_heads, config.block_mlp_dims, strict=True)
    return tuple(
        group
        for block, (heads, neurons) in enumerate(counts)
        for group in (_heads(config, block, heads), _neurons(config, block, neurons))
    )


def smaller_config(config: ViTConfig, counts: Mapping[str, tuple[int, ...]]) -> ViTConfig:
    """Heads and neurons block by block; a head is as wide as before."""
    return updated(
        config,
        num_heads=_one_if_alike(counts[HEADS]),
        head_dim=config.dim_per_head,
        mlp_dim=_one_if_alike(counts[NEURONS]),
    )


def prunable(config: ViTConfig, *, patch_embed: bool) -> list[str]:
    """qkv, proj, fc1 and fc2 of every block that has them. Norms, tokens, the position table and the head never are."""
    names = ["patch_embed.proj.weight"] if patch_embed else []
    for group in groups(config):
        names += [piece.name for piece in group.own if piece.name.endswith(".weight")]
    return names


def _heads(config: ViTConfig, block: int, count: int) -> Group:
    if count == 0:
        return Group(HEADS, block, 0, ())
    attn, wide = f"blocks.{block}.attn", config.dim_per_head
    pieces = [Piece(f"{attn}.qkv.weight", 0, count, 3, wide)]
    if config.qkv_bias:
        pieces.append(Piece(f"{attn}.qkv.bias", 0, count, 3, wide))
    pieces.append(Piece(f"{attn}.proj.weight", 1, count, 1, wide))
    if config.position == "relative":
        pieces.append(Piece(f"{attn}.relative.table", 1, count, is_own=False))
    norms = [f"{attn}.{name}" for name in ("q_norm", "k_norm") if config.qk_norm]
    norms += [f"blocks.{block}.norm1"] if config.norm_order == "pre" else []
    return Group(HEADS, block, count, tuple(pieces), f"{attn}.proj", _weights_and_biases(norms))


def _neurons(config: ViTConfig, block: int, count: int) -> Group:
    if count == 0:
        return Group(NEURONS, block, 0, ())
    mlp, parts = f"blocks.{block}.mlp", 2 if config.mlp == "swiglu" else 1
    pieces = (
        Piece(f"{mlp}.fc1.weight", 0, count, parts),
        Piece(f"{mlp}.fc1.bias", 0, count, parts),
        Piece(f"{mlp}.fc2.weight", 1, count),
    )
    norms = [f"blocks.{block}.norm2"] if config.norm_order == "pre" else []
    return Group(NEURONS, block, count, pieces, f"{mlp}.fc2", _weights_and_biases(norms))


def _weights_and_biases(layers: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias"))


def _one_if_alike(counts: tuple[int, ...]) -> int | tuple[int, ...]:
    """One number where all blocks are alike: such a model is still any other library's. No number says none at all."""
    return counts[0] if len(set(counts)) == 1 and counts[0] else counts
