"""Every number the doctor judges by, each with its reason. Checks have none of their own."""

from __future__ import annotations

# The examination as a whole

SURE_ENOUGH = 0.5
"""A finding from here on makes the patient unwell: more likely than not. Below, the report shows it and cannot
tell."""
NO_NEED_TO_TRAIN = 0.9
"""With a cause in the pictures, the model or its gradients that is as sure as this, training a little would show that
same cause once more, at the price of all other checks together."""

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
SURVEYED = 2000
"""Pictures of a data set of ours that are decoded once more, unvaried, to look for copies: about 1 s of photographs."""
LEAKED_SHARE = 0.05
"""Of validation pictures that training has too. CIFAR-10 has 0.3 % by nature; no healthy set we have reaches 1 %."""
LEAKED_PICTURES = 3
"""Fewer copies across parts are chance."""
WINDOW_SHARE, WINDOW_LEAST = 3 / 8, 5
"""Of a picture's side, and pixels at least: what is looked for of a picture that may be shifted. It stays inside where
a crop moves by 4 of 32 pixels, and two pictures hardly share it by chance."""
WINDOW_SPREAD = 0.3
"""Of the spread of all pixels, within such a window: sky and paper are the same in many pictures."""
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
SWAP_SURE, SWAP_FITS, SWAP_FITS_SHARE = 6.5, 4.5, 0.15
"""Distance between the channels of training and validation: as they are at least the first, in standard errors, and in
another order at most the second, or the third as a share of that. Healthy parts, augmented or not: at most 3.7
(CIFAR-10 against its crops, 512 pictures); swapped: 8.5 (256 of Imagenette) to 24, and 1 to 3.7 in the right order."""
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
2048 each, as they are: shapes 0.26 to 0.29 and 0.7, CIFAR-10 0.18 to 0.22 and 0.3; with 30 % noise 0.40 to 0.43 and
1.5, 0.365 to 0.38 and 1.07 to 1.26. Augmented: healthy shapes reach 0.33 and 1.0."""
NOISE_IN_BOTH = (1.03, 0.3, 2.5, 0.13)
"""The factor and the strangeness above, and by how much validation labels are predicted better, in standard errors and
as a share, all four exceeded. Cropped and mirrored, three draws each, healthy: CIFAR-10 0.6, 0.23, below 2 and 0.09;
Imagenette 0.5, 0.26, below 0; with 30 % noise: 1.06 to 1.16, 0.33 to 0.36, 6 and 0.28; 1.1 to 1.4, 0.38 to 0.41, 3 and
0.17. With strong augmentation too, healthy: 0.75, 0.25, 3, 0.17."""
SPLIT_Z, SPLIT_SHARE = 4.5, 0.08
"""By how much validation labels are predicted better than training labels, from pictures treated alike: in standard
errors, and as a share. Healthy parts: within 2; 30 % noise in training: 4 (shapes), 6 (CIFAR-10), 15 (MNIST)."""
FEW_PER_CLASS = 20
"""Training pictures of a class below which nothing general can be learnt from scratch, if the next says so too."""
FEW_AGREEMENT = 0.6
"""Held-out labels predicted right from so few pictures: above, the task is easy enough for few."""
HARDLY_ANY, HARDLY_ANY_AGREEMENT = 6, 0.95
"""Likewise below this many of a class: a network learns less from them than fixed features do."""

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
# The monitor of a run
LAYER_GRADIENT_HIGH = 10.0
"""The tuning guide warns of any layer whose gradient is longer."""
GRADIENT_EXPLODES = 100.0
"""The guide's: all gradients together. Of a whole run, the middle of many steps: clipping cuts single ones."""
GRADIENT_VANISHES = 1e-6
"""The guide's: all gradients together; of a run only while its loss is high, as who has learnt all has none either."""
UPDATE_HIGH = 0.1
"""One update that moves a layer by a tenth of its size: a hundred times what is usual (about 0.001)."""
MONITOR_SHARE = 0.02
"""Of the time, for looking: below the 3 % it may cost, as what a look costs is measured with noise."""
POOL_PICTURES = 32
"""In a batch of an experiment: enough that no class can be guessed from the counts alone, few enough for a CPU."""
POOL_BATCHES = 2
"""Of an experiment, gone through again and again. With 4 batches of 13 pictures a healthy vit_tiny shows nothing in 40
steps; with 1 of 8 the class counts alone are learnt, whatever the learning rate."""
FEWEST_BATCHES = 2
"""Where the loader gives fewer, a large batch is cut."""
FEWEST_PICTURES = 16
"""However long a step takes."""
STEP_SECONDS = 0.25
"""A step of an experiment takes fewer pictures where it would take longer than this."""
WARM_UP_SHARE = 0.2
"""Of an experiment's steps: the rate rises this long before it is held. Without it Adam's first steps, whose second
moments know one gradient, condemn rates that training bears well."""
LOSS_IS_LOST = 10.0
"""Times the first loss: from here nothing comes back, and more steps are wasted."""
OVERFIT_PICTURES, OVERFIT_FROM = 32, 256
"""The guide's 32 random pictures, drawn from the first so many: of pictures in the order of their classes, the first 32
are all of one."""
OVERFIT_LRS = (1e-3, 5e-3, 3e-4)
"""The ladder of the overfit test. 1e-3 first, where healthy models have all right after 13 to 53 steps; at 5e-3 a
healthy vit_tiny stays at 31 to 47 %, so that one rung alone condemns nobody."""
LARGE_MODEL = 1e6
OVERFIT_LRS_OF_LARGE = (3e-4, 1e-3, 5e-3)
"""From so many parameters on the same rungs in another order, since there steps are dear: vit_tiny has all right after
12 steps at 3e-4 and 30 at 1e-3 (begun mimetic, on mixed pictures, 40 and 46), guide_small after 10 and 18."""
OVERFIT_STEPS, OVERFIT_GOAL = 200, 1.0
OVERFIT_PASSED = 0.95
"""From here on, short of the goal, a note: one of 32 may be a picture that is there twice, under two names."""
OVERFIT_PASSED_STEPS = 100
"""The short form of a check-up: more than 95 % within so many steps."""
GUIDE_OVERFIT_LRS, GUIDE_OVERFIT_STEPS = (5e-3,), 200
"""The guide's own test of its own model: Adam, 32 pictures, 200 steps at 5e-3, all right."""
OVERFIT_SECONDS = 25.0
"""For one rung. A model that was still getting better when time ran out is not judged."""
HOPELESS_STEPS, HOPELESS_FALL, HOPELESS_LEVEL = 60, 0.02, 0.2
"""A rung is given up where the lowest loss of the last so many steps is not below the lowest before them by the second,
nor below the third, as shares of the first loss. With 30 a healthy vit_tiny that begins mimetic would be: it stays at
the entropy of the labels for 60 steps and more at 3e-4."""
HELD_STEPS = 24
"""Of each run of the lr test."""
PLAIN_STEPS, PLAIN_FALL = 14, 0.15
"""A run at the patient's own rate ends after so many steps where the loss has come down by this share, smoothly."""
UNLEARNT = 1.0
"""By how much the cross-entropy of the labels may rise while the owner's loss falls. A loss that is a kind of
cross-entropy (smoothed, binary, focal) takes it down with it; one with the wrong sign makes it 10 and more."""
CRAWL = 0.03
"""Of the loss at the start: less of a fall within a run of the lr test is no fall."""
NOISE_TIMES = 3.0
"""A difference counts from here on, in units of a pass's noise."""
SWINGS = 0.1
"""Of the loss at the start: a mean rise between passes of more than this is swinging."""
LOST_TO_LOWER = 0.75
"""A rate is too high where it comes down by less than this share of what a tenth of it does. Healthy rates come down
1.3 to 8 times as far as their tenth within a run."""
UPDATE_TOO_LARGE = 0.04
"""Of the length of all weight matrices, by which one step changes them at a held rate. Measured on 17 healthy set-ups,
two seeds each: 0.004 (ResNet, SGD 0.1) to 0.029 (narrow ViT on digits, AdamW 2e-3; ViT with LayerScale, 1e-3). At ten
times the rate the ViTs have 0.043 to 0.12, but for one with large first weights: 0.031. What was learnt is written over
within 25 steps; on a few pictures that may look well for a while, so the loss alone does not show it. Small networks
on easy pictures have 0.06 to 0.1 with SGD and learn all at once: who has (LOW_LOSS) is not judged by this."""
COMFORTABLE_UPDATE = 0.03
"""Up to here steps are of a usual size."""
SLOW_UPDATE = 1e-3
"""Below, steps are so small that a rate may be too low. Healthy ones: 0.004 and more; at a hundredth of the rate
0.0001 to 0.0007, at a tenth 0.0006 to 0.005."""
SLOW_UPDATE_OF_TRAINED = 3e-5
"""The same for weights that were trained before: fine-tuning with AdamW at 1e-5 moves them by about 3e-4."""
LR_TOO_LOW_RATIO = 100.0
"""Rates are too low only against one so many times as high: a healthy rate is never that far below the stable edge."""
LR_TOO_LOW_FALL = 0.35
"""And only where they come down by less than this share of what the higher one does: 0.01 to 0.28 at a hundredth of a
healthy rate."""
USUAL_LR, USUAL_LR_OF_SGD = 3e-4, 1e-2
"""Tried where the patient's own rate is zero or no number."""
LR_EDGE_RATIO = 3.5
"""The edge is known well enough within this factor."""
MARGIN_BELOW_EDGE = 2.0
"""What is proposed lies below the edge by this factor."""
LOOK_ABOVE_SECONDS = 5.0
"""Where a run takes longer than this, the edge above a rate that is well is not looked for."""
FRESH_STEPS, FRESH_SECONDS = 60, 12.0
"""Of two runs on batches as they come, and at most so long each. On digits the mean loss after 60 steps is 2.11 at a
healthy rate and 2.31 at ten times it; on `shapes` nothing is seen of either after 120."""
REAL_STEPS, REAL_SECONDS = 12, 6.0
"""Of the run that takes a proposed rate to the patient's own batch size; fewer pictures where it would take longer."""
COLD_LOST = 0.4
"""No warm-up is the cause where without it the loss comes down by less than this share of what it does with one."""
COLD_ENOUGH = 0.15
"""Of the loss at the start: whoever comes down so far without a warm-up needs none."""
COLD_FIRST_UPDATE = 0.08
"""Share of the weights' length that the first steps at the full rate change: from here on, batches as they come are
looked at too, since on a few pictures even deep post-norm networks come through. AdamW at 1e-3 on weights of 0.02 has
0.05; post-norm networks that are known not to learn without a warm-up 0.10 (2e-3) to 0.15 (3e-3)."""
LONG_RISE = 0.7
"""Of a run's steps: deep post-norm networks need a long warm-up."""
FEW_WARM_UP_STEPS = 5
"""As good as none: Adam's second moment has a memory of a thousand steps."""
SHORT_RUN_STEPS = 40
"""Of the short run, and of each run with something switched off."""
SHORT_RUN_FALL = 0.5
"""Of the loss at the start: whoever has come down so far after half of the steps need not take the rest."""
VALIDATION_PICTURES = 128
"""Looked at before and after the short run: told, not judged, as 40 steps on 64 pictures teach little of others."""
SUSPECT_DECAY = 0.5
"""Nobody trains with more on purpose: 0.3 is the most in published recipes (MAE, DeiT III: 0.02 to 0.3)."""
HALF_LIFE_STEPS = 300.0
"""Steps in which decay alone halves the weights. Healthy recipes have 7,000 and more; below 300 it wins over gradients
even where the first 40 steps do not show it yet."""
SUSPECT_DROPOUT = 0.6
"""0.5 is usual in the heads of convolutional networks."""
CLIPPED_AWAY = 2e-3
"""Of the gradient's length. Clipping at 1 leaves a tenth and more of what healthy models have."""
REPAIRED = 0.6
"""What is switched off was to blame where, with it, the loss comes down by less than this share of the fall without."""
LOW_LOSS = 0.1
"""Of the loss at the start: who comes below that learns well enough, whatever it would do without."""

