"""What every model asks of its settings, said once."""

from __future__ import annotations

import math
from typing import TypeAlias

from vitscope.core.config import require

Size: TypeAlias = int | tuple[int, int]


LARGEST = 1_000_000
"""No count or side of a model is larger: a slip of the finger must not fill the memory or never end."""

MOST_BLOCKS = 1000
"""Of a network in all: each takes its time to build, even without numbers."""
MOST_PATCHES = 2**18
"""512 x 512 of them, where a table of positions has a row for each."""
MOST_PATCHES_WITHOUT = 2**22
"""2048 x 2048 of them, where nothing is stored for each."""
MOST_PAIRS = 2**28
"""Pairs of tokens whose offset is written down: of all with all, or within windows."""


def pair(size: Size) -> tuple[int, int]:
    """(height, width) of a size given as one number or two."""
    return (size, size) if isinstance(size, int) else size


def require_count(name: str, count: int, least: int = 1) -> None:
    require(count >= least, name, "0 or a positive integer" if least == 0 else "a positive integer", count)
    require(count <= LARGEST, name, f"at most {LARGEST:,}", count)


def require_depth(name: str, depth: int) -> None:
    require_count(name, depth)
    require(depth <= MOST_BLOCKS, name, f"at most {MOST_BLOCKS:,}", depth)


def require_counts(name: str, counts: tuple[int, ...], most: int = LARGEST) -> None:
    require(len(counts) > 0 and min(counts) > 0, name, "positive integers", counts)
    require(sum(counts) <= most, name, f"at most {most:,} in all", counts)


def require_stages(depths: tuple[int, ...], width: int, name: str) -> None:
    """Blocks of stages, each twice as wide as the one before; `name` is that of the first one's width."""
    require_counts("depths", depths, MOST_BLOCKS)
    require_count(name, width)
    wide = len(depths) < 40 and width * 2 ** (len(depths) - 1) <= LARGEST
    require(wide, "depths", f"stages up to {LARGEST:,} wide, where each doubles the {name} of {width}", depths)


def require_image(img_size: Size, in_chans: int, num_classes: int) -> None:
    """What every model asks of its input and output."""
    require(min(pair(img_size)) > 0, "img_size", "a positive size", img_size)
    require(max(pair(img_size)) <= LARGEST, "img_size", f"at most {LARGEST:,}", img_size)
    require_count("in_chans", in_chans)
    require(num_classes >= 0, "num_classes", "0 (features) or a positive integer", num_classes)
    require(num_classes <= LARGEST, "num_classes", f"at most {LARGEST:,}", num_classes)


def require_patches(img_size: Size, patch_size: Size, *, in_table: bool) -> None:
    """`learned`: whether each patch has a row in a learned table of positions."""
    require(min(pair(patch_size)) > 0, "patch_size", "a positive size", patch_size)
    for side, patch in zip(pair(img_size), pair(patch_size), strict=True):
        lower, upper = side - side % patch, side - side % patch + patch
        require(
            side % patch == 0,
            "img_size",
            f"a multiple of patch_size {patch}",
            side,
            fix=f"nearest that fit: {f'{lower} or ' if lower else ''}{upper}",
        )
    count = math.prod(side // patch for side, patch in zip(pair(img_size), pair(patch_size), strict=True))
    most = MOST_PATCHES if in_table else MOST_PATCHES_WITHOUT
    require(count <= most, "img_size", f"a size of at most {most:,} patches", f"one of {count:,}")


def require_mlp_ratio(embed_dim: int, mlp_ratio: float) -> None:
    neurons = embed_dim * mlp_ratio
    require(math.isfinite(neurons) and 1 <= neurons <= LARGEST, "mlp_ratio", "a positive number", mlp_ratio)


def require_eps(eps: float) -> None:
    require(0 < eps < 1, "norm_eps", "a small positive number", eps)


def require_rate(name: str, rate: float) -> None:
    require(0.0 <= rate < 1.0, name, "a share from 0 up to, not including, 1", rate)


def nearest_divisor(number: int, wish: int) -> int:
    """The divisor of `number` closest to `wish` (the smaller one of two)."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - wish), d))
