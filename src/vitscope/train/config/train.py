"""All settings of a run, in sections."""

from __future__ import annotations

from dataclasses import field

from vitscope.core.config import config, require
from vitscope.data.config import AugmentConfig, DataConfig
from vitscope.train.config.checkpoint import CheckpointConfig
from vitscope.train.config.loop import LoopConfig
from vitscope.train.config.loss import LossConfig
from vitscope.train.config.model import ModelSection, named_model
from vitscope.train.config.optim import OptimConfig
from vitscope.train.config.precision import PrecisionConfig
from vitscope.train.config.schedule import ScheduleConfig


@config
class TrainConfig:
    """A training run. A recipe is a function that returns one."""

    model: ModelSection = field(default_factory=lambda: named_model("vit_tiny"))
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        micro, batch = self.loop.micro_batch, self.data.batch_size
        require(micro is None or micro <= batch, "loop.micro_batch", f"at most data.batch_size, {batch}", micro)
        mixed = self.loss.class_balance > 0 and self.loss.name == "binary_cross_entropy"
        require(not mixed, "loss.class_balance", "0 beside binary_cross_entropy", self.loss.class_balance)
        self.schedule.require_room(lr=self.lr, epochs=self.loop.epochs)
        channels = self.model.bare.in_chans
        for name in ("mean", "std"):
            own: tuple[float, ...] | None = getattr(self.data, name)
            fits = own is None or len(own) == channels
            wanted = f"{channels} number{'s' * (channels > 1)}, one for each channel of the model"
            usual = [one if 0 < one <= 1 else 0.5 for one in own or ()]
            shown = " ".join(f"{one:g}" for one in (usual * channels)[:channels])
            require(fits, f"data.{name}", wanted, own, fix=f"`--data.{name} {shown}`, for example")

    @property
    def lr(self) -> float:
        """The learning rate used at the top of the schedule, scaled with the batch where that is asked for."""
        ratio = self.data.batch_size / self.optim.base_batch
        return self.optim.lr * {"none": 1.0, "linear": ratio, "sqrt": ratio**0.5}[self.optim.scale_lr]