# Learning curves
# Measured on made curves of 6 to 200 epochs, seven healthy shapes with three gaps, noise of 0 to 0.3 of the loss in an
# epoch (normal, log-normal, heavy-tailed), 840 of each: false alarms at most 0.4 in 100 of any length and noise, none
# up to a noise of 0.1.
CURVE_FEWEST = 6
"""Epochs, and evaluations, before anything but divergence is said."""
CURVE_NEAR_ZERO = 0.05
"""Of the loss at chance, added to every loss before shares are taken: 0.03 -> 0.05 is nothing where chance is 2.3."""
CURVE_SURE, CURVE_SURE_FEW = 4.0, 4.0
"""Standard errors, and how many values make it twice as many. The best epoch is chosen after the fact, so that what
rises from it by chance is up to three; of few values the noise itself is badly known."""
CURVE_SEEMS = 2.5
"""Standard errors from which a rise that is not sure keeps a curve from being called healthy."""
CURVE_RISE = 0.05
"""Of the lowest validation loss: a smaller rise is nothing to act on. A rise by 60 % or more is found in all of the
curves of 12 epochs and more with noise up to 0.05, one by 25 % in 9 of 10."""
CURVE_SEVERE = 0.2
"""Of the lowest validation loss: a rise from which more than a slight change is advised."""
CURVE_GAP = 0.15
"""Of accuracy, between training and validation."""
CURVE_WIDE_GAP = 0.3
"""Of the loss at chance, between training and validation: where accuracies are not known. A gap of 0.25 is still told
as healthy: validation is slightly higher than training nearly always."""
CURVE_HIGH = 0.6
"""Of the loss at chance. A model that classifies well is below 0.5 (CIFAR-10 at 69 %: 0.4)."""
CURVE_STUCK = 0.85
"""Of the loss at chance: whoever ends above it has hardly learnt anything."""
CURVE_UNSEEN = 0.15
"""Of the validation loss: where noise could hide a change of this size, nothing is concluded."""
CURVE_LOST = 1.5
"""Times the first loss (or chance): three epochs in a row above it are a divergence."""
CURVE_CLIMB, CURVE_CLIMBED_TO = 0.3, 0.5
"""Of the loss at chance: how far, and how high at least, training has climbed that has lost what it had learnt. Too
high a rate often ends so, at ln(classes)."""
SWING_FEWEST, SWING_FEWEST_OF_PART = 8, 16
"""Epochs in which a period can be told from chance at all; and of a later part that is looked at by itself: of fewer,
noise without its trend too often has one."""
SWING_CYCLES = 3
"""Times it must go up: a spike is no oscillation."""
SWING_LONGEST = 8.0
"""Epochs of a period. Slower waves have other reasons, as a schedule in steps."""
SWING_SIZE = 0.12
"""Of the training loss, up and down. The mean of an epoch has a noise of 0.005 to 0.04 in healthy runs."""
SWING_BY_CHANCE = 3e-4
"""How often noise may look like a period; asked of three parts of a curve, and noise is not quite white once its trend
is taken off: 0.2 in 100 curves with a noise of 0.3. Swings of 0.25 with a period of 2 to 5 are found in 99 of 100
curves of 30 epochs and more with noise up to 0.05."""
SWING_TIMES = 5.0
"""Times what an epoch's mean is off by chance, as the spread of its steps tells."""
SWING_ONSET = 15.0
"""Twice the log-likelihood by which two spreads must explain a curve better than one, before it is said that swings
began on the way."""

# A run's own record
SKIPPED_SHARE = 0.001
"""Of all steps: fewer, and never three in a row, are worth a note only."""
RUN_LAST_SHARE = 0.1
"""Of a run's steps: what "at the end" means."""
BAD_PICTURES_SHARE = 0.01
"""Of the pictures of an epoch: from here training itself stops unless it is allowed."""
RUN_UPDATES_HIGH = 0.3
"""Median over the layers of how far one update moves them, and over the looks. A small model at lr 1e-2 that learns
well has 0.12 to 0.17 in its first ten steps: that is a note."""
LOOKS_NEEDED = 4
"""Of the monitor, before medians of the later half are believed."""
