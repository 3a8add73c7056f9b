"""Our own names, as they are."""

from __future__ import annotations

from collections.abc import Callable

from vitscope.models.config import ModelConfig, ViTConfig
from vitscope.weights.encoder import BEFORE, PAINTS
from vitscope.weights.files import Stored
from vitscope.weights.match import Format, Match, Unheld, named

FIRST_LAYERS = ("encoder.patch_embed.proj.weight", "stages.0.conv1.weight", "lstm.weight_ih_l0")
PAINTERS = tuple(Unheld(pattern, PAINTS) for pattern in ("mask_token", "decoder.*", "decoder_*"))


class Own(Format):
    name = "vitscope"

    def recognises(self, stored: Stored) -> bool:
        """A masked model's encoder has its name before all its tensors, and nobody else has the CNN and the LSTM;
        everything else looks like timm's."""
        return any(name in stored for name in FIRST_LAYERS)

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        before = BEFORE if _only_the_encoder(stored, config) else ""
        return lambda ours: named(ours, before + ours)

    def left_out(self, stored: Stored, config: ModelConfig) -> tuple[Unheld, ...]:
        return PAINTERS if _only_the_encoder(stored, config) else ()

    def remarks(self, stored: Stored, config: ModelConfig) -> tuple[str, ...]:
        return ("of a masked model, only the encoder is taken",) if _only_the_encoder(stored, config) else ()


def _only_the_encoder(stored: Stored, config: ModelConfig) -> bool:
    """Whether these are weights of a masked model, and a plain ViT is asked for."""
    return FIRST_LAYERS[0] in stored and isinstance(config, ViTConfig)


OWN = Own()
