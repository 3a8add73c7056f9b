"""`--model.*`: the settings of the model a verb names, as one more section of its flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from vitscope.core.config import config, field_names
from vitscope.models.config import ModelConfig
from vitscope.models.variants import VARIANTS

C = TypeVar("C")


def named_model(args: Sequence[str]) -> str | None:
    """The name decides which flags there are, so it is looked for before they are read: first, or anywhere."""
    if args and not args[0].startswith("-"):
        return args[0]
    return next((arg for arg in args if arg in VARIANTS), None)


def name_first(args: Sequence[str], name: str) -> list[str]:
    """Else `--img-size 48 NAME` would take it for a width."""
    place = args.index(name)
    return [name, *args[:place], *args[place + 1 :]]


def with_model(cls: type[C], preset: ModelConfig) -> C:
    """A command with the section `model`, whose values are the preset's."""
    section = {"__annotations__": {"model": type(preset)}, "__doc__": cls.__doc__, "model": preset}
    made: Any = type(cls.__name__, (cls,), section)
    made.__module__ = cls.__module__
    return config(made)()


def changes_of(name: str | None, model: ModelConfig | None) -> dict[str, Any]:
    """The settings that flags have changed; none of what has no section."""
    preset = None if name is None or name not in VARIANTS else VARIANTS[name].config
    if preset is None or model is None:
        return {}
    values = {key: getattr(model, key) for key in field_names(type(model))}
    return {key: value for key, value in values.items() if value != getattr(preset, key)}
