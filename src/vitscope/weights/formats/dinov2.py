"""DINOv2 as its authors saved it (Oquab et al. 2023, arXiv 2304.07193; registers: Darcet et al. 2023, 2309.16588).

Names are timm's but for the registers and the gated MLP (w12 holds gate and value, in this order, as our fc1 does).
Blocks of a training checkpoint lie in chunks: `blocks.CHUNK.INDEX`. The class token has a position, a register none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from vitscope.models.config import ModelConfig, ViTConfig
from vitscope.weights.files import Stored
from vitscope.weights.formats.timm import DINO_TRAINING
from vitscope.weights.match import Format, Match, Unheld, named, turned

CHUNKED = re.compile(r"^blocks\.(\d+)\.(\d+)\.")
OURS = re.compile(r"^blocks\.(\d+)\.")
GATED = (("mlp.fc1.", "mlp.w12."), ("mlp.fc2.", "mlp.w3."))


class DINOv2(Format):
    name = "DINOv2's own"
    library = "timm"
    unheld = (*DINO_TRAINING, Unheld("mask_token", "stands for hidden patches, which only training has"))

    def recognises(self, stored: Stored) -> bool:
        if "patch_embed.proj.weight" not in stored or "decoder_embed.weight" in stored:
            return False
        special = ("register_tokens", "mask_token", "blocks.0.mlp.w12.weight")
        return any(name in stored for name in special) or any(CHUNKED.match(name) for name in stored)

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        blocks = _chunks(stored)
        gated = any(".mlp.w12." in name for name in stored)
        folded = isinstance(config, ViTConfig) and config.class_token and not config.prefix_position

        def find(ours: str) -> Match:
            if ours == "reg_token":
                return named(ours, "register_tokens")
            if folded and ours == "cls_token":
                return _class_token_with_its_place()
            if folded and ours == "pos_embed":
                return turned(ours, ours, _patches_only, _behind_zeros, "without the class token's row")
            theirs = OURS.sub(lambda found: blocks.get(int(found[1]), found[0]), ours)
            for mine, other in GATED if gated else ():
                theirs = theirs.replace(mine, other)
            return named(ours, theirs)

        return find


def _chunks(stored: Stored) -> dict[int, str]:
    """Block -> what stands before its tensors, where blocks lie in chunks. Indices go on through all chunks in some
    files and begin anew in others; their order is the same."""
    places = sorted({(int(found[1]), int(found[2])) for name in stored if (found := CHUNKED.match(name)) is not None})
    return {block: f"blocks.{chunk}.{index}." for block, (chunk, index) in enumerate(places)}


def _class_token_with_its_place() -> Match:
    return Match(
        "cls_token",
        ("cls_token", "pos_embed"),
        lambda token, table: token + table[:, :1],
        lambda token: (token,),
        how="with its position added, which no table here has",
        folds=True,
        only_read=("pos_embed",),
    )


def _patches_only(table: Tensor) -> Tensor:
    return table[:, 1:]


def _behind_zeros(table: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(table[:, :1]), table], dim=1)


DINOV2 = DINOv2()
