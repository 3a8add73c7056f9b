"""What a run is built on, and what settings and data say of it: the classes, the loaders, how steps are launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from vitscope.core.config import updated
from vitscope.data.config import PreprocessConfig
from vitscope.data.dataset import Dataset
from vitscope.data.loaders.choose import loader_kind, make_loader
from vitscope.data.loaders.loader import Loader
from vitscope.data.order import ALONE, Lane
from vitscope.models.accounting.account import Account
from vitscope.models.config import pair
from vitscope.train.config import TrainConfig
from vitscope.train.launch import choose_launch
from vitscope.train.left_out import OnBad, recorder
from vitscope.train.processes import ALONE_PROCESSES, Processes


@dataclass(frozen=True)
class Basis:
    """Settings, pictures, preprocessing, device, and who takes part: known before anything is made for the run."""

    config: TrainConfig
    dataset: Dataset
    preprocess: PreprocessConfig
    device: torch.device
    processes: Processes = ALONE_PROCESSES
    epochs_done: float = 0.0
    """Of a run that is resumed."""
    loader_agreed: str | None = None
    """The kind of loader all processes take where the settings leave it open."""

    @cached_property
    def launch(self) -> str:
        wish, alone = self.config.precision.launch, self.processes.world == 1
        work = self.multiply_adds() if wish == "auto" and alone and self.device.type == "cuda" else 0.0
        return choose_launch(wish, self.device, work=work, alone=alone)

    def multiply_adds(self) -> float:
        """Of what is left of the run: a backward pass costs twice the forward pass."""
        epochs = max(0.0, self.config.loop.epochs - self.epochs_done)
        return 3.0 * Account(self.config.model.bare).macs * len(self.dataset.splits["train"]) * epochs

    def loader(
        self,
        part: str,
        *,
        training: bool,
        say: Callable[[str], None],
        on_bad: OnBad | None = None,
        lane: Lane | None = None,
    ) -> Loader:
        """Of a training batch each process has its part, or that of another `lane`; evaluation sees every picture in
        every process. `on_bad` hears of pictures that are left out; by default they are said."""
        config = self.config
        batch = config.data.batch_size if training else config.loop.eval_batch or config.data.batch_size
        return make_loader(
            self.dataset,
            part,  # pyright: ignore[reportArgumentType]
            preprocess=self.preprocess,
            augment=config.augment,
            training=training,
            seed=config.loop.seed if config.loop.data_seed is None else config.loop.data_seed,
            device=self.device,
            batch_size=batch,
            lane=(lane or self.processes.lane) if training else ALONE,
            agreed=self.loader_agreed,
            compiled=training and self.launch.startswith("compiled"),
            on_bad=on_bad or recorder(None, say),
        )


def settle(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """The settings with what the data decides: the number of classes."""
    return updated(config, model=config.model.changed(num_classes=dataset.num_classes))


def lay_out(
    config: TrainConfig,
    dataset: Dataset,
    device: torch.device,
    processes: Processes = ALONE_PROCESSES,
    *,
    epochs_done: float = 0.0,
) -> Basis:
    model = config.model.bare
    preprocess = config.data.preprocess(pair(model.img_size), model.in_chans)
    kind = None
    if processes.world > 1:
        # Each would choose its loader by the memory it finds, and two kinds may count batches differently.
        kind = processes.by_first(
            lambda: loader_kind(dataset, preprocess=preprocess, augment=config.augment, device=device)
        )
    return Basis(config, dataset, preprocess, device, processes, epochs_done, loader_agreed=kind)
