"""Numbers that a run's own record is judged by."""

from __future__ import annotations

SKIPPED_SHARE = 0.001
"""Of all steps: fewer, and never three in a row, are worth a note only."""
RUN_LAST_SHARE = 0.1
"""Of a run's steps: what "at the end" means."""
FAR_PIXELS = 10.0
"""From 0 to 1, normalised: usual numbers bring them to -3 or 3 at most."""
NOT_ALONE_SURE = 0.6
"""That coarse patches or narrow heads are why a run learnt nothing at all. Shuffled labels or a rate that is far too
low look alike, and with the right ones such a network reaches 92 % on digits."""
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

# The learning rate by a run's own steps. Measured on 192 runs of ViTs and a CNN on digits, shapes, MNIST and CIFAR-10
# with AdamW, Muon and SGD, with rates from a thousandth to a thousand times the usual, shuffled labels, wrong pictures,
# strong weight decay and dropout.
WINDOW = 9
"""Steps whose median stands for the loss there."""
LEARNT = 0.9
"""Of the loss at the start: below it something has been learnt."""
THROWN, THROWN_FAR = 0.07, 0.2
"""Of the loss at the start, by which it rose above it before anything was learnt. Rates that are too high by 100 times
have 0.1 to 3; shuffled labels and wrong pictures up to 0.04; a rate that is still borne, 0.05."""
LOST_AGAIN, LOST_FAR = 0.03, 0.1
"""Of the lowest loss during a warm-up, by which it is higher in all the time at the top of the rate. Rates that are too
high have 0.04 and 0.11; whatever else was tried is lower at the top than before it."""
GRADIENT_FELL = 0.3
"""Middle gradient norm after such a rise, as a share of that at the start: 0.1 to 0.25 after a throw."""
NOT_LEARNT = 0.7
"""Of the loss at the start: who ends below has borne the rate."""
RISE_SURE = 6.0
"""Standard errors of a median of `WINDOW` steps; the highest of hundreds is four by chance."""
STARTS_FAR_OFF = 1.4
"""Times the loss of guessing, or a part of it: who begins there is no new model with a loss of that scale."""
