"""Pictures that need no download."""

from __future__ import annotations

from PIL import Image
from sklearn.datasets import load_sample_image

from vitscope.core.errors import UsageError, expected
from vitscope.core.suggest import did_you_mean

BUILTIN_PICTURES = ("china", "flower")


def builtin_picture(name: str = "china") -> Image.Image:
    """One of scikit-learn's two photographs (640 x 427)."""
    if name not in BUILTIN_PICTURES:
        known = ", ".join(BUILTIN_PICTURES)
        raise UsageError(
            expected("picture", f"one of {known}", repr(name)),
            fix=did_you_mean(name, BUILTIN_PICTURES) or f"use {known}",
        )
    return Image.fromarray(load_sample_image(f"{name}.jpg"))
