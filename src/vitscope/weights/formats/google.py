"""Google's JAX checkpoints (.npz): ViT and AugReg (vision_transformer), and big_vision's.

Flax keeps kernels as (in, out), filters as (height, width, in, out), and heads apart: query (D, heads, d), out
(heads, d, D). D width, d numbers per head. The matches read either way of numbering the layers of a block; where all
blocks lie in one array (`encoderblock` without a number) they only read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vitscope.core.errors import ConfigError, expected
from vitscope.models.config import ModelConfig, ViTConfig
from vitscope.weights.files import Stored
from vitscope.weights.formats.timm import PRE_LOGITS
from vitscope.weights.match import Format, Match, Unheld, named, turned

ROOTS = ("", "opt/target/", "params/", "params/img/")
"""What may stand before all names: nothing, an optimiser's state, big_vision's parameters, its image half."""
BLOCK = re.compile(r"^blocks\.(\d+)\.(.+)$")
LEAVES = {"weight": "scale", "bias": "bias"}
"""Of a norm."""
TANH = "Google's code computes GELU by its tanh form; give a config with act='gelu_tanh' to have just its numbers"


@dataclass(frozen=True)
class Layout:
    """How the layers of a block are numbered, and where positions lie."""

    attention: int
    second_norm: int
    mlp: int
    positions: str


FIRST = Layout(attention=1, second_norm=2, mlp=3, positions="Transformer/posembed_input/pos_embedding")
BIG_VISION = Layout(attention=0, second_norm=1, mlp=0, positions="pos_embedding")


class Google(Format):
    name = "Google's npz"
    library = "timm"

    def recognises(self, stored: Stored) -> bool:
        return _root(stored) is not None

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        if not isinstance(config, ViTConfig):
            raise ConfigError(
                expected("model.family", "'vit', of which the weights are", f"'{config.family}'"),
                where=str(stored.files[0]),
                fix="name a plain ViT",
            )
        root = _root(stored) or ""
        layout = _layout(stored, root)
        _refuse_other_heads(stored, config)
        headless = _drops_head(stored, root, config)
        stacked = _stacked(root) in stored

        def find(ours: str) -> Match | None:
            block = BLOCK.match(ours)
            if block is None:
                return None if headless and ours.startswith("head.") else _outside(ours, root, layout, config)
            if not stacked:
                return _of_block(ours, block[2], f"{root}Transformer/encoderblock_{block[1]}/", layout, config)
            match = _of_block(ours, block[2], f"{root}Transformer/encoderblock/", layout, config)
            return None if match is None else _one_of_all(match, int(block[1]))

        return find

    def most_blocks(self, stored: Stored) -> int:
        """The first axis counts them where all lie in one array."""
        return max([len(stored), *stored.shapes.get(_stacked(_root(stored) or ""), ())[:1]])

    def left_out(self, stored: Stored, config: ModelConfig) -> tuple[Unheld, ...]:
        root = _root(stored) or ""
        text = "of the text half, which no model here has"
        unheld = [Unheld(name, text) for name in ("params/txt/*", "params/t", "params/b")]
        if _drops_head(stored, root, config):
            why = "comes after the features, and no head was asked for"
            unheld += [Unheld(f"{root}{name}/*", why) for name in ("pre_logits", "head")]
        return tuple(unheld)

    def normalisation(self, stored: Stored) -> Literal["half", "imagenet"] | None:
        return "half"

    def hint(self, stored: Stored, config: ModelConfig) -> str:
        root = _root(stored) or ""
        if f"{root}pre_logits/kernel" in stored:
            return PRE_LOGITS
        if f"{root}MAPHead_0/probe" in stored and isinstance(config, ViTConfig) and config.pool != "attention":
            return "they pool by attention (MAPHead_0); give a config with pool='attention' and class_token=False"
        return ""

    def remarks(self, stored: Stored, config: ModelConfig) -> tuple[str, ...]:
        return (TANH,) if isinstance(config, ViTConfig) and config.activation == "gelu" else ()


# --- what lies where --------------------------------------------------------------------------------------------


def _root(stored: Stored) -> str | None:
    return next((root for root in ROOTS if f"{root}embedding/kernel" in stored), None)


def _stacked(root: str) -> str:
    """A name that is there where all blocks lie in one array."""
    return f"{root}Transformer/encoderblock/LayerNorm_0/scale"


def _layout(stored: Stored, root: str) -> Layout:
    return BIG_VISION if any(name.startswith(f"{root}{BIG_VISION.positions}") for name in stored) else FIRST


def _drops_head(stored: Stored, root: str, config: ModelConfig) -> bool:
    """Whether the head goes with the layer before it: without that it would say something else."""
    return config.num_classes == 0 and f"{root}pre_logits/kernel" in stored


def _refuse_other_heads(stored: Stored, config: ViTConfig) -> None:
    """Any number of heads fits the fused matrix, and only one is right."""
    for name, shape in stored.shapes.items():
        if not name.endswith("/query/kernel") or "encoderblock" not in name or len(shape) < 3:
            continue
        *_, heads, _ = shape
        if heads not in config.block_heads:
            raise ConfigError(
                expected("num_heads", f"{heads}, as the weights have it", config.num_heads),
                where=f"{stored.files[0]} > {name}",
                fix=f"give a config with num_heads={heads}",
            )


# --- matches ----------------------------------------------------------------------------------------------------


def _outside(ours: str, root: str, layout: Layout, config: ViTConfig) -> Match | None:
    part, _, leaf = ours.rpartition(".")
    if ours == "patch_embed.proj.weight":
        how = "filters (height, width, in, out) -> (out, in, height, width)"
        kernel = f"{root}embedding/kernel"
        return turned(ours, kernel, lambda t: t.permute(3, 2, 0, 1), lambda t: t.permute(2, 3, 1, 0), how)
    if part == "norm":
        return named(ours, f"{root}Transformer/encoder_norm/{LEAVES[leaf]}")
    if part == "head":
        return _dense(ours, f"{root}head/", leaf)
    if part.startswith("attn_pool") or ours == "attn_pool.latent":
        return _of_pool(ours, f"{root}MAPHead_0/", config)
    names = {"patch_embed.proj.bias": "embedding/bias", "cls_token": "cls", "pos_embed": layout.positions}
    return named(ours, root + names[ours]) if ours in names else None


def _of_block(ours: str, rest: str, block: str, layout: Layout, config: ViTConfig) -> Match | None:
    part, _, leaf = rest.rpartition(".")
    attention = f"{block}MultiHeadDotProductAttention_{layout.attention}/"
    if part == "norm1":
        return named(ours, f"{block}LayerNorm_0/{LEAVES[leaf]}")
    if part == "norm2":
        return named(ours, f"{block}LayerNorm_{layout.second_norm}/{LEAVES[leaf]}")
    if part == "attn.qkv":
        return _heads(ours, attention, ("query", "key", "value"), leaf, config.dim_per_head)
    if part == "attn.proj":
        return _out(ours, attention, leaf, config.dim_per_head)
    if part in ("mlp.fc1", "mlp.fc2"):
        return _dense(ours, f"{block}MlpBlock_{layout.mlp}/Dense_{int(part[-1]) - 1}/", leaf)
    return None


def _of_pool(ours: str, head: str, config: ViTConfig) -> Match | None:
    part, _, leaf = ours.removeprefix("attn_pool.").rpartition(".")
    attention, dim = f"{head}MultiHeadDotProductAttention_0/", config.dim_per_head
    if leaf == "latent":
        return named(ours, f"{head}probe")
    if part == "q":
        return _heads(ours, attention, ("query",), leaf, dim)
    if part == "kv":
        return _heads(ours, attention, ("key", "value"), leaf, dim)
    if part == "proj":
        return _out(ours, attention, leaf, dim)
    if part == "norm":
        return named(ours, f"{head}LayerNorm_0/{LEAVES[leaf]}")
    if part in ("mlp.fc1", "mlp.fc2"):
        return _dense(ours, f"{head}MlpBlock_0/Dense_{int(part[-1]) - 1}/", leaf)
    return None


def _dense(ours: str, layer: str, leaf: str) -> Match:
    if leaf == "bias":
        return named(ours, f"{layer}bias")
    return turned(ours, f"{layer}kernel", torch.t, torch.t, "(in, out) -> (out, in)")


def _heads(ours: str, attention: str, parts: tuple[str, ...], leaf: str, dim: int) -> Match:
    """Projections of each head (D, heads, d) -> one matrix (parts * heads * d, D)."""
    kind = "bias" if leaf == "bias" else "kernel"
    theirs = tuple(f"{attention}{part}/{kind}" for part in parts)
    fused = f"{', '.join(parts)} of all heads in one matrix" if len(parts) > 1 else "all heads in one matrix"
    if leaf == "bias":
        return Match(
            ours,
            theirs,
            lambda *biases: torch.cat([bias.reshape(-1) for bias in biases]),
            lambda whole: tuple(part.reshape(-1, dim) for part in whole.chunk(len(parts))),
            how=fused.replace("matrix", "vector"),
        )
    return Match(
        ours,
        theirs,
        lambda *kernels: torch.cat([kernel.flatten(1).t() for kernel in kernels]),
        lambda whole: tuple(part.T.reshape(part.shape[1], -1, dim) for part in whole.chunk(len(parts))),
        how=fused,
    )


def _out(ours: str, attention: str, leaf: str, dim: int) -> Match:
    if leaf == "bias":
        return named(ours, f"{attention}out/bias")
    return turned(
        ours,
        f"{attention}out/kernel",
        lambda kernel: kernel.flatten(0, 1).t(),
        lambda weight: weight.T.reshape(-1, dim, weight.shape[0]),
        "all heads in one matrix",
    )


def _one_of_all(match: Match, block: int) -> Match:
    """The same where the first axis counts the blocks. One tensor of ours cannot write the array of all."""

    def read(*theirs: Tensor) -> Tensor:
        return match.read(*(every[block] for every in theirs))

    how = f"{match.how}; block {block} of all in one array" if match.how else f"block {block} of all in one array"
    return Match(match.ours, match.theirs, read, lambda tensor: (), how, only_read=match.theirs)


GOOGLE = Google()
