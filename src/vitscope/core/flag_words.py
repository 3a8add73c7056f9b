"""What a flag takes, in words for whoever types it, and an example."""

from __future__ import annotations

import types
import typing
from typing import Any

from vitscope.core.config import describe_type

ONE = {int: "a whole number", float: "a number", str: "a word"}
MANY = {int: "whole numbers", float: "numbers", str: "words"}
MANY_OF = {ONE[kind]: MANY[kind] for kind in ONE}
EXAMPLES = {int: "10", float: "0.1"}


def wanted(hint: Any) -> str:
    """`int | None` -> 'a whole number': a flag that may be left out still needs its value where it stands."""
    kinds = _kinds(hint)
    if len(kinds) > 1:
        words = [wanted(kind) for kind in kinds]
        several = {word.removeprefix("one or more ") for word in words}  # one is among them
        return " or ".join(word for word in words if MANY_OF.get(word) not in several)
    kind, args = kinds[0], typing.get_args(kinds[0])
    if typing.get_origin(kind) is tuple and args and args[0] in MANY:
        if args[-1] is Ellipsis:
            return f"one or more {MANY[args[0]]}"
        if set(args) == {args[0]}:
            return f"{len(args)} {MANY[args[0]]}"
    return ONE.get(kind) or describe_type(kind)


def example(hint: Any, given: Any = None) -> str | None:
    """Of numbers only: the value it has anyhow, or any."""
    values = given if isinstance(given, tuple) else (given,)
    if values and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return " ".join(str(one) if isinstance(one, int) else f"{one:g}" for one in values)
    kind = _kinds(hint)[0]
    args = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and args and args[0] in EXAMPLES:
        return " ".join([EXAMPLES[args[0]]] * (1 if args[-1] is Ellipsis else len(args)))
    return EXAMPLES.get(kind)


def _kinds(hint: Any) -> list[Any]:
    """What a union is made of, less None."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [kind for kind in (typing.get_args(hint) if is_union else (hint,)) if kind is not type(None)]
