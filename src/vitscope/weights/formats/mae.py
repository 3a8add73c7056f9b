"""MAE as its authors saved it: the encoder at the root, timm's names, and a decoder beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from vitscope.models.config import MAEConfig, ModelConfig
from vitscope.weights.files import Stored
from vitscope.weights.formats.fixed_positions import fixed_tables, strange_tables
from vitscope.weights.formats.timm import encoder_alone
from vitscope.weights.match import Format, Match, Unheld, named

DECODER = "the decoder, which only pre-training needs"


class MAEOriginal(Format):
    name = "MAE's own"

    def recognises(self, stored: Stored) -> bool:
        return "decoder_embed.weight" in stored and "patch_embed.proj.weight" in stored

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        return lambda ours: named(ours, encoder_alone(ours, config))

    def left_out(self, stored: Stored, config: ModelConfig) -> tuple[Unheld, ...]:
        tables = fixed_tables(stored, config)
        if isinstance(config, MAEConfig):
            return tables
        return (Unheld("decoder_*", DECODER), Unheld("mask_token", DECODER), *tables)

    def normalisation(self, stored: Stored) -> Literal["half", "imagenet"] | None:
        return "imagenet"

    def hint(self, stored: Stored, config: ModelConfig) -> str:
        return strange_tables(stored, config)


MAE_ORIGINAL = MAEOriginal()
