"""Numbers that settings are judged by."""

from __future__ import annotations

SMALL_HEAD, MODEST_HEAD = 8, 16
"""Numbers of a head: up to the first its attention scores have so low a rank that heads can hardly pick a token; up to
the second users report models that do not converge, and the guide allows it only under protest."""
SMALL_HEAD_SURE, MODEST_HEAD_SURE = 0.88, 0.4
"""How sure it is that such heads do harm. Between the two it is possible and no more, since nothing is measured: 48
wide, 3 heads of 16 came to 70.0 and 72.5 % where one head of 48 came to 70.6 and 74.4 %."""
COARSE_TOKENS = 9
"""Patches of a picture up to which there is almost nothing to attend to. Patch 16 on 32 pixels gives 4; the guide's
quick preset, which trains, 16."""
HEAVY_DROP, MOST_DROP = 0.7, 0.8
"""Share of activations dropped, measured in training mode: from the first a finding, from the second a sure one. The
guide's largest is 0.5."""
SHRINK = 0.2
"""Share of a weight that decay takes in 100 steps. AdamW at lr 1e-3 takes 0.5 % with decay 0.05, 3 % with 0.3, and 63 %
with 10; at lr 3e-4 and decay 10 it is 26 %."""
STRONG_DECAY = 0.5
"""Below this decay, weights that shrink are the learning rate's fault."""
DECAY_OVER_GRADIENT = 10.0
"""Decay added to the gradient (Adam, SGD) against the gradient itself, by norm. Usual settings (5e-4) are below 0.5 at
the start."""
EQUAL_ROWS = 0.1
"""Share of places in a frozen position table that share their row with another place. A whole table has none."""
PERIOD = 0.1
"""By how much rows of a position table one line apart are more alike than their neighbours: sine-cosine tables of 4 x 4
to 14 x 14 have 0.2 and more at their own width, random ones 0.03 and less."""
BOLD_FINE_TUNING = 10.0
"""Learning rate against the habit for pretrained weights (AdamW 3e-5, SGD 3e-3) from which it is worth a note."""
FEW_UPDATES = 100
"""Of fresh weights, in all of training: fewer are worth a note. 32 pictures are learnt by heart in 13 to 53 steps, that
says nothing of others yet; `digits_vit`, a small recipe on easy pictures, takes 760."""
WEIGHTS_PER_PICTURE = 10_000
"""From here on a model trained from scratch is large for its data: vit_tiny has 54 per CIFAR-10 picture."""
