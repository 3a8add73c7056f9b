"""Which stream of random numbers each draw of the transforms and mixes reads, so that no two draws are the same.

A member's value is its first stream; `COUNTS` says how many it takes, where that is more than one.
Whatever else comes to vary pictures adds its line here.
"""

from __future__ import annotations

from enum import IntEnum

ATTEMPTS = 10
"""How often torchvision tries to draw a rectangle that fits into the picture."""
MOST_OPERATIONS = 14
"""The longest RandAugment that AugmentConfig allows."""


class Stream(IntEnum):
    """The first stream of each draw."""

    CROP_TOP = 0
    CROP_LEFT = 1
    FLIP = 2
    ROTATION = 3
    ERASE = 4
    ERASE_TOP = 5
    ERASE_LEFT = 6
    CUTOUT_ROW = 7
    CUTOUT_COLUMN = 8
    CROP_AREA = 20
    CROP_RATIO = 40
    ERASE_AREA = 60
    ERASE_RATIO = 80
    JITTER_ORDER = 100
    JITTER_FACTORS = 110
    RANDAUGMENT = 200
    """Operation k reads stream RANDAUGMENT + k."""
    MIX = 300
    MIX_KIND = 301
    MIX_SHARE = 302
    CUT_ROW = 303
    CUT_COLUMN = 304


COUNTS = {
    Stream.CROP_AREA: ATTEMPTS,
    Stream.CROP_RATIO: ATTEMPTS,
    Stream.ERASE_AREA: ATTEMPTS,
    Stream.ERASE_RATIO: ATTEMPTS,
    Stream.JITTER_ORDER: 4,
    Stream.JITTER_FACTORS: 4,
    Stream.RANDAUGMENT: MOST_OPERATIONS,
}
"""Draws that take more than one stream."""
