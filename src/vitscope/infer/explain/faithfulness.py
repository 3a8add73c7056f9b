"""Is what a map marks what the answer depends on? Patches are taken away in the map's order, and put back in it.

Deletion and insertion as in Petsiuk et al. 2018 (RISE, arXiv 1806.07421), patch by patch; a patch that is gone has the
picture's mean colour. Score: the area under the insertion curve less that under the deletion curve, from -1 to 1.

Chance is the same map put somewhere else at random: as many patches, just as clumped. Patches strewn at random can be
too easy an opponent: where an answer depends on one region, smooth maps that know nothing beat all 19 draws of them in
29 % of cases, and 19 moved maps in 10 % (5 % is meant; 200 maps on the toy of the tests). Their score is told beside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import UsageError, expected

STEPS = 8
"""Parts the patches are taken away in."""
DRAWS = 19
"""Better than every one of 19 draws happens by chance once in 20 times."""
STREWN = 5
"""Orders of patches drawn at random, for a score to hold others' figures against."""
LEAST_LEAD = 0.01
"""A score nearer to chance than this is no difference anybody could use, however sure it is."""
MOST_ALIKE = 0.5
"""The largest correlation of ranks with the map a draw may have: beyond, it is nearly the same map."""
Ask = Callable[[Tensor], Tensor]
"""From images (B, C, H, W) to a number for each, (B,)."""


@dataclass(frozen=True)
class Faithfulness:
    """Curves over the share of patches that were taken away or put back; D draws, K points."""

    measure: str
    """What the curves show."""
    shares: np.ndarray
    """(K,) from 0 to 1."""
    deletion: np.ndarray
    """(K,)"""
    insertion: np.ndarray
    """(K,)"""
    chance_deletion: np.ndarray
    """(D, K)"""
    chance_insertion: np.ndarray
    """(D, K)"""
    random_deletion: np.ndarray
    """(R, K): of patches in an order drawn at random."""
    random_insertion: np.ndarray
    """(R, K)"""

    @property
    def score(self) -> float:
        return float(_gap(self.deletion, self.insertion, self.shares))

    @property
    def chance(self) -> np.ndarray:
        """(D,): the score of every draw."""
        return _gap(self.chance_deletion, self.chance_insertion, self.shares)

    @property
    def random(self) -> np.ndarray:
        """(R,): the score of patches strewn at random."""
        return _gap(self.random_deletion, self.random_insertion, self.shares)

    @property
    def p_better(self) -> float:
        """How likely a map without any knowledge scores as high as this one."""
        return (1 + int((self.chance >= self.score - 1e-9).sum())) / (1 + len(self.chance))

    @property
    def p_worse(self) -> float:
        return (1 + int((self.chance <= self.score + 1e-9).sum())) / (1 + len(self.chance))

    @property
    def verdict(self) -> str:
        if abs(self.score - self.chance.mean()) >= LEAST_LEAD:
            if self.p_better <= 0.05:
                return "better than chance"
            if self.p_worse <= 0.05:
                return "worse than chance"
        return "cannot tell from chance"

    def __str__(self) -> str:
        chance = self.chance
        strewn = f"random patches {self.random.mean():+.3f} ± {self.random.std(ddof=1):.3f}"
        moved = f"the same map elsewhere {chance.mean():+.3f} ± {chance.std(ddof=1):.3f}"
        spread = f"{len(chance)} draws from {chance.min():+.3f} to {chance.max():+.3f}"
        return f"{self.score:+.3f} ({strewn}; {moved}, {spread}): {self.verdict}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        curves = [f"{whose}{what}" for whose in ("", "chance_", "random_") for what in ("deletion", "insertion")]
        return {
            "score": self.score,
            "chance": self.chance.tolist(),
            "chance_mean": float(self.chance.mean()),
            "chance_std": float(self.chance.std(ddof=1)),
            "random": self.random.tolist(),
            "p_better": self.p_better,
            "verdict": self.verdict,
            "measure": self.measure,
            **{name: getattr(self, name).tolist() for name in ("shares", *curves)},
        }


