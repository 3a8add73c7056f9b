"""Settings in others' files may have any value. What cannot be read becomes a refusal that says where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vitscope.core.config import shortened
from vitscope.core.errors import ConfigError, VitscopeError, expected

UNREADABLE = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, RuntimeError)
"""What a value of another kind than the one meant leads to."""


@contextmanager
def refusing_damage(where: str, key: str | None = None) -> Iterator[None]:
    """Around code that reads settings from the file `where`; `key` is the one it reads, if it is one."""
    try:
        yield
    except VitscopeError as error:
        error.where = error.where or where
        raise
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        subject = "a setting" if key is None else key
        raise ConfigError(
            f"{subject} has a value that cannot be read: {shown(reason)}",
            where=where,
            fix="copy or download the file again, or load the weights file by itself: load_model(file, config=...)",
        ) from None


def numbers(value: Any, key: str, count: int | None, *, where: str) -> tuple[float, ...]:
    """A list of numbers, of this length if one is given."""
    wanted = "a list of numbers" if count is None else f"a list of {count} numbers"
    refusal = ConfigError(expected(key, wanted, shortened(value)), where=where, fix="correct it in that file")
    if not isinstance(value, list | tuple) or (count is not None and len(value) != count) or not value:
        raise refusal
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in value):
        raise refusal
    with refusing_damage(where, key):
        return tuple(map(float, value))


def shown(value: object) -> str:
    """A value in an error message: words as they are, anything long or unprintable cut and spelled out."""
    text = str(value)
    return text if len(text) <= 80 and text.isprintable() else shortened(value)
