"""Which small pictures look the same: copies that were saved again, at whatever quality."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vitscope.data.survey.near import near_pairs


def families(small: np.ndarray) -> np.ndarray:
    """(n,) a number for each of (n, 16, 16, 3) bytes; those that look the same have the same."""
    flat = small.reshape(len(small), -1)
    _, first, place = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    pairs = near_pairs(small[first]).pairs
    beside = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(first), len(first)))
    return connected_components(beside, directed=False)[1][place]
