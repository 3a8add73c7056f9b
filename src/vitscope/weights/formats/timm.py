"""timm's names: ours, by design. DeiT's and DINO's own files have them too; here lies what only those add."""

from __future__ import annotations

from collections.abc import Callable

from vitscope.models.config import ModelConfig
from vitscope.weights.files import Stored
from vitscope.weights.match import Format, Match, Unheld, named


class Timm(Format):
    name = "timm"
    library = "timm"
    unheld = (
        Unheld("head.mlp.*", "DINO's projection head, which only its training needs"),
        Unheld("head.last_layer.*", "DINO's projection head, which only its training needs"),
        Unheld("dino_head.*", "DINO's projection head, which only its training needs"),
        Unheld("ibot_head.*", "iBOT's projection head, which only its training needs"),
        Unheld("*relative_position_index", "an index that is computed here"),
        Unheld("*attn_mask", "a mask that is computed here"),
    )

    def recognises(self, stored: Stored) -> bool:
        return "patch_embed.proj.weight" in stored or "conv1.weight" in stored

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        return _same_name


def _same_name(ours: str) -> Match:
    return named(ours, ours)


TIMM = Timm()
