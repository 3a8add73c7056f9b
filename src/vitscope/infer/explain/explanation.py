"""A map of where a model looks in one picture, with all that helps to judge it. H W the picture, h w the patches."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitscope.infer.explain.colours import laid_over
from vitscope.infer.explain.faithfulness import Faithfulness
from vitscope.infer.explain.frame import Frame
from vitscope.infer.explain.heads import LayerHeads
from vitscope.infer.explain.norms import TokenNorms
from vitscope.infer.prediction import Guess, Prediction

TITLES = {"attention": "attention", "rollout": "attention rollout", "gradient_rollout": "gradient rollout"}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What `explain` found."""

    method: str
    layer: int
    """Counted from 0; of rollouts the last they went through."""
    head: int | None
    patch: tuple[int, int] | None
    looker: str
    """Who looks, in words, as in "the class token looks"."""
    map: np.ndarray = field(repr=False)
    """(h, w): how much each patch counts, in the method's own units."""
    faithfulness: Faithfulness | None = field(repr=False)
    """None where it was not asked for."""
    prediction: Prediction | None
    """None for a model without classes, as is the next."""
    target: Guess | None
    """The class that is explained."""
    heads: tuple[LayerHeads, ...] = field(repr=False)
    """Distance and entropy of every head, layer by layer."""
    norms: TokenNorms = field(repr=False)
    looks: tuple[np.ndarray, ...] = field(repr=False)
    """Of each layer (heads, h, w): what each patch gets from who looks."""
    pool: np.ndarray | None = field(repr=False)
    """(heads, h, w): what an attention pool takes of each patch, where there is one."""
    picture: Image.Image = field(repr=False)
    """Upright, at its own size."""
    frame: Frame = field(repr=False)
    """Which part of it the model saw."""
    name: str | None
    num_tokens: int
    prefix: tuple[str, ...]
    """What the tokens before the patches are."""
    even_distance_px: float
    """The attention distance of a head that looks at all patches alike."""

    @property
    def title(self) -> str:
        """What the map is."""
        if self.method == "gradient_rollout":
            return TITLES[self.method]
        if self.method == "rollout":
            return f"{TITLES[self.method]}, layers 0 to {self.layer}"
        heads = len(self.looks[self.layer])
        which = f"head {self.head}" if self.head is not None else f"mean of {heads} heads" if heads > 1 else "its head"
        return f"{TITLES[self.method]}, layer {self.layer}, {which}"

    @property
    def shows(self) -> str:
        """What the map shows, in words."""
        if self.method == "gradient_rollout" and self.target is not None:
            return f"what speaks for '{self.target.label}'"
        return f"where {self.looker}"

    @property
    def grid(self) -> tuple[int, int]:
        """Patches (down, across)."""
        return self.map.shape[0], self.map.shape[1]

    def heat(self, *, smooth: bool = True) -> np.ndarray:
        """(H, W): the map over the whole picture, 1 being the mean patch; NaN where the model was shown nothing."""
        return self.frame.spread(in_means(self.map), smooth=smooth)

    def overlay(self) -> Image.Image:
        """The picture with the map laid over it, at the picture's own size. What the model did not see is dimmed."""
        return laid_over(self.picture, self.frame, in_means(self.map))

    def save(self, path: str | Path) -> Path:
        """As a PNG: picture, map, overlay, and the curves that judge the map."""
        from vitscope.infer.explain.panel import draw_panel

        return draw_panel(self, path)

    def save_sheet(self, path: str | Path) -> Path:
        """As a PNG: a small map for each head of each layer."""
        from vitscope.infer.explain.sheet import draw_sheet

        return draw_sheet(self, path)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        left, top, right, bottom = self.frame.box
        return {
            "path": self.name,
            "method": self.method,
            "layer": self.layer,
            "head": self.head,
            "patch": self.patch,
            "looker": self.looker,
            "prediction": None if self.prediction is None else self.prediction.to_dict(),
            "target": None if self.target is None else vars(self.target),
            "faithfulness": None if self.faithfulness is None else self.faithfulness.to_dict(),
            "map": self.map.tolist(),
            "size": {"height": self.frame.size[0], "width": self.frame.size[1]},
            "seen": {"left": left, "top": top, "right": right, "bottom": bottom},
            "heads": [vars(layer) for layer in self.heads],
            "even_distance_px": self.even_distance_px,
            "num_tokens": self.num_tokens,
            "norms": {
                "patches": self.norms.patches.tolist(),
                "prefix": dict(zip(self.prefix, self.norms.prefix, strict=True)),
                "median": self.norms.median,
                "limit": self.norms.limit,
                "outliers": self.norms.outliers,
            },
        }


def in_means(values: np.ndarray) -> np.ndarray:
    """As multiples of the mean patch, so that maps of all methods read alike; all 1 where there is nothing."""
    mean = values.mean()
    return values / mean if mean > 0 else np.ones_like(values)
