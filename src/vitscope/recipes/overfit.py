"""The first test of any set-up: a network that cannot learn 32 pictures by heart will learn nothing else."""

from __future__ import annotations

from vitscope.data.config import DataConfig
from vitscope.recipes.registry import recipe
from vitscope.train.config import LoopConfig, OptimConfig, ScheduleConfig, TrainConfig, named_model


@recipe
def overfit() -> TrainConfig:
    """The overfit test: 32 pictures of CIFAR-10 learnt by heart, without any regularisation.

    command: vitscope train overfit
    time: not measured yet
    accuracy: not measured yet

    It is the training accuracy that must reach 100 %; what is measured on other pictures means nothing here.
    """
    return TrainConfig(
        model=named_model("guide_overfit"),
        data=DataConfig(name="cifar10", train_limit=32, batch_size=32),
        optim=OptimConfig(name="adamw", lr=1e-3, weight_decay=0.0),
        schedule=ScheduleConfig(name="constant", warmup="20 steps"),
        loop=LoopConfig(epochs=100, eval_every=50, monitor="train/epoch_accuracy"),
    )
