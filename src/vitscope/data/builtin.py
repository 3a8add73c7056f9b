"""Pictures that need no download."""

from __future__ import annotations

from PIL import Image
from sklearn.datasets import load_sample_image

BUILTIN_PICTURES = ("china", "flower")


def builtin_picture(name: str = "china") -> Image.Image:
    """One of scikit-learn's two photographs (640 x 427)."""
    return Image.fromarray(load_sample_image(f"{name}.jpg"))
