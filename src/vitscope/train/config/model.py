"""Which network: a name of `vitscope models`, and every setting of its family.

The section has the fields of the family the name belongs to, so its class is made per family: `named_model("vit_tiny")`
is a ViTConfig with a name.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from vitscope.core.config import OneOf, config, field_names, from_dict, to_dict, updated
from vitscope.core.errors import ConfigError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.models.build import CONFIGS
from vitscope.models.config import ModelConfig
from vitscope.models.variants import VARIANTS, model_config


class ModelSection(OneOf):
    """A model's settings with its name in front."""

    tag = "family"
    name: str
    family: str

    @classmethod
    def chosen(cls, data: Mapping[str, Any], *, where: str | None = None) -> ModelSection:
        """`{name: vit_tiny, depth: 6}`, or `{family: vit, embed_dim: 96, ...}` for a network without a name."""
        settings = dict(data)
        family = settings.pop("family", None)
        name = settings.get("name")
        if name is not None and not isinstance(name, str):
            raise ConfigError(expected("name", "the name of a model", repr(name)), where=where)
        if family is None and name in CONFIGS:  # a network without a name of its own bears its family's
            family = name
        if family is not None and family not in CONFIGS:
            raise ConfigError(
                expected("family", f"one of {', '.join(CONFIGS)}", repr(family)),
                where=where,
                fix=did_you_mean(str(family), CONFIGS),
            )
        start: dict[str, Any] = {"name": name or family}
        if family is None or (name is not None and name in VARIANTS and VARIANTS[name].family == family):
            preset = model_config(name or "vit_tiny")
            family = preset.family
            start = {"name": name or "vit_tiny", **to_dict(preset)}
        return from_dict(_section_class(family), {**start, **settings}, where=where)

    @property
    def bare(self) -> ModelConfig:
        """The settings without the name: what a network is built from."""
        cls = CONFIGS[self.family]
        return cls(**{key: getattr(self, key) for key in field_names(cls)})

    def changed(self, **settings: Any) -> ModelSection:
        """The same with some settings changed."""
        return updated(self, **settings)


def named_model(name: str, settings: ModelConfig | None = None) -> ModelSection:
    """The section of a registered name, or of settings of one's own under a name."""
    settings = model_config(name) if settings is None else settings
    return _section_class(settings.family)(
        name=name, **{key: getattr(settings, key) for key in field_names(type(settings))}
    )


@config
class _Name:
    name: str = ""
    """A model of `vitscope models`."""


@functools.cache
def _section_class(family: str) -> type[Any]:
    settings = CONFIGS[family]
    # `_Name` last: fields are collected from the last base on, and the name shall stand first.
    cls = type(f"Named{settings.__name__}", (settings, _Name, ModelSection), {"__doc__": settings.__doc__})
    cls.__module__ = settings.__module__
    return config(cls)
