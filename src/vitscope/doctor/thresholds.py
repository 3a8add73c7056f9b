"""Every number the doctor judges by, each with its reason. Checks have none of their own."""

from __future__ import annotations

# The examination as a whole

SURE_ENOUGH = 0.5
"""A finding from here on makes the patient unwell: more likely than not. Below, the report shows it and cannot tell."""

# Pictures and labels

GLANCE_PICTURES = 65_536
"""Pictures of an epoch that are looked at: all of CIFAR-10 or MNIST."""
GLANCE_SECONDS = 3.0
"""Longest look at a part; a quick examination has 20 s in all."""
GLANCE_KEPT = 2048
"""Pictures kept to compare and to predict labels from. With half as many, 30 % wrong labels cannot be told from healthy
labels of a hard set."""
FEW = 32
"""With fewer pictures than this nothing is said of shares."""
WHOLE_RANGE = 20.0
"""Pixels from 0 to more than this were never brought to about 1: normalised ones stay below 3, bytes go to 255."""
FAR_MEAN = 3.0
"""Mean of a channel that no usual normalisation of pixels from 0 to 1 gives: white is 2.64 under ImageNet's numbers and
2.82 under MNIST's."""
WIDE_STD, NARROW_STD = 2.5, 0.03
"""Spread of a channel's pixels. Half black, half white is 2.18 under ImageNet's numbers, so no picture spreads wider.
Pixels divided by 255 twice have 0.001; the palest healthy set we have (shapes, from 0 to 1) 0.15."""
OTHER_MEAN, OTHER_STD = 1.0, 2.0
"""Between training and validation: distance of means in spreads, and ratio of spreads. Healthy parts, augmented or not,
differ by less than 0.3 and 1.3."""
EXPECTED_MEAN, EXPECTED_STD = 0.1, 1.15
"""Between the normalisation used and the one loaded weights were trained with: distance of means on a scale from 0 to
1, and ratio of stds. CIFAR-10's own numbers against ImageNet's differ by 0.04 and 1.16 and do little; 0.5 against
ImageNet's std differ by 2.2 and cost 5 to 19 points of accuracy."""
FLAT_SHARE = 0.5
"""Of pictures with one colour only. Healthy sets have less than 1 in 1000."""
DISTINCT_SHARE = 0.2
"""Distinct pictures among all: five copies of each. Repeated augmentation and balanced sampling show pictures two to
four times."""
SURVEYED = 4000
"""Pictures of a data set of ours that are decoded once more, unvaried, to look for copies: about 2 s of photographs."""
LEAKED_SHARE = 0.05
"""Of validation pictures that training has too. CIFAR-10 has 0.3 % by nature; no healthy set we have reaches 1 %."""
LEAKED_PICTURES = 3
"""Fewer copies across parts are chance."""
SORTED_SHARE = 0.5
"""Classes met in a stretch of training, of those a shuffled order would show, less one. Healthy: 0.95 and more; sorted:
below 0.2."""
SORTED_STRETCH = 32
"""Pictures of a stretch where batches are smaller."""
MAJORITY = 0.95
"""Share of the largest class from which always saying its name looks like success."""
IMBALANCE, IMBALANCE_NOTE = 50.0, 5.0
"""Largest class / smallest class: from the first a finding, from the second a note. ImageNet-LT, made to be hard, has
256; usual sets stay below 10."""
SWAP_SURE, SWAP_FITS = 10.0, 4.0
"""Distance in standard errors between the channels of training and validation: as they are at least the first, in
another order at most the second, or a third of that. Two halves of one set are within 4, augmented CIFAR-10 against
plain at 16."""
PROBE_PICTURES = 200
"""Fewer pictures with labels cannot show whether labels can be predicted."""
PROBE_PER_CLASS = 15
"""Likewise of each class: with fewer, healthy fine-grained sets are near chance too."""
CHANCE_Z = 3.0
"""Standard errors above chance from which labels have to do with pictures. Healthy sets of 1024 pictures are 28
(shapes), 43 (CIFAR-10, Imagenette) and 90 (MNIST, digits) above, shuffled ones at most
0.6."""
CONFIDENT_SHARE = 0.25
"""The pictures whose predicted class leads by most: in healthy sets their labels are almost never among the
least likely classes."""
NOISE_LOW, NOISE_LOW_RISE = 0.045, 0.23
"""Share of those whose label is in the less likely half of the classes: at most the first, and the second for each one
whose label is not predicted, where labels are right. A label drawn by chance is there half the time, whatever the
picture shows. Measured with 2048 pictures, allowed in brackets: shapes 0.09 (0.13), CIFAR-10 0.03 (0.09), Imagenette
0.02 (0.07), MNIST and digits 0; with 30 % drawn by chance 0.26 (0.19), 0.16 (0.14), 0.19 (0.13), 0.13 (0.10)."""
NOISE_AGREEMENT_OF_FEW = 0.68
"""Share of confident predictions that agree with the label from which the numbers above suffice: prediction is strong,
and what contradicts it is wrong."""
NOISE_AGREEMENT, NOISE_PICTURES = 0.33, 1500
"""Where prediction is weaker: the agreement and the pictures needed for what follows. 400 healthy pictures of `shapes`
look like 2048 noisy ones of CIFAR-10."""
NOISE_IN_PLAIN, NOISE_IN_VARIED = (0.345, 1.04), (0.38, 1.2)
"""Strangeness of labels that were not predicted (0.5: drawn by chance), and by which factor the share of unlikely ones
is above what NOISE_LOW allows, both exceeded; for pictures as they are, and for augmented ones. Three draws of
2048 each, as they are: shapes 0.26 to 0.29 and 0.7, CIFAR-10 0.18 to 0.22 and 0.3; with 30 % noise 0.40 to 0.43 and 1.5,
0.365 to 0.38 and 1.07 to 1.26. Augmented: healthy shapes reach 0.33 and 1.0."""
SPLIT_Z, SPLIT_SHARE = 4.5, 0.08
"""By how much validation labels are predicted better than training labels, from pictures treated alike: in standard
errors, and as a share. Healthy parts: within 2; 30 % noise in training: 4 (shapes), 6 (CIFAR-10), 15 (MNIST)."""
FEW_PER_CLASS = 20
"""Training pictures of a class below which nothing general can be learnt from scratch, if the next says so too."""
FEW_AGREEMENT = 0.6
"""Held-out labels predicted right from so few pictures: above, the task is easy enough for few."""

# Settings

SMALL_HEAD, MODEST_HEAD = 8, 16
"""Numbers of a head: up to the first its attention scores have so low a rank that heads can hardly pick a token; up to
the second users report models that do not converge, and the guide allows it only under protest."""
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
WEIGHTS_PER_PICTURE = 10_000
"""From here on a model trained from scratch is large for its data: vit_tiny has 54 per CIFAR-10 picture."""

# The forward pass

# Gradients and updates

# Training for a while
