"""Numbers that the forward pass is judged by."""

from __future__ import annotations

FORWARD_PICTURES = 16
"""Enough to see whether pictures differ; a pass of vit_tiny at 32 px takes 0.1 s."""
ATTENTION_PICTURES = 4
"""Proofs by computing again need no statistics."""
START_PICTURES = 64
"""The loss of healthy untrained models varies by up to 0.05 between samples of 64."""
PROBABILITY_SLACK = 1e-3
"""How far rows may sum from 1, and a loss lie from the floor of cross-entropy of probabilities: rounding in bf16."""
LITTLE_ROOM = 3.0
"""Between the least and the most a model can give. Softmax and sigmoid leave 1, tanh 2, and of ten classes even perfect
answers then cost 1.46 and 0.80; caps on logits that people use leave 30 and more."""
ONE_SIDED = 0.05
"""Of what the last layer says against a class, that reaches the loss: ReLU, GELU and SiLU let through nothing, a leaky
ReLU of 0.01 a hundredth, of 0.2 a fifth."""
MOST_SMOOTHING = 0.35
"""Of labels, that a loss may have and still be cross-entropy of logits; usual is 0.1, the most published 0.3."""
LARGEST_GAIN = 4.0
"""Median gain of a model's layers. Healthy ones of twelve kinds begin between 0.16 and 1.42 (Kaiming); weights fifty
times too large between 8 and 71."""
SAME_WEIGHTS_SHARE = 0.5
"""Layers whose weights are all one number. A head of zeros, or the last layer of each branch, is a way to begin;
half of all layers is none."""
LOSS_EXCESS = 3.0
"""Loss above that of a model that knows nothing. Healthy untrained ones lie within 0.15, a CNN with Kaiming weights in
its head too at 1.25; weights fifty times too large 4 and more."""
NO_SPREAD = 1e-6
"""Features that differ by less than this share of their size do not depend on the picture: float32 rounds at 1e-7.
Healthy models: from 7e-3 on."""
COMPANY_SHARE = 0.05
"""Change of a picture's features with its company, against the spread between pictures. Healthy: 0; tokens of several
pictures mixed by a reshape: 2.6."""
ROUNDINGS = 100
"""Roundings of the dtype that may add up on the way through a deep network."""
POSITION_SHARE = 1e-5
"""Change of features when patches change places, against the spread between pictures. Without positions: 3e-7; with
a table: 1e-2 and more, and 7e-4 in a model that is close to linear because it lacks its norms."""
POSITION_ROUNDINGS = 10
"""Roundings of the dtype that a sum in another order may add on top."""
SAME_ATTENTION = 1e-3
"""Attention computed again in float64 from float32 q, k and v agrees to 1e-5; with another scale it is off by much
more, or nothing is said."""
UNEVEN_TOKENS = 0.03
"""Spread of the tokens' sizes at an attention's input. After an untrained LayerNorm: below 1e-3, but 0.25 where a class
token begins near zero; without: 0.3 to 0.4. So it only speaks where no norm layer was seen either."""
HIGH_DROP_RATE = 0.6
"""The tuning guide goes to 0.5 on small data, and deep models then agree as little with themselves (0.14 at depth 9)
as shallow ones with 0.7: agreement alone would condemn them."""
CHANCE_AGREEMENT = 0.25
"""Cosine of two training passes of a picture before the classifier. A rate of 0.9: at most 0.11; 0.8 before the
head: 0.2."""
AVERAGE_PICTURES = 16
"""Whatever the step learns from them, the mean follows it or not."""
AVERAGE_STEPS = 3
"""Steps in which a running mean must have moved. Each shows its whole decay: it is exact arithmetic."""
AVERAGE_MOST_STEPS = 40
"""And in so many where it has not: some update it every 32 steps (torchvision's reference)."""
BEGINNING_LEFT = 0.5
"""Share of the first weights that a running mean would still hold when training ends."""
KNOWS_NOTHING_SHARE = 0.8
"""A running mean with a loss from here on, of that with equal logits, has learned nothing ..."""
AVERAGE_BEHIND = 0.5
"""... while the model's own loss is less than half of it."""
ROWS_EXACT, ROWS_APART = 1e-4, 1e-2
"""How far sums of attention's weights lie from 1 at most, where a softmax was taken over that axis (float32: 1e-6), and
at least somewhere, where it was not. A softmax over the queries in ViTs as they begin: 0.2 and more."""
