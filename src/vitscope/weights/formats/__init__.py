"""Other people's formats: whose names a file has, and what they mean here."""

from __future__ import annotations

from vitscope.core.errors import VitscopeError
from vitscope.weights.files import Stored
from vitscope.weights.formats.dinov2 import DINOV2
from vitscope.weights.formats.google import GOOGLE
from vitscope.weights.formats.huggingface import HUGGINGFACE
from vitscope.weights.formats.mae import MAE_ORIGINAL
from vitscope.weights.formats.own import OWN
from vitscope.weights.formats.timm import TIMM
from vitscope.weights.match import Format

FORMATS: tuple[Format, ...] = (OWN, GOOGLE, HUGGINGFACE, MAE_ORIGINAL, DINOV2, TIMM)
"""In the order they are asked: the more special names first."""


def recognised(stored: Stored, *, where: str) -> Format:
    """The format of these tensors, by their names."""
    for known in FORMATS:
        if known.recognises(stored):
            return known
    names = list(stored)
    shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
    raise VitscopeError(
        f"the names of the {len(names)} tensors are of no known format: {shown}",
        where=where,
        fix=f"known are: {', '.join(known.name for known in FORMATS)}",
    )
