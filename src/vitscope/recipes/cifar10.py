"""Recipes for CIFAR-10: 60,000 photographs of 32 x 32 in ten classes."""

from __future__ import annotations

from vitscope.core.config import updated
from vitscope.data.config import AugmentConfig, DataConfig, augmentation
from vitscope.recipes.registry import recipe
from vitscope.train.config import (
    CheckpointConfig,
    LoopConfig,
    LossConfig,
    OptimConfig,
    ScheduleConfig,
    TrainConfig,
    named_model,
)

# Epochs of half a second are saved more rarely than by default.
RARELY = CheckpointConfig(every_epochs=25)


@recipe
def cifar10_guide_small() -> TrainConfig:
    """The tuning guide's first example, as it stands there: its Small preset on CIFAR-10.

    command: vitscope train cifar10_guide_small
    time: 4.2 min on one H200, two other runs beside it
    images/s: 34,000 in training
    accuracy: 69.1 % (1 seed)

    Test accuracy of seed 0: 69.12 % (best on validation: 68.78 %; of seeds 1 and 2, ended by the clock after 94 and 95
    epochs: 67.90 and 68.18 %). 251 s from command to prompt with torch 2.11. Patches of 8 leave 16 tokens of a picture,
    and it underfits: 67.7 % of the training pictures.
    """
    return TrainConfig(
        model=named_model("guide_small"),
        data=DataConfig(name="cifar10", batch_size=128, normalisation="half"),
        augment=AugmentConfig(crop="padded", flip="random", jitter=(0.2, 0.2, 0.2, 0.1)),
        optim=OptimConfig(name="adamw", lr=1e-3, weight_decay=1e-4, clip_norm=1.0),
        schedule=ScheduleConfig(warmup="5 epochs", warmup_lr=1e-6),
        loss=LossConfig(smoothing=0.1),
        loop=LoopConfig(epochs=100, early_stop=True, patience=15),
    )


@recipe
def cifar10_guide_quick() -> TrainConfig:
    """The tuning guide's second example, for quick trials: its Tiny preset on CIFAR-10.

    command: vitscope train cifar10_guide_quick
    time: 3.4 min on one H200, another run beside it
    images/s: 10,000 in training, 62,000 alone
    accuracy: 68.7 % (68.7 to 68.9, 3 seeds)

    Test accuracy of seeds 0, 1, 2: 68.68, 68.85, 68.69 % (best of seed 0 on validation: 69.16 %). 206 s from command to
    prompt with torch 2.11, nearly all of it beside a larger run; it was alone in the last epochs. On one CPU core in
    fp32 seed 0 has 68.84 %, in 53 minutes.
    """
    return TrainConfig(
        model=named_model("guide_tiny"),
        data=DataConfig(name="cifar10", batch_size=128, normalisation="half"),
        augment=augmentation("basic", 32),
        optim=OptimConfig(name="adam", lr=1e-3),
        loop=LoopConfig(epochs=50),
    )


@recipe
def cifar10_vit_tiny() -> TrainConfig:
    """vit_tiny on CIFAR-10 from new weights: Muon, mimetic initialisation, mixed pictures.

    command: vitscope train cifar10_vit_tiny
    time: 4.0 min on one H200
    images/s: 85,200 in training
    accuracy: 90.2 % (90.0 to 90.3, 3 seeds)

    Test accuracy of seeds 0, 1, 2: 90.33, 90.34, 89.97 % (best on validation: 91.34, 91.28, 90.96 %), on pictures
    stored as JPEG of quality 75; the three shared the GPU. Seed 0 alone: 90.19 %, 240 s from command to prompt with
    torch 2.11, 68 s of it until the first step (decoding, compiling).
    """
    return TrainConfig(
        model=named_model("vit_tiny").changed(init="mimetic", drop_path_rate=0.1),
        data=DataConfig(name="cifar10", batch_size=512),
        augment=updated(augmentation("medium", 32), cutmix_alpha=1.0, mix_prob=0.5),
        optim=OptimConfig(name="muon", lr=2e-3),
        loss=LossConfig(smoothing=0.1),
        loop=LoopConfig(epochs=300, eval_every=5, log_every=50, eval_batch=1000),
        checkpoint=RARELY,
    )


@recipe
def cifar10_vit_small() -> TrainConfig:
    """vit_small on CIFAR-10 from new weights: Muon, mimetic initialisation, mixed pictures.

    command: vitscope train cifar10_vit_small
    time: 6.8 min on one H200
    images/s: 28,000 in training
    accuracy: 91.1 % (1 seed)

    Test accuracy of seed 0: 91.06 % (best on validation: 92.08 %, of epoch 185). 410 s from command to prompt with
    torch 2.11, alone on the GPU.
    """
    return TrainConfig(
        model=named_model("vit_small").changed(init="mimetic", drop_path_rate=0.2),
        data=DataConfig(name="cifar10", batch_size=512),
        augment=updated(augmentation("medium", 32), cutmix_alpha=1.0, mix_prob=0.5),
        optim=OptimConfig(name="muon", lr=1e-3),
        loss=LossConfig(smoothing=0.1),
        loop=LoopConfig(epochs=200, eval_every=5, log_every=50, eval_batch=1000),
        checkpoint=RARELY,
    )


@recipe
def cifar10_resnet() -> TrainConfig:
    """ResNet-20 on CIFAR-10: what a ViT is held against.

    command: vitscope train cifar10_resnet
    time: 5.8 min on one H200, two other runs beside it
    images/s: 19,000 in training
    accuracy: 88.1 % (1 seed)

    Test accuracy of seed 0: 88.11 % (best on validation: 88.34 %). 348 s from command to prompt with torch 2.11.
    """
    return TrainConfig(
        model=named_model("resnet20"),
        data=DataConfig(name="cifar10", batch_size=128),
        augment=AugmentConfig(crop="padded", flip="random"),
        optim=OptimConfig(name="sgd", lr=0.1, weight_decay=5e-4, clip_norm=None),
        loop=LoopConfig(epochs=100),
    )
