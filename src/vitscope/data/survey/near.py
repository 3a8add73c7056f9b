"""Pairs of pictures that look the same, found by their thumbnails, none left out.

Two pictures are near when the RMS difference d of their thumbnails (16 x 16, colour, 0 to 255) is

- at most THRESHOLD, and at most SHARE of the detail (RMS around the mean colour) of the plainer one: two photographs of
  an empty sky have a small difference too;
- within both pictures' own circles. A circle has radius r such that fewer pictures lie between r and 2 r than within r.
  Copies stand apart from everything else. In a family of like pictures (the ones of MNIST) there are ever more
  pictures the further one looks, so none has a circle. Up to SAME no circle is asked for.

Chosen by looking: all of the 179 pairs found in CIFAR-10's 60,000 are one photograph twice, cut or coloured a little
differently (its dozens of pictures of two much advertised cars shade into each other and are left out); among MNIST's
70,000 digits one pair is found, two sevens hard to tell apart. Re-saved pictures differ by 0.5 (photographs) to 5
(32 x 32 pixels, JPEG 40). In a family drawn by a few numbers about 1 in 100 still stands apart by chance.

The search: an orthonormal projection never lengthens a distance, so every pair within a radius is within it in the
first principal directions too, where a k-d tree finds it; then it is measured on the whole thumbnail.
N pictures, D numbers in a thumbnail, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.spatial import KDTree

SIDE = 16
THRESHOLD = 16.0
SHARE = 0.30
SAME = 2.0
LEAST_DETAIL = 4.0
"""Plainer pictures have no near duplicates, only exact ones: their thumbnails hold little but rounding."""
MOST_PAIRS = 2_000_000
"""Where more pairs may be within THRESHOLD the radius is narrowed: pictures so much alike have no circles anyway."""
CROWD, MOST_ROWS = 1000, 100
"""A picture with more than CROWD others that may be the same is compared with all; at most MOST_ROWS are."""
_TREE_DIRECTIONS, _WIDE_DIRECTIONS = 12, 64
_SAMPLE = 4000
_GLANCE = 16
_SLACK = 1.001
"""A projection in floating point may lengthen a distance by a rounding error."""


@dataclass(frozen=True)
class NearPairs:
    """Which pictures look the same."""

    pairs: np.ndarray
    """(P, 2) numbers, the smaller first."""
    distances: np.ndarray
    """(P,) RMS differences of the thumbnails."""
    threshold: float
    """Largest difference that was looked for: THRESHOLD, or less in a set whose pictures are all alike."""
    left_out: int = 0
    """Pictures that were not compared, for thousands of others are almost like them."""


def near_pairs(thumbnails: np.ndarray) -> NearPairs:
    """The near pairs among `thumbnails` (N, 16, 16, 3), which should hold each picture once."""
    none = NearPairs(np.empty((0, 2), np.int64), np.empty(0, np.float32), THRESHOLD)
    if len(thumbnails) < 2:
        return none
    wide = np.ascontiguousarray(thumbnails, dtype=np.uint8).reshape(len(thumbnails), SIDE * SIDE, -1)
    if (wide == wide[:, :, :1]).all():
        wide = wide[:, :, :1]  # grey stored as colour: the same distances for a third of the work
    detail = np.concatenate([chunk.std(axis=1, dtype=np.float32) for chunk in _chunks(wide, 1000)])
    detail = np.sqrt(np.mean(detail**2, axis=1))
    kept = np.flatnonzero(detail >= LEAST_DETAIL)
    if len(kept) < 2:
        return none
    search = _Search(wide[kept].reshape(len(kept), -1), SHARE * detail[kept])
    same, left_out = search.same()
    leaders = np.setdiff1d(np.arange(len(kept)), [*(follower for _, follower, _ in same), *left_out])
    among, threshold = search.only(leaders).within_circles()
    found = [*same, *((int(leaders[a]), int(leaders[b]), d) for a, b, d in among)]
    pairs = np.array([(kept[min(a, b)], kept[max(a, b)]) for a, b, _ in found], np.int64).reshape(-1, 2)
    return NearPairs(pairs, np.array([d for *_, d in found], np.float32), threshold, len(left_out))


class _Search:
    """Thumbnails (N, D) of bytes, their places along the principal directions, and how far from each a copy may be."""

    def __init__(self, wide: np.ndarray, reach: np.ndarray, directions: np.ndarray | None = None) -> None:
        self.wide = wide
        self.reach = np.minimum(reach, THRESHOLD)
        self.per_rms = float(np.sqrt(wide.shape[1]))
        self.directions = _principal_directions(wide) if directions is None else directions
        # 128 off: the smaller the numbers, the smaller what rounding adds.
        self.narrow = np.concatenate([(chunk - np.float32(128)) @ self.directions for chunk in _chunks(wide)])
        self.tree = KDTree(self.narrow[:, :_TREE_DIRECTIONS].astype(np.float64))

    def only(self, numbers: np.ndarray) -> _Search:
        return _Search(self.wide[numbers], self.reach[numbers], self.directions)

    def radius(self, rms: float) -> float:
        return rms * self.per_rms * _SLACK

    def distances(self, first: np.ndarray | int, second: np.ndarray) -> np.ndarray:
        """RMS differences, whole thumbnails."""
        gap = self.wide[second].astype(np.float32)
        gap -= self.wide[first]
        return np.sqrt(np.einsum("...d,...d->...", gap, gap)) / np.float32(self.per_rms)

    def same(self) -> tuple[list[tuple[int, int, float]], list[int]]:
        """(leader, follower, distance): pictures as good as equal; and pictures too crowded to be told apart.

        A thousand copies make a thousand pairs with their leader, not half a million with each other.
        """
        crowds = self.tree.query_ball_point(self.tree.data, self.radius(SAME), return_length=True)
        crowded = np.asarray(crowds) > CROWD
        taken = np.zeros(len(self.wide), dtype=bool)
        found: list[tuple[int, int, float]] = []
        rows = MOST_ROWS
        for leader in map(int, np.flatnonzero(np.asarray(crowds) > 1)):
            if taken[leader] or (crowded[leader] and not rows):
                continue
            if crowded[leader]:  # noisy copies, perhaps, further than SAME from each other: its own circle tells
                rows -= 1
                others = np.setdiff1d(np.arange(len(self.wide)), leader)
                apart = np.concatenate([self.distances(leader, chunk) for chunk in _chunks(others)])
                rising = np.sort(apart)
                limit = max(SAME, _circle(rising[rising <= self.reach[leader]], rising, rising, np.inf))
            else:
                others = np.array(self.tree.query_ball_point(self.tree.data[leader], self.radius(SAME)))
                others = others[others != leader]
                apart, limit = self.distances(leader, others), SAME
            near = (apart <= np.minimum(limit, np.minimum(self.reach[leader], self.reach[others]))) & ~taken[others]
            near &= (others > leader) | crowded[leader]
            taken[others[near]] = True
            found += [(leader, int(b), float(d)) for b, d in zip(others[near], apart[near], strict=True)]
        return found, [] if rows else np.flatnonzero(crowded & ~taken).tolist()

    def within_circles(self) -> tuple[list[tuple[int, int, float]], float]:
        """The near pairs of pictures that are not quite equal, and the threshold used."""
        threshold = self._affordable()
        pairs, apart = self._pairs_within(threshold)
        alike = apart <= np.minimum(*self.reach[pairs].T)
        # Judged with what is known within the threshold, most pictures of a family are out already.
        known = _neighbour_distances(pairs, apart)
        circle = np.zeros(len(self.wide), np.float32)
        for picture, radii in _neighbour_distances(pairs[alike], apart[alike]).items():
            circle[picture] = _circle(radii, known[picture], known[picture][known[picture] <= threshold], threshold)
        alike &= apart <= np.minimum(*circle[pairs].T)
        # The rest is judged again with everything that lies within twice the radius.
        circle[:] = 0
        radii = _neighbour_distances(pairs[alike], apart[alike])
        for picture, radius in self._circles_for_sure(radii, known):
            circle[picture] = radius
        alike &= apart <= np.minimum(*circle[pairs].T)
        return [(int(a), int(b), float(d)) for (a, b), d in zip(pairs[alike], apart[alike], strict=True)], threshold

    def _affordable(self) -> float:
        """The largest radius up to THRESHOLD with a bounded number of pairs, judged by a sample."""
        count = len(self.wide)
        sample = self.tree.data[np.linspace(0, count - 1, min(count, 1000)).astype(int)]
        threshold = THRESHOLD
        while True:
            found = np.asarray(self.tree.query_ball_point(sample, self.radius(threshold), return_length=True))
            if (found.mean() - 1) * count / 2 <= MOST_PAIRS:
                return threshold
            threshold *= 0.85

    def _pairs_within(self, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (P, 2) and distances (P,): the tree's, thinned by more directions before whole thumbnails are read."""
        pairs, apart = [np.empty((0, 2), np.int64)], [np.empty(0, np.float32)]
        limit = self.radius(threshold) ** 2
        for chunk in _chunks(self.tree.query_pairs(self.radius(threshold), output_type="ndarray")):
            gap = self.narrow[chunk[:, 0]] - self.narrow[chunk[:, 1]]
            chunk = chunk[np.einsum("pd,pd->p", gap, gap) <= limit]
            distances = self.distances(*chunk.T)
            pairs.append(chunk[distances <= threshold])
            apart.append(distances[distances <= threshold])
        return np.concatenate(pairs), np.concatenate(apart)

    def _circles_for_sure(
        self, radii: dict[int, np.ndarray], known: dict[int, np.ndarray]
    ) -> Iterator[tuple[int, float]]:
        """(picture, radius of its circle), all pictures around it counted."""
        squares = np.einsum("nd,nd->n", self.narrow, self.narrow)
        for chunk in _chunks(np.array(sorted(radii), np.int64), 256):
            bounds = squares[chunk][:, None] + squares - 2 * self.narrow[chunk] @ self.narrow.T
            for picture, bound in zip(map(int, chunk), bounds, strict=True):
                reach = 2 * float(radii[picture][-1])
                bound[picture] = np.inf
                others = np.flatnonzero(bound <= self.radius(reach) ** 2)
                nearest = others[np.argsort(bound[others])]
                # A few are enough to see that there is no circle; only the others are measured against all.
                for count in (_GLANCE, len(nearest)):
                    around = np.sort(self.distances(picture, nearest[:count]))
                    circle = _circle(radii[picture], known[picture], around, np.inf)
                    if circle == 0.0 or count >= len(nearest):
                        break
                yield picture, circle


