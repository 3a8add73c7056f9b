"""Rendered shapes: a small picture question with a known answer. The label is the form; everything else varies.

Every picture is a function of (seed, index): background and form in colours that can be told apart, the form anywhere,
at any angle, of any size that can be seen, among clutter of dots and lines that are never a form. Drawn four times as
large and averaged down, so edges are smooth at any size.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from PIL import Image, ImageDraw

from vitscope.core.config import to_dict
from vitscope.core.seed import derive_seed
from vitscope.data.config import ShapesConfig
from vitscope.data.sources.source import Source

SMOOTHING = 4
"""Drawn this many times as large, then averaged."""
LEAST_CONTRAST = 60
"""Between the form's grey and the background's, of 255."""
Point = tuple[float, float]


def _around(corners: int, *, inner: float = 1.0, turn: float = 0.0) -> list[Point]:
    """Corners on the unit circle; every second one drawn in to `inner`, for stars."""
    steps = corners * 2 if inner < 1 else corners
    angles = [turn + 2 * math.pi * step / steps for step in range(steps)]
    return [
        (
            (inner if step % 2 and inner < 1 else 1.0) * math.cos(angle),
            (inner if step % 2 and inner < 1 else 1.0) * math.sin(angle),
        )
        for step, angle in enumerate(angles)
    ]


def _cross(arm: float = 0.34) -> list[Point]:
    return [
        (-arm, -1), (arm, -1), (arm, -arm), (1, -arm), (1, arm), (arm, arm),
        (arm, 1), (-arm, 1), (-arm, arm), (-1, arm), (-1, -arm), (-arm, -arm),
    ]  # fmt: skip


# Form -> (outline, hole), in a unit circle. A hole shows the background.
FORMS: dict[str, tuple[list[Point], list[Point]]] = {
    "circle": (_around(48), []),
    "square": (_around(4, turn=math.pi / 4), []),
    "triangle": (_around(3), []),
    "star": (_around(5, inner=0.42), []),
    "cross": (_cross(), []),
    "ring": (_around(48), [(0.58 * x, 0.58 * y) for x, y in _around(48)]),
    "bar": ([(-1, -0.24), (1, -0.24), (1, 0.24), (-1, 0.24)], []),
    "half moon": ([point for point in _around(48) if point[1] >= -1e-9], []),
    "hexagon": (_around(6), []),
    "frame": (_around(4, turn=math.pi / 4), [(0.58 * x, 0.58 * y) for x, y in _around(4, turn=math.pi / 4)]),
}


class Shapes(Source):
    kind = "built-in shapes"

    def __init__(self, place: str, config: ShapesConfig) -> None:
        self.config = config
        labels = np.arange(config.count) % config.classes
        super().__init__(place, labels, list(FORMS)[: config.classes])

    def read(self, index: int) -> np.ndarray:
        form = self.class_names[self.labels[index]]
        return render_shape(form, self.config.size, derive_seed(self.config.seed, "shapes", index))

    def where(self, index: int) -> str:
        return f"{self.place}, picture {index}"

    def content_hash(self) -> str:
        return hashlib.blake2b(f"shapes 1 {to_dict(self.config)}".encode(), digest_size=16).hexdigest()


def render_shape(form: str, size: int, seed: int) -> np.ndarray:
    """One picture (size, size, 3) of uint8."""
    rng = np.random.default_rng(seed)
    side = size * SMOOTHING
    ground, colour = _two_colours(rng)
    sheet = Image.new("RGB", (side, side), ground)
    draw = ImageDraw.Draw(sheet)
    _clutter(draw, side, rng, int(rng.integers(0, 7)))
    radius = side * rng.uniform(0.17, 0.38)
    x, y = rng.uniform(radius * 0.9, side - radius * 0.9, 2)
    angle = rng.uniform(0, 2 * math.pi)
    outline, hole = FORMS[form]
    draw.polygon(_placed(outline, x, y, radius, angle), fill=colour)
    if hole:
        draw.polygon(_placed(hole, x, y, radius, angle), fill=ground)
    small = np.asarray(sheet.reduce(SMOOTHING), dtype=np.float32)
    noise = rng.normal(0, rng.uniform(0, 12), small.shape)
    return np.clip(np.rint(small + noise), 0, 255).astype(np.uint8)


def _two_colours(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Any two that differ in brightness too: the answer must not hang on colour vision."""
    while True:
        ground, colour = rng.integers(0, 256, (2, 3))
        if abs(int(ground.mean()) - int(colour.mean())) >= LEAST_CONTRAST:
            return tuple(map(int, ground)), tuple(map(int, colour))


def _clutter(draw: ImageDraw.ImageDraw, side: int, rng: np.random.Generator, count: int) -> None:
    """Dots and thin lines under the form."""
    for _ in range(count):
        colour = tuple(map(int, rng.integers(0, 256, 3)))
        x, y, u, v = rng.uniform(0, side, 4)
        if rng.random() < 0.5:
            draw.line((x, y, u, v), fill=colour, width=max(1, side // 40))
        else:
            spot = side * rng.uniform(0.01, 0.04)
            draw.ellipse((x - spot, y - spot, x + spot, y + spot), fill=colour)


def _placed(points: list[Point], x: float, y: float, radius: float, angle: float) -> list[Point]:
    cos, sin = radius * math.cos(angle), radius * math.sin(angle)
    return [(x + a * cos - b * sin, y + a * sin + b * cos) for a, b in points]
