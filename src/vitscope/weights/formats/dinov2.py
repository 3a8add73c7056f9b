"""DINOv2 as its authors saved it (Oquab et al. 2023, arXiv 2304.07193; registers: Darcet et al. 2023, 2309.16588).

Names are timm's but for the registers and the gated MLP (w12 holds gate and value, in this order, as our fc1 does).
Blocks of a training checkpoint lie in chunks: `blocks.CHUNK.INDEX`. The class token has a position, a register none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from vitscope.models.config import ModelConfig, ViTConfig
from vitscope.weights.files import Stored
from vitscope.weights.formats.class_position import rows_of_patches, token_with_its_row
from vitscope.weights.formats.timm import DINO_TRAINING
from vitscope.weights.match import Format, Match, Unheld, named

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

    def normalisation(self, stored: Stored) -> Literal["half", "imagenet"] | None:
        return "imagenet"

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        blocks = _chunks(stored)
        gated = any(".mlp.w12." in name for name in stored)
        folded = isinstance(config, ViTConfig) and config.class_token and not config.prefix_position

        def find(ours: str) -> Match:
            if ours == "reg_token":
                return named(ours, "register_tokens")
            if folded and ours == "cls_token":
                return token_with_its_row(ours, "cls_token", "pos_embed")
            if folded and ours == "pos_embed":
                return rows_of_patches(ours, ours)
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


DINOV2 = DINOv2()
