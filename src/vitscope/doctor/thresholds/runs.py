"""Numbers that a run's own record is judged by."""

from __future__ import annotations

SKIPPED_SHARE = 0.001
"""Of all steps: fewer, and never three in a row, are worth a note only."""
RUN_LAST_SHARE = 0.1
"""Of a run's steps: what "at the end" means."""
BAD_PICTURES_SHARE = 0.01
"""Of the pictures of an epoch: from here training itself stops unless it is allowed."""
RUN_UPDATES_HIGH = 0.3
"""Median over the layers of how far one update moves them, and over the looks. A small model at lr 1e-2 that learns
well has 0.12 to 0.17 in its first ten steps: that is a note."""
RUN_GROWTH = 100.0
"""How many times larger than at the first look (or than 1) values inside a layer may become while nothing is learnt. At
lr 0.3 they went from 1 to 9,000 in 30 steps, and one update moved layers by 80 % of their size; in a healthy run of
`digits_vit` they stay below 5."""
LOOKS_NEEDED = 4
"""Of the monitor, before medians of the later half are believed."""
