"""Small models that look, for the tests of explain."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

from parity.random_weights import fill_with_large_random_weights
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 5}
KINDS: dict[str, dict[str, Any]] = {
    "class token": {},
    "registers": {"num_registers": 3},
    "distilled": {"distilled": True},
    "mean pool": {"class_token": False, "pool": "mean"},
    "mean pool with class token": {"pool": "mean", "num_registers": 1},
    "attention pool": {"class_token": False, "pool": "attention"},
    "attention pool with class token": {"pool": "attention"},
    "patch 14": {"img_size": 42, "patch_size": 14},
    "non-square": {"img_size": (32, 64), "patch_size": (8, 16)},
    "layer scale": {"layer_scale": 0.5},
    "qk norm": {"qk_norm": True},
    "rope": {"position": "rope", "num_registers": 1},
    "relative": {"position": "relative"},
    "post norm": {"norm_order": "post"},
    "heads per block": {"num_heads": (4, 2, 1), "head_dim": 8},
    "grey": {"in_chans": 1},
}


def vit(**settings: Any) -> Any:
    """With large weights, so that its attention is far from even."""
    model = build_model(ViTConfig(**{**SMALL, **settings}))
    fill_with_large_random_weights(model)
    return model.eval()


def predictor(**settings: Any) -> Predictor:
    return Predictor(vit(**settings), device="cpu")


def photograph(height: int = 60, width: int = 90, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def seeing(model: Predictor, picture: Image.Image) -> torch.Tensor:
    """The picture as the model is given it."""
    from vitscope.data.preprocess import preprocess

    return preprocess(picture, model.preprocessing)[None]
