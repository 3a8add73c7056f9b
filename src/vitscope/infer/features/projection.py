"""Features in two dimensions, to be drawn: the two directions they vary most in, or t-SNE's arrangement of neighbours.

Every vector is first brought to length 1, so that both look at what the cosine looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import UsageError, expected

Method = Literal["pca", "tsne"]
PERPLEXITY = 30.0
FIRST_TO = 50
"""Directions t-SNE looks at: the others are mostly noise, and cost time."""


@dataclass(frozen=True)
class Projection:
    """Where each picture lies."""

    points: np.ndarray
    """(N, 2)"""
    axes: tuple[str, str]
    """What the two directions are, for people; empty where they mean nothing."""


def project(values: Tensor, method: Method = "pca") -> Projection:
    """(N, D) -> (N, 2), the same for the same features."""
    from sklearn.decomposition import PCA

    if values.ndim != 2 or len(values) < 2:
        raise UsageError(
            expected("features", "one vector per picture, of at least two pictures", tuple(values.shape)),
            where="map",
            fix="take tokens 'pooled', 'cls' or 'mean', and more pictures",
        )
    vectors = F.normalize(values.float(), dim=1).numpy()
    least = min(vectors.shape)
    if method == "pca":
        pca = PCA(min(2, least), random_state=0)
        with np.errstate(invalid="ignore", divide="ignore"):  # pictures that are all the same vary by 0 of 0
            points = pca.fit_transform(vectors)
        shares = [*np.nan_to_num(pca.explained_variance_ratio_), 0.0][:2]
        points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
        first, second = (
            f"{name} direction, {share:.0%} of the variance" for name, share in zip(("1st", "2nd"), shares, strict=True)
        )
        return Projection(points, (first, second))
    from sklearn.manifold import TSNE

    if least > FIRST_TO:
        vectors = PCA(FIRST_TO, random_state=0).fit_transform(vectors)
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    points = TSNE(2, init="pca" if least > 1 else "random", perplexity=perplexity, random_state=0).fit_transform(
        vectors
    )
    return Projection(points, ("", ""))
