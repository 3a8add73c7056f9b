"""What all networks of one seed stand on: settings, pictures, the device; loading, scoring and judging on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from torch import Tensor

from vitscope.core.config import field_names, require, updated
from vitscope.core.device import pick_device
from vitscope.core.seed import derive_seed
from vitscope.data.config import AugmentConfig
from vitscope.data.loaders.choose import make_loader
from vitscope.models.config import ModelConfig
from vitscope.models.model import VisionModel
from vitscope.sparse.choose import Scores
from vitscope.sparse.config import SparseConfig
from vitscope.sparse.criteria import criterion
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.train.basis import Basis, lay_out, settle
from vitscope.train.config import ModelSection, TrainConfig, named_model
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.train.first_state import make_model
from vitscope.train.precision import choose_dtype
from vitscope.train.resume import trainable
from vitscope.train.signals import StopFlag
from vitscope.weights.load import load_model

Say = Callable[[str], None]
DROPS = ("drop_rate", "attn_drop_rate", "drop_path_rate", "head_drop_rate")
"""Of a model's settings, those that are about its training alone: they need not be those the dense network had."""


class StoppedError(Exception):
    """A signal came. Everything is saved, and the same call goes on from there."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"stopped by a signal, exit code {exit_code}")
        self.exit_code = exit_code


@dataclass
class Ground:
    """Of one seed. `config` is what networks are trained by, `sparse` what is done to them."""

    config: TrainConfig
    sparse: SparseConfig
    folder: Path
    stop: StopFlag
    say: Say
    is_given: bool = False
    """Whether the dense network came trained; rounds that rewind go back to that."""

    def __post_init__(self) -> None:
        """What settings of training and of rounds cannot do together, before anything is trained."""
        require(
            self.sparse.algorithm != "rsst" or self.epochs >= 2,
            "epochs of a round",
            "two epochs or more with rsst: one before the cut, one after it",
            self.epochs,
            fix="--epochs 2, or more",
        )
        require(
            self.sparse.rewind <= self.dense_epochs,
            "rewind",
            f"an epoch of the dense training, which has {self.dense_epochs}",
            self.sparse.rewind,
            fix="an earlier epoch, or more --dense-epochs",
        )

    def taught_by(self, dense: Path) -> Ground:
        """The same, but networks trained on it also learn what the dense one says of their pictures, where they are
        to."""
        if not self.sparse.dense_teaches:
            return self
        loss = updated(self.config.loss, teacher=str(dense), distill="soft", distill_share=self.sparse.dense_teaches)
        return replace(self, config=updated(self.config, loss=loss))

    @cached_property
    def basis(self) -> Basis:
        dataset = trainable(self.config.data)
        return lay_out(settle(self.config, dataset), dataset, pick_device(self.config.loop.device))

    def open_data(self) -> None:
        """Refuses what nothing can be trained on, before anything is written."""
        self.basis  # noqa: B018

    @property
    def seed(self) -> int:
        return self.config.loop.seed

    @property
    def epochs(self) -> int:
        """Of a round."""
        return self.sparse.epochs or self.config.loop.epochs

    @property
    def dense_epochs(self) -> int:
        """Of the dense network, where it is trained here."""
        return self.sparse.dense_epochs or self.config.loop.epochs

    @cached_property
    def steps_per_epoch(self) -> int:
        """As the engine counts them: whole batches only."""
        loader = self.basis.loader("train", training=True, say=self.say)
        try:
            return loader.num_batches
        finally:
            loader.close()

    def data_seed(self, number: int | None) -> int | None:
        """Of all networks of round `number`. What goes on from trained weights is shown pictures in an order, and
        varied, as in no epoch before; what goes back to the dense network's (None) beginning is shown what that was."""
        asked = self.config.loop.data_seed
        if number is None or (self.sparse.rewinds and not self.is_given):
            return asked
        return derive_seed(self.seed if asked is None else asked, "pictures of round", number)

    def first_model(self) -> VisionModel:
        """The network as a run with these settings would begin with it, on the CPU."""
        return make_model(self.basis, self.say)

    def section(self, like: ModelConfig) -> ModelSection:
        """The settings of a network with these layers, trained with the drop rates that were asked for."""
        asked = self.config.model
        drops = {
            name: getattr(asked, name) for name in DROPS if name in field_names(type(like)) and hasattr(asked, name)
        }
        return named_model(asked.name, updated(like, **drops))

    def new_model(self, like: ModelConfig, seed: int) -> VisionModel:
        """A network like the dense one, which need not be that of the settings, with new weights of another seed."""
        config = self.basis.config
        config = updated(
            config,
            model=self.section(like),
            loop=updated(config.loop, seed=seed),
            checkpoint=updated(config.checkpoint, init_from=None),
        )
        return make_model(lay_out(config, self.basis.dataset, self.basis.device), self.say)

    def load(self, folder: Path) -> VisionModel:
        return load_model(folder, say=False)

    def scores(
        self, model: VisionModel, name: str, *, masks: Mapping[str, Tensor] | None = None, lot: int = 0
    ) -> Scores:
        """By the criterion of this name, on training pictures that are shuffled and not varied. Another `lot` draws
        other units by chance."""
        seed = derive_seed(self.seed, "lot", lot)
        evidence = Evidence(model=model.to(self.basis.device), batches=self._pictures(), masks=masks, seed=seed)
        try:
            return criterion(name)(evidence)
        finally:
            model.to("cpu")

    def judge(self, model: VisionModel, part: str = "val") -> Evaluation:
        """On all pictures of a part, as evaluation in training does it."""
        config, basis = self.config, self.basis
        loader = basis.loader(part, training=False, say=self.say)
        try:
            found = evaluate(
                model.to(basis.device),
                loader,
                num_classes=basis.dataset.num_classes,
                dtype=choose_dtype(config.precision, basis.device),
                stop=lambda: bool(self.stop),
                say=self.say,
            )
        finally:
            loader.close()
            model.to("cpu")
        if found is None:
            raise StoppedError(self.stop.exit_code)
        return found

    def some_images(self) -> Tensor:
        """The first validation pictures, on the CPU."""
        loader = self.basis.loader("val", training=False, say=self.say)
        try:
            return next(iter(loader.epoch(0))).images.cpu()
        finally:
            loader.close()

    def _pictures(self) -> Iterator[tuple[Tensor, Tensor]]:
        basis, config = self.basis, self.config
        loader = make_loader(
            basis.dataset,
            "train",
            preprocess=basis.preprocess,
            augment=AugmentConfig(),
            training=True,
            seed=derive_seed(self.seed, "sparse scores"),
            device=basis.device,
            batch_size=config.data.batch_size,
        )
        try:
            epochs = itertools.chain.from_iterable(loader.epoch(number) for number in itertools.count())
            for images, labels, _ in itertools.islice(epochs, self.sparse.score_batches):
                yield images, labels
        finally:
            loader.close()
