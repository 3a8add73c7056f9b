"""Every number the doctor judges by, each with its reason. Checks have none of their own."""

from __future__ import annotations

# The examination as a whole

SURE_ENOUGH = 0.5
"""A finding from here on makes the patient unwell: more likely than not. Below, the report shows it and cannot tell."""

# Pictures and labels

# Settings

# The forward pass

# Gradients and updates

# Training for a while

POOL_PICTURES = 32
"""In a batch of an experiment: enough that no class can be guessed from the counts alone, few enough for a CPU."""
POOL_BATCHES = 2
"""Of an experiment, gone through again and again. With 4 batches of 13 pictures a healthy vit_tiny shows nothing in 40
steps; with 1 of 8 the class counts alone are learnt, whatever the learning rate."""
FEWEST_BATCHES = 2
"""Where the loader gives fewer, a large batch is cut."""
FEWEST_PICTURES = 16
"""However long a step takes."""
STEP_SECONDS = 0.4
"""A step of an experiment takes fewer pictures where it would take longer than this."""
WARM_UP_SHARE = 0.2
"""Of an experiment's steps: the rate rises this long before it is held. Without it Adam's first steps, whose second
moments know one gradient, condemn rates that training bears well."""
LOSS_IS_LOST = 10.0
"""Times the first loss: from here nothing comes back, and more steps are wasted."""

OVERFIT_PICTURES = 32
OVERFIT_LRS = (1e-3, 5e-3, 3e-4)
"""The ladder of the overfit test. 1e-3 first, where nearly every model succeeds within 60 steps; at 5e-3 a healthy
vit_tiny stays at 31 to 47 %, so that one rung alone condemns nobody."""
OVERFIT_STEPS = 200
OVERFIT_GOAL = 1.0
OVERFIT_PASSED = 0.95
"""Of 32 pictures: one may be wrong. A share of them is proof enough that gradients reach what they must."""
OVERFIT_PASSED_STEPS = 100
"""The short form of a check-up: more than 95 % within so many steps."""
GUIDE_OVERFIT_LRS = (5e-3,)
GUIDE_OVERFIT_STEPS = 200
"""The guide's own test of its own model: Adam, 32 pictures, 200 steps at 5e-3, all right."""
OVERFIT_SECONDS = 25.0
"""For one rung. A model that was still getting better when time ran out is not judged."""
HOPELESS_STEPS = 80
HOPELESS_FALL = 0.02
"""A rung is given up where, after so many steps, the lowest loss of the later half is not below that of the earlier by
this share of the first loss."""

HELD_STEPS = 24
"""Of each run of the lr test."""
CRAWL = 0.03
"""Of the loss at the start: less of a fall within a run of the lr test is no fall."""
NOISE_TIMES = 3.0
"""A difference counts from here on, in units of a pass's noise."""
SWINGS = 0.1
"""Of the loss at the start: a mean rise between passes of more than this is swinging."""
LOST_TO_LOWER = 0.75
"""A rate is too high where it comes down by less than this share of what a tenth of it does. Healthy rates come down
2 to 4 times as far as their tenth within a run."""
UPDATE_TOO_LARGE = 0.05
"""Of the length of all weight matrices, by which one step changes them at a held rate. Measured: healthy 0.004
(ResNet, SGD 0.1) to 0.02 (ViT, Muon 3e-3; CNN, AdamW 2e-3); at ten times the rate 0.04 to 0.1. At 0.05 what was learnt
is written over within twenty steps: a short run may still look well, a whole one ends worse."""
NO_GAIN = 1.25
"""Large steps alone condemn nobody (an easy task bears them): ten times the rate must also have brought the loss down
by less than this many times as far. Healthy rates bring 2 to 4 times."""
LR_TOO_LOW_RATIO = 100.0
"""Rates are too low only against one so many times as high: a healthy rate is never that far below the stable edge."""
LR_TOO_LOW_FALL = 0.15
"""And only where they come down by less than this share of what the higher one does."""
LR_EDGE_RATIO = 3.5
"""The edge is known well enough within this factor."""
MARGIN_BELOW_EDGE = 2.0
"""What is proposed lies below the edge by this factor."""
COLD_LOST = 0.4
"""No warm-up is the cause where without it the loss comes down by less than this share of what it does with one."""
FEW_WARM_UP_STEPS = 5
"""As good as none: Adam's second moment has a memory of a thousand steps."""

SHORT_RUN_STEPS = 40
"""Of the short run, and of each run with something switched off."""
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

CURVE_FEWEST = 6
"""Evaluations before anything but divergence is said."""
CURVE_SURE = 4.0
"""Standard errors. The best epoch is chosen after the fact, so that what rises from it by chance is up to three."""
CURVE_RISE = 0.03
"""Of the lowest validation loss: a smaller rise is nothing to act on."""
CURVE_SEVERE = 0.2
"""Of the lowest validation loss: a rise from which more than a slight change is advised."""
CURVE_GAP = 0.15
"""Of accuracy, between training and validation."""
CURVE_HIGH = 0.6
"""Of the loss at chance. A model that classifies well is below 0.5 (CIFAR-10 at 69 %: 0.4)."""
CURVE_STUCK = 0.85
"""Of the loss at chance: whoever ends above it has hardly learnt anything."""
CURVE_SWING = 0.12
"""Of the training loss, the noise of an epoch's mean. Healthy runs have 0.005 to 0.04."""
CURVE_SWING_OF_START = 0.06
"""And of the loss at chance: near a loss of nothing, any noise is a large share."""
CURVE_UNSEEN = 0.15
"""Of the validation loss: where noise could hide a change of this size, nothing is concluded."""
CURVE_LOST = 1.5
"""Times the first loss (or chance): three epochs in a row above it are a divergence."""

# A run's own record

SKIPPED_SHARE = 0.001
"""Of all steps: fewer, and never three in a row, are worth a note only."""
GRADIENTS_EXPLODE = 100.0
"""The guide's number for the norm of all gradients; here of the middle of many steps: clipping cuts single
ones."""
GRADIENTS_VANISH = 1e-6
"""The guide's number, and only while the loss is still high: a model that has learnt all has no gradients either."""
RUN_LAST_SHARE = 0.1
"""Of a run's steps: what "at the end" means."""
BAD_PICTURES_SHARE = 0.01
"""Of the pictures of an epoch: from here training itself stops unless it is allowed."""
