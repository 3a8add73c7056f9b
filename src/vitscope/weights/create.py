"""`create_model`: a network by name, with any setting changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitscope.core.config import is_config, updated
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig
from vitscope.models.variants import model_config


def create_model(name: str, *, pretrained: bool = False, **settings: Any) -> Any:
    """Build a registered model: `create_model("vit_small", num_classes=10, img_size=64)`.

    Any field of the model's config may be given. A field that is itself a config (the encoder of a masked model)
    takes a dict of changes: `create_model("mae_vit_base_patch16", encoder={"depth": 6})`.
    """
    config = configured(name, settings)
    if pretrained:
        raise VitscopeError(
            f"'{name}' has no pretrained weights here",
            where="create_model(..., pretrained=True)",
            fix="leave pretrained out, or load weights of your own with vitscope.load_model(folder)",
        )
    return build_model(config)


def configured(name: str, settings: Mapping[str, Any]) -> ModelConfig:
    """The settings behind a name, with some changed."""
    config = model_config(name)
    changes = {}
    for key, value in settings.items():
        held = getattr(config, key, None)
        if is_config(held) and isinstance(value, Mapping):
            value = updated(held, **value)
        changes[key] = value
    return updated(config, **changes)
