"""Numbers that gradients and updates are judged by."""

from __future__ import annotations

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
FORGOTTEN_SHARE = 0.05
"""Of the parameters, reached by the loss, fresh, free to learn and not in the optimiser. A stage of a ResNet-18 is 0.05
(the second) to 0.75, a block of twelve 0.08; a patch filter or a position table that is left out on purpose 0.03 and
less."""
HIDDEN_SHARE = 0.005
"""Of the parameters, that the loss depends on and the model does not list. Less is a scale or a token."""
LARGE_LAYER_NORM = 10.0
"""The tuning guide's: a layer above it is named. A note only: it passes in healthy models on an unlucky batch."""
NAMED_NORM = 100.0
"""The tuning guide's, for all gradients together: told, as a note. A healthy untrained ResNet-18 has 26 to 44 on small
batches, other kinds 0.7 to 22: too near for a finding."""
EXPLODING_NORM = 1000.0
"""From here on no healthy model was seen, but for weights before BatchNorm, which are left out: EfficientNet-B0 has
1245 with them, and learns. Weights fifty times too large give 1e4 and more."""
BEFORE_NORM_PICTURES = 8
"""That tell which weights these are: a pass of few milliseconds."""
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
UPHILL = 0.1
"""Cosine between the first step of an optimiser and the gradient of the loss. Down is below 0 for all of them: -1
(SGD), -0.5 to -0.9 (Adam, Muon); a wrong sign turns it round."""
PLANTED_TIMES, CARRIED_OVER = 8.0, -0.5
"""What is put in the place of a gradient that a step left behind, in lengths of the gradient, against it; and the
cosine from which the next step took it along: -1 then, but for dropout inside functions, and 1 where it begins anew."""
ALONE, PLAINLY_ANOTHER = 0.99, 0.9
"""Cosines of the gradient after a cycle of calls: with the last call's alone, and with the mean of all, the others of
which had one label for all. 1 and 0.03 (CNN), 0.34 (small ViT) to 0.68 (ViT with large first tokens) where the others'
were thrown away, and the other way round where they were not."""
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
RATE_GONE = 0.02
"""Of the schedule's top: two falls to a tenth, or a half wave that is over. Nothing is learnt from there on."""
EARLY_SHARE = 0.25
"""Of all steps of training, in which no sound rate is gone: a half wave is at 0.85 of its top there, steps to a tenth
come at a third and two thirds, 1 / sqrt(step) after a usual warm-up is at 0.1 and more."""
EARLY_SHARE_OF_EPOCH = 0.5
"""Of an epoch, where nothing says that there is more than one: a half wave over it is at 0.5 of its top there."""
RATE_BACK = 0.5
"""Of the top: a rate that comes back so far goes round."""
SCHEDULE_TURNS = 3000
"""Asked of a schedule before its rate counts as lasting: one made for up to 3,000 epochs. A turn takes 4 us, and
16 with 30 groups."""
TURNING_CALLS, STEP_CALLS = 4, 8
"""Calls of the owner's step that turn the schedule on until it is known how, and calls at most: gradients collected
over four batches are seen, and a schedule stepped once an epoch of eight is not taken for one that each turns on."""