def _circle(radii: np.ndarray, near: np.ndarray, around: np.ndarray, horizon: float) -> float:
    """The largest of `radii` that is a circle's, or 0. `near` holds the distances up to the largest radius, `around`
    those up to twice as far, both rising; what lies beyond `horizon` is not held against the picture."""
    within = np.searchsorted(near, radii, side="right")
    further = np.searchsorted(around, np.minimum(2 * radii, horizon), side="right")
    fits = radii[further < 2 * within]
    return float(fits[-1]) if len(fits) else 0.0


def _principal_directions(wide: np.ndarray) -> np.ndarray:
    """(D, 64) orthonormal, the directions in which an even sample varies most first."""
    sample = wide[np.linspace(0, len(wide) - 1, min(len(wide), _SAMPLE)).astype(int)].astype(np.float32)
    centred = sample - sample.mean(axis=0)
    size = wide.shape[1]
    _, directions = eigh(centred.T @ centred, subset_by_index=[size - _WIDE_DIRECTIONS, size - 1])
    return np.ascontiguousarray(directions[:, ::-1], dtype=np.float32)


def _neighbour_distances(pairs: np.ndarray, apart: np.ndarray) -> dict[int, np.ndarray]:
    """Picture -> rising distances to its neighbours."""
    if not len(pairs):
        return {}
    pictures = np.concatenate([pairs[:, 0], pairs[:, 1]])
    twice = np.concatenate([apart, apart])
    order = np.lexsort((twice, pictures))
    pictures, twice = pictures[order], twice[order]
    numbers, starts = np.unique(pictures, return_index=True)
    return dict(zip(map(int, numbers), np.split(twice, starts[1:]), strict=True))


def _chunks(rows: np.ndarray, size: int = 20_000) -> Iterable[np.ndarray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
