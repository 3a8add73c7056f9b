"""timm's names: ours, by design. DeiT's, DINO's and Swin's own files have them too; here lies what only those add."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Literal

from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, SwinConfig, ViTConfig
from vitscope.weights.files import Stored
from vitscope.weights.formats.fixed_positions import fixed_tables, strange_tables
from vitscope.weights.match import Format, Match, Unheld, named

STUDENT = "student.*"
DINO_TRAINING = (
    Unheld("head.mlp.*", "DINO's projection head, which only its training needs"),
    Unheld("head.last_layer.*", "DINO's projection head, which only its training needs"),
    Unheld("dino_head.*", "DINO's projection head, which only its training needs"),
    Unheld("ibot_head.*", "iBOT's projection head, which only its training needs"),
    Unheld("dino_loss.*", "a running mean, which only DINO's training needs"),
    Unheld("ibot_patch_loss.*", "a running mean, which only iBOT's training needs"),
    Unheld(STUDENT, "the student; its teacher is taken"),
)
PRE_LOGITS = (
    "between features and head they have a layer (pre_logits) that no model here has; take the features alone: "
    "give a config with num_classes=0"
)
DOWNSAMPLE = re.compile(r"^layers\.(\d+)\.downsample\.")


class Timm(Format):
    name = "timm"
    library = "timm"
    normalised_by = "DINO's"
    unheld = (
        *DINO_TRAINING,
        Unheld("*relative_position_index", "an index that is computed here"),
        Unheld("*attn_mask", "a mask that is computed here"),
    )

    def recognises(self, stored: Stored) -> bool:
        return "patch_embed.proj.weight" in stored or "conv1.weight" in stored

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        if isinstance(config, SwinConfig) and "layers.0.downsample.reduction.weight" in stored:
            return lambda ours: named(ours, _first_swin(ours))
        if "blocks.0.gamma_1" in stored:
            return lambda ours: named(ours, re.sub(r"\.ls([12])\.gamma$", r".gamma_\1", ours))
        return lambda ours: named(ours, encoder_alone(ours, config))

    def left_out(self, stored: Stored, config: ModelConfig) -> tuple[Unheld, ...]:
        return (*self.unheld, *fixed_tables(stored, config), *_before_the_head(config))

    def normalisation(self, stored: Stored) -> Literal["half", "imagenet"] | None:
        """Known of DINO alone, by what only its training has; timm's models differ among themselves."""
        heads = [one.pattern for one in DINO_TRAINING if one.pattern != STUDENT]  # teachers are not DINO's alone
        of_dino = any(fnmatchcase(name, pattern) for name in stored for pattern in heads)
        return "imagenet" if of_dino else None

    def hint(self, stored: Stored, config: ModelConfig) -> str:
        return strange_tables(stored, config) or _known_trouble(stored)


def encoder_alone(ours: str, config: ModelConfig) -> str:
    """Others keep the encoder of a masked model at the root."""
    return ours.removeprefix("encoder.") if isinstance(config, MAEConfig | SimMIMConfig) else ours


def _first_swin(ours: str) -> str:
    """The authors' names, and timm's first ones: a stage ends by merging patches, where here the next begins so."""
    ours = DOWNSAMPLE.sub(lambda found: f"layers.{int(found[1]) - 1}.downsample.", ours)
    return re.sub(r"^head\.fc\.", "head.", ours)


def _before_the_head(config: ModelConfig) -> tuple[Unheld, ...]:
    """A model without a head has no need of what prepares for it."""
    if not isinstance(config, ViTConfig) or config.num_classes:
        return ()
    return (Unheld("pre_logits.*", "a layer between the features and the head, and no head was asked for"),)


def _known_trouble(stored: Stored) -> str:
    if "fc_norm.weight" in stored:
        return (
            "they are of a ViT that takes the mean before its last norm (fc_norm), which no model here does; "
            "look for weights with a class token, or with timm's fc_norm=False"
        )
    if "norm_pre.weight" in stored:
        return "they are of a ViT with a norm before its blocks (norm_pre, as CLIP has), which no model here has"
    if any(name.startswith("pre_logits.") for name in stored):
        return PRE_LOGITS
    return ""


TIMM = Timm()
