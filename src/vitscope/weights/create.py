"""`create_model`: a network by name, with any setting changed, new or with published weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vitscope.core.config import field_names, is_config, updated
from vitscope.core.errors import ConfigError
from vitscope.core.suggest import did_you_mean
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig
from vitscope.models.variants import model_config
from vitscope.weights.fit import refuse_other_layers
from vitscope.weights.pretrained import published_for

if TYPE_CHECKING:
    from vitscope.models.model import VisionModel


def create_model(name: str, *, pretrained: bool = False, **settings: Any) -> VisionModel:
    """Build a registered model: `create_model("vit_small", num_classes=10, img_size=64)`.

    Any field of the model's config may be given. A masked model hands on what only its encoder has:
    `create_model("mae_vit_base_patch16", img_size=64, depth=6)`, the same as `encoder={"img_size": 64, "depth": 6}`.

    `pretrained` takes published weights from the hub (`weights/pretrained.py` lists them) and moves them to the
    settings: picture and patch size and channels are resampled, and where the classes differ the head is new, which is
    said. Other layers than the weights have are refused. `model.certificate` tells what became of every tensor, and
    `model.preprocessing` what pictures must go through. As every model made here, it is in train mode.
    """
    config = with_settings(model_config(name), settings)
    if not pretrained:
        return build_model(config)
    from vitscope.weights.load import load_model  # which needs `with_settings`

    published = published_for(name)
    # Before anything is downloaded; the hub's own description is compared again afterwards.
    where = f"create_model('{name}', pretrained=True)"
    refuse_other_layers(model_config(published.model), config, where=where, fix="leave pretrained out")
    return load_model(published.hub, config=config).train()


def with_settings(config: ModelConfig, settings: Mapping[str, Any]) -> ModelConfig:
    """A model's config with some settings changed, its encoder's too where it has one."""
    own, inner = _sorted_out(config, settings)
    changes = {}
    for key, value in own.items():
        held = getattr(config, key, None)
        if is_config(held) and isinstance(value, Mapping):
            value = updated(held, **value)
        changes[key] = value
    if inner:
        encoder = changes.get("encoder", getattr(config, "encoder", None))
        # What is no config is refused, with words, where the whole is put together.
        changes["encoder"] = updated(encoder, **inner) if is_config(encoder) else encoder
    return updated(config, **changes)


def _sorted_out(config: ModelConfig, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the model itself, and those that only its encoder has."""
    encoder = getattr(config, "encoder", None)
    if encoder is None:
        return dict(settings), {}
    outer, inner = field_names(type(config)), field_names(type(encoder))
    for key in settings:
        if key not in outer and key not in inner:
            names = [*outer, *inner]
            synonyms = {**type(encoder).synonyms, **type(config).synonyms}
            raise ConfigError(
                f"neither {type(config).__name__} nor its encoder, {type(encoder).__name__}, has a setting '{key}'",
                fix=did_you_mean(key, names, synonyms) or f"they have: {', '.join(names)}",
            )
    own = {key: value for key, value in settings.items() if key in outer}
    return own, {key: value for key, value in settings.items() if key not in outer}