def faithfulness_of(
    marked: np.ndarray,
    image: Tensor,
    ask: Ask,
    *,
    measure: str,
    draws: int = DRAWS,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Faithfulness:
    """Of a map (h, w) over a prepared image (C, H, W)."""
    if draws < DRAWS:
        raise UsageError(
            expected("draws", f"at least {DRAWS}: fewer can never tell a map from chance", draws), where="explain"
        )
    maps = [marked, *_draws(marked, draws), *_strewn(marked)]
    counts = np.unique(np.linspace(0, marked.size, STEPS + 1).round().astype(int))
    kept = np.stack([_kept(one, counts) for one in maps])
    answers = _answers(kept.reshape(-1, marked.size), marked.shape, image, ask, batch_size, progress)
    deletion, insertion = answers.reshape(kept.shape[:-1]).transpose(1, 0, 2)
    moved, strewn = slice(1, draws + 1), slice(draws + 1, None)
    return Faithfulness(
        measure,
        counts / marked.size,
        deletion[0],
        insertion[0],
        deletion[moved],
        insertion[moved],
        deletion[strewn],
        insertion[strewn],
    )


def _gap(deletion: np.ndarray, insertion: np.ndarray, shares: np.ndarray) -> Any:
    between = insertion - deletion
    return ((between[..., 1:] + between[..., :-1]) / 2 * np.diff(shares)).sum(axis=-1)


def _kept(marked: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(2, K, N) of bool: what is left when the first patches are taken away, and when only they are put back."""
    first = _ranks(marked) < counts[:, None]
    return np.stack([~first, first])


def _strewn(marked: np.ndarray) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.permutation(marked.size).reshape(marked.shape).astype(float) for _ in range(STREWN)]


def _draws(marked: np.ndarray, count: int) -> list[np.ndarray]:
    """Maps that put the same patches' marks elsewhere: shifted round the edges and mirrored, no two alike. Where a map
    has too few such places (few patches, a pattern that repeats), its marks are dealt out at random."""
    rng = np.random.default_rng(0)
    moves = list(product(range(marked.shape[0]), range(marked.shape[1]), (1, -1), (1, -1)))
    own: np.ndarray = _ranks(marked)
    found: dict[bytes, np.ndarray] = {}
    for place in rng.permutation(len(moves)):
        if len(found) == count:
            break
        down, across, up, left = moves[place]
        moved = np.roll(marked, (down, across), axis=(0, 1))[::up, ::left]
        if _likeness(marked, moved) < MOST_ALIKE:
            found.setdefault(_ranks(moved).tobytes(), moved)
    for _ in range(10 * (count - len(found))):
        dealt = rng.permutation(marked.ravel()).reshape(marked.shape)
        if len(found) < count and not np.array_equal(_ranks(dealt), own):
            found.setdefault(_ranks(dealt).tobytes(), dealt)
    # A flat map, or one of four patches, has no other places: held against itself, nothing can be told of it.
    return [*found.values(), *([marked] * (count - len(found)))]


def _likeness(one: np.ndarray, other: np.ndarray) -> float:
    """The correlation of ranks, equal marks sharing theirs; a flat map is like any."""
    from scipy.stats import rankdata

    a, b = (rankdata(marked.ravel()) - (marked.size + 1) / 2 for marked in (one, other))
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm else 1.0


def _ranks(marked: np.ndarray) -> np.ndarray:
    """(N,): 0 for the patch that is marked most. Of equal ones the first comes first."""
    ranks = np.empty(marked.size, int)
    ranks[np.argsort(-marked.ravel(), kind="stable")] = np.arange(marked.size)
    return ranks


@torch.inference_mode()
def _answers(
    kept: np.ndarray,
    grid: tuple[int, ...],
    image: Tensor,
    ask: Ask,
    batch_size: int,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """What the model says of the image with only some of its patches; the same choice is asked about once."""
    different, places = np.unique(kept, axis=0, return_inverse=True)
    fill = image.mean(dim=(1, 2), keepdim=True)
    found = []
    for start in range(0, len(different), batch_size):
        masks = torch.from_numpy(different[start : start + batch_size]).reshape(-1, 1, *grid)
        masks = F.interpolate(masks.float(), size=tuple(image.shape[1:]), mode="nearest").to(image.device)
        found.append(ask(torch.where(masks > 0, image, fill)).float().cpu())
        if progress is not None:
            progress(min(start + batch_size, len(different)), len(different))
    return torch.cat(found).numpy()[places.reshape(-1)]
