"""A picture as a vector: what the classifier sees of it."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel

KIND = "pooled as the model's own head sees it, after the last norm"


def pooled(model: VisionModel, images: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, D)."""
    model = model.encoder if isinstance(model, MaskedModel) else model
    return cast("Tensor", model.forward_head(model.forward_features(images), pre_logits=True))
