"""Every number the doctor judges by, each with its reason. Checks have none of their own."""

from __future__ import annotations

# The examination as a whole

SURE_ENOUGH = 0.5
"""A finding from here on makes the patient unwell: more likely than not. Below, the report shows it and cannot
tell."""

# Pictures and labels

# Settings

# The forward pass

FORWARD_PICTURES = 16
"""Enough to see whether pictures differ; a pass of vit_tiny at 32 px takes 0.1 s."""

ATTENTION_PICTURES = 4
"""Proofs by computing again need no statistics."""

START_PICTURES = 64
"""The loss of healthy untrained models varies by up to 0.05 between samples of 64."""

PROBABILITY_SLACK = 1e-3
"""How far rows may sum from 1, and a loss lie from the floor of cross-entropy of probabilities: rounding in bf16."""

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

AVERAGE_STEPS = 3
"""Steps in which a running mean must have moved. Each shows its whole decay: it is exact arithmetic."""

BEGINNING_LEFT = 0.5
"""Share of the first weights that a running mean would still hold when training ends."""

KNOWS_NOTHING_SHARE = 0.8
"""A running mean with a loss from here on, of that with equal logits, has learned nothing ..."""

AVERAGE_BEHIND = 0.5
"""... while the model's own loss is less than half of it."""

# Gradients and updates

STEP_PICTURES = 32
"""Forward and backward of vit_tiny at 32 px take half a second on one core, and gradients are like those of 64."""

UNREACHED_SHARE = 0.005
"""Of the parameters, in layers that run and get no gradient: detached. Less is a token or a bias, and no finding."""

UNUSED_SHARE = 0.3
"""Of the parameters, in layers that never run. A pooler or a mask token that a task does not need is common, up to a
tenth of a small model; a third of it is a forgotten call."""

STILL_SHARE = 0.2
"""Of the parameters, moved by nothing while untrained. Fixed position tables and a fixed patch filter (a known
remedy) are below; a backbone is 0.9 and more."""

LARGE_LAYER_NORM = 10.0
"""The tuning guide's: a layer above it is named. A note only: it passes in healthy models on an unlucky batch."""

NAMED_NORM = 100.0
"""The tuning guide's, for all gradients together: told, as a note. A healthy untrained ResNet-18 has 26 to 44 on small
batches, other kinds 0.7 to 22: too near for a finding."""

EXPLODING_NORM = 1000.0
"""From here on no healthy model was seen; weights fifty times too large give 1e4 and more."""

VANISHING_NORM = 1e-6
"""The tuning guide's, for all gradients together."""

FADING_RATIO = 1e-5
"""First layers' gradients against the last layers'. Healthy models: 0.1 and more; twenty sigmoid layers: 5e-15."""

DEAD_SHARE = 0.6
"""Of units, in the mean of the layers. Healthy untrained ReLU networks: 0 to 0.03."""

SMALL_UPDATE = 1e-6
"""Update against weight, median of the matrices. Healthy: about 1e-3, Adam's first step up to 0.05, fine-tuning
1e-4. At 1e-6 a million steps in one direction are needed to replace a weight, and float32 begins to round updates
away at 1e-7."""

LARGE_UPDATE = 1.0
"""One step that is larger than the weights themselves replaces what it should improve. Adam with lr 1e-3 on weights
of 0.02: 0.05; with 5e-3, the overfit test's: 0.25."""

STEADY_STEPS = 3
"""More steps for an optimiser that begins slowly, before it is said not to move."""

DECAY_SHARE = 0.1
"""Pull of decoupled decay (decay x rms of the weights) against the most a gradient can pull in Adam, which is 1, and
0.1 to 0.3 once steps disagree. Usual: 0.05 x 0.02 = 0.001; the strongest healthy, 0.1 on Kaiming weights of 0.27:
0.03; decay 10: 0.2 and more."""

COUPLED_DECAY_SHARE = 10.0
"""The same where decay is added to the gradient (SGD, Adam): decay x weights against the gradient. Usual: 5e-4 gives
0.03 in an untrained ResNet, and more once gradients are small; decay 10: 50 and more ..."""

DECAY_TAKEN = 2e-3
"""... and decay takes this share of a weight in a step, half of it in 350. SGD with lr 0.1, momentum 0.9, decay 5e-4
takes 5e-4."""

SAME_DIRECTION = 0.8
"""Cosine from which the owner's gradient is that of the same loss on the same pictures, but for its length."""

SUMMED_TIMES = 1.5
"""The optimiser's gradient against the mean gradient. Healthy: 1 to within 1e-3, and 1.08 where attention draws its
dropout in a function that cannot be stilled."""

WHOLE_NUMBER_SLACK = 0.12
"""Gradients of parts that are added up instead of averaged are a whole number of times too long, but for
BatchNorm."""

CLIPPED_SHARE = 3e-3
"""What clipping leaves of a gradient that is not exploding. Clip 1.0 leaves 0.05 and more of such a gradient; 1e-4
leaves 1e-3 and less."""

FP16_PICTURES = 8
"""A processor's fp16 convolutions are slow (31 s for ResNet-18 on 8 pictures), and the answer needs no statistics."""

SCALED_TIMES = 64.0
"""Largest gradient at the logits against the loss's own. torch's scaler begins at 65536; a batch of 8 in parts of one
picture, not divided, makes it 8 times as large."""

# Training for a while
