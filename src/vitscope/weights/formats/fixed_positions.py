"""Position tables that are fixed: others store them, here they are computed. Left out only where they are the same."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig
from vitscope.models.layers.position import sincos_2d
from vitscope.weights.files import Stored
from vitscope.weights.match import Unheld

LARGEST_DIFFERENCE = 1e-5
"""Published tables were computed in other precisions than ours."""


def fixed_tables(stored: Stored, config: ModelConfig) -> tuple[Unheld, ...]:
    """The stored tables that say what ours say."""
    return tuple(
        Unheld(name, "fixed sin-cos positions, which are computed here")
        for name, width in _computed(config).items()
        if name in stored and _is_computed(stored, name, width, config)
    )


def strange_tables(stored: Stored, config: ModelConfig) -> str:
    """What to do about stored tables that differ from what would be computed; empty where none does."""
    for name, width in reversed(_computed(config).items()):
        if name in stored and not _is_computed(stored, name, width, config):
            return said_of_strange(stored, name, of_decoder=name.startswith("decoder"))
    return ""


def said_of_strange(stored: Stored, name: str, *, of_decoder: bool) -> str:
    """Why a table has no place here, and what can be done. Zeros are what a model of transformers 5 has that was saved
    without ever being loaded or filled."""
    zeros = not stored[name].any()
    why = f"{name} is {'all zeros, which is no' if zeros else 'not the'} fixed sin-cos table"
    if of_decoder:
        return f"{why}, and no decoder here has another; load the encoder alone: give the config of a ViT"
    return f"{why}; give a config with position='learned'"


def sincos_table(grid: tuple[int, int], width: int, *, prefix: int = 1) -> Tensor:
    """The fixed table (1, P + N, D) as others' files hold it: zeros for what comes before the patches."""
    return torch.cat([torch.zeros(prefix, width), sincos_2d(grid, width)])[None]


def is_sincos(table: Tensor, grid: tuple[int, int] | None) -> bool:
    """Whether (1, P + N, D) is zeros for P prefix tokens and the fixed table for the N patches of the grid, as exact
    as its type can have it."""
    if grid is None or table.ndim != 3 or table.shape[2] % 4 or not table.numel():
        return False
    prefix = table.shape[1] - grid[0] * grid[1]
    if prefix < 0:
        return False
    wanted = sincos_table(grid, table.shape[2], prefix=prefix).to(table.dtype)
    return bool((table.double() - wanted.double()).abs().max() <= LARGEST_DIFFERENCE)


def _is_computed(stored: Stored, name: str, width: int, config: ModelConfig) -> bool:
    shape = stored.shapes[name]
    return len(shape) == 3 and shape[2] == width and is_sincos(stored[name], grid_of(shape[1], _encoder(config)))


def grid_of(rows: int, config: ViTConfig) -> tuple[int, int] | None:
    for prefix in (config.num_prefix_tokens, 1, 0):
        count = rows - prefix
        if count == config.num_patches:
            return config.grid_size
        side = math.isqrt(max(count, 0))
        if side and side * side == count:
            return side, side
    return None


def _computed(config: ModelConfig) -> dict[str, int]:
    """Others' names of the tables a model of `config` computes, and their widths."""
    tables = {}
    encoder = _encoder(config)
    if isinstance(encoder, ViTConfig) and encoder.position == "sincos":
        tables["pos_embed"] = encoder.embed_dim
    if isinstance(config, MAEConfig):
        tables["decoder_pos_embed"] = config.decoder_embed_dim
    return tables


def _encoder(config: ModelConfig) -> ViTConfig:
    return config.encoder if isinstance(config, MAEConfig | SimMIMConfig) else config  # pyright: ignore[reportReturnType]
