"""Our own names, as they are."""

from __future__ import annotations

from collections.abc import Callable

from vitscope.models.config import ModelConfig
from vitscope.weights.files import Stored
from vitscope.weights.match import Format, Match, named

FIRST_LAYERS = ("encoder.patch_embed.proj.weight", "stages.0.conv1.weight", "lstm.weight_ih_l0")


class Own(Format):
    name = "vitscope"

    def recognises(self, stored: Stored) -> bool:
        """A masked model's encoder has its name before all its tensors, and nobody else has the CNN and the LSTM;
        everything else looks like timm's."""
        return any(name in stored for name in FIRST_LAYERS)

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        return lambda ours: named(ours, ours)


OWN = Own()
