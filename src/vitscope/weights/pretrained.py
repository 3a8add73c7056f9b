"""Which published weights `create_model(..., pretrained=True)` begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from vitscope.core.errors import VitscopeError
from vitscope.models.config import ModelConfig, pair
from vitscope.models.variants import VARIANTS


@dataclass(frozen=True)
class Published:
    """Weights somebody trained and published."""

    model: str
    """The model they are of, by its name here and in timm."""
    hub: str
    """Their name on the hub."""


# timm's first choice for each of its names.
TAGS = {
    "augreg2_in21k_ft_in1k": ("vit_base_patch8_224", "vit_base_patch16_224"),
    "augreg_in21k_ft_in1k": (
        "vit_tiny_patch16_224",
        "vit_tiny_patch16_384",
        "vit_small_patch16_224",
        "vit_small_patch16_384",
        "vit_small_patch32_224",
        "vit_small_patch32_384",
        "vit_base_patch16_384",
        "vit_base_patch32_224",
        "vit_base_patch32_384",
        "vit_large_patch16_224",
        "vit_large_patch16_384",
    ),
    "orig_in21k_ft_in1k": ("vit_large_patch32_384",),
    "orig_in21k": ("vit_large_patch32_224", "vit_huge_patch14_224"),
    "dino": ("vit_small_patch8_224",),
    "lvd142m": tuple(
        f"vit_{size}_patch14_{kind}"
        for size in ("small", "base", "large", "giant")
        for kind in ("dinov2", "reg4_dinov2")
    ),
    "fb_in1k": (
        "deit_tiny_patch16_224",
        "deit_small_patch16_224",
        "deit_base_patch16_224",
        "deit_base_patch16_384",
        "deit_tiny_distilled_patch16_224",
        "deit_small_distilled_patch16_224",
        "deit_base_distilled_patch16_224",
        "deit_base_distilled_patch16_384",
    ),
    "ms_in1k": ("swin_tiny_patch4_window7_224",),
    "ms_in22k_ft_in1k": (
        "swin_small_patch4_window7_224",
        "swin_base_patch4_window7_224",
        "swin_base_patch4_window12_384",
    ),
    "a1_in1k": ("resnet18", "resnet34", "resnet50"),
}
# Our own names: photographs at 224 as they are, and for small pictures the same layers, resampled.
SAME_LAYERS = {
    "vit_small_imagenet": "vit_small_patch16_224",
    "vit_base_imagenet": "vit_base_patch16_224",
    "vit_large_imagenet": "vit_large_patch16_224",
    "vit_small": "vit_small_patch16_224",
    "vit_base": "vit_base_patch16_224",
}

PRETRAINED: dict[str, Published] = {
    name: Published(name, f"timm/{name}.{tag}") for tag, names in TAGS.items() for name in names
}
PRETRAINED |= {name: PRETRAINED[model] for name, model in SAME_LAYERS.items()}
"""Model -> the weights it begins with."""


def published_for(name: str) -> Published:
    """The weights of a model, or a refusal that names models that have some."""
    if name not in PRETRAINED:
        _refuse(name, VARIANTS[name].config)
    return PRETRAINED[name]


def _refuse(name: str, config: ModelConfig) -> NoReturn:
    others = _nearest(config)
    fix = "leave pretrained out, or load weights of your own: load_model(source, config=...)"
    if others:
        shown = " and ".join(f"create_model('{other}', pretrained=True)" for other in others)
        fix = f"models that have some: {shown}; or {fix}"
    raise VitscopeError(
        f"'{name}' has no pretrained weights: nobody has published any for its layers",
        where="create_model(..., pretrained=True)",
        fix=fix,
    )


def _nearest(config: ModelConfig) -> list[str]:
    """Of the same family, the model nearest in width, and the one nearest in width for pictures of this size."""
    config = getattr(config, "encoder", config)
    family = [name for name in PRETRAINED if VARIANTS[name].family == config.family]

    def distance(name: str) -> int:
        other = VARIANTS[name].config
        return abs(getattr(other, "embed_dim", 0) - getattr(config, "embed_dim", 0))

    same_size = [name for name in family if pair(VARIANTS[name].config.img_size) == pair(config.img_size)]
    nearest = [min(names, key=distance) for names in (family, same_size) if names]
    return list(dict.fromkeys(nearest))
