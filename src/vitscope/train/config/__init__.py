"""Settings of a training run. Imports neither torch nor numpy, so that the command line can read them at once."""

from __future__ import annotations

from vitscope.train.config.checkpoint import CheckpointConfig
from vitscope.train.config.loop import LoopConfig
from vitscope.train.config.loss import LossConfig
from vitscope.train.config.model import ModelSection, named_model
from vitscope.train.config.optim import OptimConfig
from vitscope.train.config.precision import PrecisionConfig
from vitscope.train.config.schedule import ScheduleConfig
from vitscope.train.config.train import TrainConfig

__all__ = [
    "CheckpointConfig",
    "LoopConfig",
    "LossConfig",
    "ModelSection",
    "OptimConfig",
    "PrecisionConfig",
    "ScheduleConfig",
    "TrainConfig",
    "named_model",
]
