"""Our own names, as they are."""

from __future__ import annotations

from collections.abc import Callable

from vitscope.models.config import ModelConfig
from vitscope.weights.files import Stored
from vitscope.weights.match import Format, Match, named


class Own(Format):
    name = "vitscope"

    def recognises(self, stored: Stored) -> bool:
        """A masked model's encoder has its name before all its tensors; everything else looks like timm's."""
        return "encoder.patch_embed.proj.weight" in stored

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        return lambda ours: named(ours, ours)


OWN = Own()
