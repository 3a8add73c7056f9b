"""Where a model looks, laid over the picture: what the server asks of `infer.explain`, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from PIL import Image

from vitscope.core.errors import InputError, UsageError, expected
from vitscope.infer.explain.explain import METHODS, Method, explain
from vitscope.infer.explain.subject import has_attention
from vitscope.infer.predictor import Predictor
from vitscope.models.model import VisionModel

LARGEST = 4_000_000
"""Pixels of the picture that is drawn on: larger ones are made smaller first."""


@dataclass(frozen=True)
class Wish:
    """What is to be shown of a picture."""

    method: Method | str = "attention"
    layer: int = -1
    head: int | None = None
    """None: the mean of all."""
    target: int | str | None = None
    """The class to be explained, by its label or number, where the method asks for one; None: the likeliest."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(expected("method", f"one of {', '.join(METHODS)}", repr(self.method)))


def can_be_drawn(model: VisionModel) -> bool:
    return has_attention(model)


def draw_overlay(predictor: Predictor, picture: Image.Image, wish: Wish) -> Image.Image:
    """At the picture's own size. The map is not judged: that asks the model about hundreds of pictures."""
    try:
        found = explain(
            predictor,
            picture,
            cast("Method", wish.method),
            layer=wish.layer,
            head=wish.head,
            target=wish.target,
            draws=None,
        )
    except UsageError as error:  # of whoever asked over HTTP, not of whoever started the server
        raise InputError(error.what, fix=error.fix) from None
    return found.overlay()
