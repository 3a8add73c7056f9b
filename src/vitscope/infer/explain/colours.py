"""Maps in colour: alone, and over a picture. H W the picture, h w a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from vitscope.infer.explain.frame import Frame

COLOURS = "inferno"
"""Even steps look even, dark is little, and it prints in grey."""
LEAST_RANGE = 0.2
"""In mean patches: a map that is flatter stays dull, not magnified noise."""
UNSEEN = 0.3
"""What is left of the light where the model was shown nothing."""
STRONGEST, FAINTEST = 0.8, 0.1
"""How much of the colour covers the picture, where the map is highest and lowest."""


def limits(values: np.ndarray) -> tuple[float, float]:
    """The lowest and highest value of a scale."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return low, max(high, low + LEAST_RANGE)


def levels(values: np.ndarray, scale: tuple[float, float] | None = None) -> np.ndarray:
    """From 0 to 1 on the scale, by default the map's own."""
    low, high = scale or limits(values)
    return np.clip((values - low) / (high - low), 0, 1)


def coloured(shares: np.ndarray, *, name: str = COLOURS) -> np.ndarray:
    """Shares from 0 to 1 as RGB of uint8; light grey where there is none (NaN)."""
    from matplotlib import colormaps

    table: Any = colormaps[name]
    palette = (table(np.linspace(0, 1, 256))[:, :3] * 255).round().astype(np.uint8)
    places = (np.nan_to_num(shares) * 255).round().astype(np.uint8)
    pixels = palette[places]
    pixels[np.isnan(shares)] = 232
    return pixels


def laid_over(
    picture: Image.Image, frame: Frame, values: np.ndarray, scale: tuple[float, float] | None = None
) -> Image.Image:
    """A map (h, w) over a picture of any size, in bright colours where it is high. The picture below is grey, so that
    every colour is the map's; what was not seen is dimmed."""
    frame = frame.scaled((picture.height, picture.width))
    shares = frame.spread(levels(values, scale))
    grey = np.asarray(picture.convert("L"))
    unseen = np.isnan(shares)
    cover = np.where(unseen, 0, FAINTEST + (STRONGEST - FAINTEST) * np.nan_to_num(shares)).astype(np.float32)
    light = np.where(unseen, UNSEEN, 1.0).astype(np.float32)
    mixed = (grey * light * (1 - cover))[..., None] + coloured(np.nan_to_num(shares)) * cover[..., None]
    return Image.fromarray(mixed.round().astype(np.uint8))
