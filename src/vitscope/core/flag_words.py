"""What a flag takes, in words for whoever types it, an example, and how what was typed should have been."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Sequence
from typing import Any

from vitscope.core.config import describe_type

ONE = {int: "a whole number", float: "a number", str: "a value"}
MANY = {int: "whole numbers", float: "numbers", str: "values"}
MANY_OF = {ONE[kind]: MANY[kind] for kind in ONE}
EXAMPLES = {int: "10", float: "0.1"}
BRACKETS = ("[", "(", "{")
WHOLE = re.compile(r"[+-]?\d+")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")


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
    if args and args[-1] is Ellipsis and typing.get_origin(args[0]) is typing.Literal:
        return describe_type(args[0]).replace("one of ", "one or more of ", 1)
    return ONE.get(kind) or describe_type(kind)


def example(hint: Any, given: Any = None) -> str | None:
    """The value it has anyhow; of numbers, any."""
    if isinstance(given, str) and given:
        return given
    values = given if isinstance(given, tuple) else (given,)
    if values and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return " ".join(str(one) if isinstance(one, int) else f"{one:g}" for one in values)
    kind = _kinds(hint)[0]
    args = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and args and args[0] in EXAMPLES:
        return " ".join([EXAMPLES[args[0]]] * (1 if args[-1] is Ellipsis else len(args)))
    return EXAMPLES.get(kind)


def as_flags_take_it(hint: Any, given: Sequence[str], choices: Sequence[str] = ()) -> str | None:
    """Numbers as other tools and languages write them, as they are typed here: '[64,64]' -> '64 64', '0,001' ->
    '0.001'; words to choose from likewise: 'flip,crops' -> 'flip crops'. None where nothing of that kind was given, or
    the flag takes others."""
    if not any("," in word or word.startswith(BRACKETS) for word in given):
        return None
    if len(given) == 1 and DECIMAL_COMMA.fullmatch(given[0]) and float in _kinds(hint):
        return given[0].replace(",", ".")
    takes_several = any(typing.get_origin(kind) is tuple for kind in _kinds(hint))
    if len(given) == 1 and THOUSANDS.fullmatch(given[0]) and int in _kinds(hint) and not takes_several:
        return given[0].replace(",", "")
    words = " ".join(given).strip("[](){} ").replace(",", " ").split()
    if takes_several and words and all(word in choices for word in words):
        return " ".join(words)
    return " ".join(words) if any(_takes(kind, words) for kind in _kinds(hint)) else None


def _takes(kind: Any, words: Sequence[str]) -> bool:
    """Whether a type is that of these numbers."""
    args = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and args:
        kinds = args[:1] * len(words) if args[-1] is Ellipsis else args
    else:
        kinds = (kind,)
    numbers = {int: WHOLE, float: NUMBER}
    return len(kinds) == len(words) and all(
        one in numbers and numbers[one].fullmatch(word) is not None for one, word in zip(kinds, words, strict=True)
    )


def _kinds(hint: Any) -> list[Any]:
    """What a union is made of, less None."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [kind for kind in (typing.get_args(hint) if is_union else (hint,)) if kind is not type(None)]
