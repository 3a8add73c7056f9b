"""Functions of the owner's, seen before they are called: what takes other things than it will be given fails in every
check alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from vitscope.core.errors import InputError, expected


def refuse_other_calls(loss: Any, step: Any, evaluate: Any) -> None:
    """As far as their signatures tell; one that has none is taken as it is."""
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        name = f"nn.{loss.__name__}" if loss.__module__.startswith("torch.nn.") else loss.__name__
        raise InputError(expected("loss", "a function of (logits, labels)", f"the class {name}"), fix=f"loss={name}()")
    _refuse("loss", loss, ("logits", "labels"), "loss=lambda logits, labels: ...")
    _refuse("step", step, ("images", "labels"), "def step(images, labels): ..., one update of your training")
    _refuse("evaluate", evaluate, (), "evaluate=lambda: your_evaluation(model, loader)")


def _refuse(name: str, given: Callable[..., Any] | None, wanted: tuple[str, ...], fix: str) -> None:
    if given is None:
        return
    of_what = f"a function of ({', '.join(wanted)})" if wanted else "a function that is given nothing"
    if not callable(given):
        raise InputError(expected(name, of_what, type(given).__name__), fix=fix)
    try:
        signature = inspect.signature(given)
    except (ValueError, TypeError):  # some that are written in C have none
        return
    try:
        signature.bind(*wanted)
    except TypeError:
        received = f"one of ({', '.join(map(_plain, signature.parameters.values()))})"
        raise InputError(expected(name, of_what, received), fix=fix) from None


def _plain(parameter: inspect.Parameter) -> str:
    """Without its type."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    default = "" if parameter.default is inspect.Parameter.empty else "=..."
    return f"{stars.get(parameter.kind, '')}{parameter.name}{default}"
