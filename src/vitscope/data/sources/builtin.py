"""Sets that need no download, and their settings written after the name: `shapes:size=64,count=2000`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vitscope.core.config import from_dict
from vitscope.core.errors import ConfigError, UsageError
from vitscope.data.config import DigitsConfig, ShapesConfig, SyntheticConfig
from vitscope.data.sources.source import Source

BUILTIN: dict[str, type] = {"digits": DigitsConfig, "shapes": ShapesConfig, "synthetic": SyntheticConfig}


def open_builtin(name: str) -> Source:
    """A built-in set by its name and settings."""
    short, _, text = name.partition(":")
    try:
        settings: Any = from_dict(BUILTIN[short], _settings(text))
    except ConfigError as error:
        error.where = f"data set '{name}'"
        raise
    return _opener(short)(name, settings)


def _opener(short: str) -> Callable[[str, Any], Source]:
    if short == "digits":
        from vitscope.data.sources.digits import Digits

        return Digits
    if short == "shapes":
        from vitscope.data.sources.shapes import Shapes

        return Shapes
    from vitscope.data.sources.synthetic import Synthetic

    return Synthetic


def _settings(text: str) -> dict[str, Any]:
    """'size=64,count=2000' -> {'size': 64, 'count': 2000}; all settings are whole numbers."""
    settings = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        plain = value.strip().replace("_", "")
        if not equals or not plain.isdecimal():
            raise UsageError(
                f"'{item}' is no setting",
                where=f"data set '...:{text}'",
                fix="write settings as name=number, with commas between: shapes:size=64,count=2000",
            )
        settings[key.strip()] = int(plain)
    return settings
