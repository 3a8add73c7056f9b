"""Numbers that a little training is judged by, and what it may cost."""

from __future__ import annotations

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
REPLACED, REPLACED_STEPS = 0.3, 8
"""A step as long as this share of all weight matrices: after three such steps nothing of them is left. And after how
many steps a run that takes them is ended; a third of these are at the full rate. The easiest tasks bear 0.1."""
BEFORE_NORM_SHARE = 0.5
"""Of the trained weights that stand before BatchNorm: from here on SGD's first steps tell little of the run. ResNet-18,
ShuffleNet, MobileNet: 0.97 and more; VGG-11 with BatchNorm, whose last layers have none, 0.07; ViTs 0."""
LARGER_BATCH = 10.0
"""Times the pictures of a step that a larger batch excuses a rate at most; nobody scales it further unseen."""
COLLECTING_SHARE = 0.3
"""Of the calls up to the last update, that moved nothing: half where gradients are collected over two calls; a scaler's
overflows are one or two of 24."""
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
LOWEST_LR_RATIO = 1e-7
"""Of the patient's rate: lower ones are not looked for. A comma in the wrong place is a factor of a million."""
LR_EDGE_RATIO = 3.5
"""The edge is known well enough within this factor."""
MARGIN_BELOW_EDGE = 2.0
"""What is proposed lies below the edge by this factor."""
QUICK_EDGE_SECONDS = 6.0
"""Of all runs of the lr test in a quick examination, until the way between a good rate and a bad one ten times as high
is no longer halved: the middle of the two is then called the edge, which is off by a factor of 3 at most, and the good
one is proposed. A run of vit_tiny takes 4 to 6 s on two cores, and there are two before the first halving."""
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
