"""The first test of any set-up: a network that cannot learn 32 pictures by heart will learn nothing else."""

from __future__ import annotations

from vitscope.data.config import DataConfig
from vitscope.recipes.registry import recipe
from vitscope.train.config import LoopConfig, OptimConfig, ScheduleConfig, TrainConfig, named_model


@recipe
def overfit() -> TrainConfig:
    """The overfit test: 32 pictures of CIFAR-10 learnt by heart, without any regularisation.

    command: vitscope train overfit
    time: 27 s on one H200
    images/s: 11,200 in training
    accuracy: 100 % of its 32 (3 seeds)

    It is the training accuracy that must reach 100 %, and it does with seeds 0, 1 and 2; what is measured on other
    pictures means nothing here. 27 s from command to prompt with torch 2.11, nearly all of it before the first step.
    """
    return TrainConfig(
        model=named_model("guide_overfit"),
        data=DataConfig(name="cifar10", train_limit=32, batch_size=32),
        optim=OptimConfig(name="adamw", lr=1e-3, weight_decay=0.0),
        schedule=ScheduleConfig(name="constant", warmup="20 steps"),
        loop=LoopConfig(epochs=100, eval_every=50, monitor="train/epoch_accuracy"),
    )
