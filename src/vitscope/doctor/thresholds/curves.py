"""Numbers that learning curves are judged by."""

from __future__ import annotations

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
CURVE_LEARNT, CURVE_LATE = 0.95, 2 / 3
"""Of the loss at chance: who came down to it has learnt something. Of the epochs: flat since then only, it stopped with
the schedule, whose rate ends low. A ViT on digits with SGD came down to 0.86 in 12 epochs, flat from the 9th; one on
shapes to 0.925 in 8, flat from the 6th, and to 0.64 in 30. With shuffled labels they end above 0.98."""
NEARLY_ALL = 0.985
"""Of the training pictures right: more epochs have little left to teach."""
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
