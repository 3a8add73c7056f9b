"""One seed of an experiment: its ground, the dense network, and the weights that rounds go back to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vitscope.core.config import require
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.models.model import VisionModel
from vitscope.sparse.ground import Ground
from vitscope.sparse.outcome import Outcome, once
from vitscope.sparse.rewind import RewindKeeper, RewindPoint
from vitscope.sparse.stage import train_stage
from vitscope.sparse.two_of_four import two_of_four
from vitscope.sparse.units import units_of
from vitscope.weights.folder import save_model

REWIND = "rewind.safetensors"


@dataclass
class Trial:
    """Networks of one seed."""

    ground: Ground
    dense: Outcome
    rewind: RewindPoint

    @cached_property
    def dense_model(self) -> VisionModel:
        """Trained; not to be changed."""
        return self.ground.load(self.dense.model)

    @cached_property
    def is_rewound_to_trained(self) -> bool:
        """Whether rounds go back to the very weights of the dense network: where it was given."""
        return RewindPoint.of(self.dense_model).hash == self.rewind.hash

    def rewound(self) -> VisionModel:
        """A dense network with the weights of the rewind point, whose hash is checked."""
        model = self.ground.load(self.dense.model)
        self.rewind.restore(model)
        return model

    def proved(self, found: Outcome) -> Outcome:
        """`found`, unless it went back to other weights than this trial would: rounds kept before, beside a file that
        is whole in itself and not theirs."""
        if found.rewind_hash not in (None, self.rewind.hash):
            raise VitscopeError(
                f"the round was trained from another rewind point, {str(found.rewind_hash)[:12]}, "
                f"and {REWIND} holds {self.rewind.hash[:12]}",
                where=str(found.folder),
                fix=f"put back the {REWIND} the experiment began with, or begin another with --out",
            )
        return found

    def round_folder(self, number: int, name: str) -> Path:
        return self.ground.folder / f"round-{number}" / name


def begin_trial(ground: Ground, source: str | None) -> Trial:
    """From a model that is trained already (`source`: whatever `load_model` takes), or by training one."""
    folder = ground.folder / "dense"
    rewind = ground.folder / REWIND
    if ground.sparse.algorithm == "2of4" and source is None:
        two_of_four(ground.first_model())  # refuses a network it does not fit before that is trained
    if source is not None:
        dense = once(folder, lambda: _given(ground, folder, source))
        if not rewind.exists():
            RewindPoint.of(ground.load(dense.model)).save(rewind)
    else:
        dense = once(folder, lambda: _trained(ground, folder, rewind))
    return Trial(ground.taught_by(dense.model), dense, RewindPoint.load(rewind))


def refuse_other_units(ground: Ground, source: str | None) -> None:
    """Before anything is trained for removing nothing. Any network may lose single weights."""
    sparse = ground.sparse
    if sparse.algorithm in ("imp", "2of4") or (sparse.units == "all" and sparse.least_neurons == 1):
        return
    units = units_of(ground.first_model() if source is None else ground.load(Path(source)))
    has = units.kinds
    for kind in (one for one in has if one in sparse.kinds and one != "heads"):
        most = max(units.totals(kind))
        require(
            sparse.least_neurons < most,
            "least_neurons",
            f"fewer than a block has {kind} ({most})",
            sparse.least_neurons,
        )
    if sparse.units != "all" and not set(sparse.kinds) <= set(has):
        raise ConfigError(
            expected("units", f"some of {', '.join(has)}, which this network has", sparse.units),
            fix=f"--units {','.join(has)}",
        )


def _given(ground: Ground, folder: Path, source: str) -> Outcome:
    """A copy, so that the experiment is whole when the run it came from is gone."""
    ground.say(f"dense network: {source}")
    model = ground.load(Path(source))
    basis = ground.basis
    place = folder / "model"
    folder.mkdir(parents=True, exist_ok=True)
    save_model(
        model, place, preprocessing=basis.preprocess, labels=list(basis.dataset.class_names), overwrite=place.exists()
    )
    model = ground.load(place)
    has_test = len(basis.dataset.splits["test"]) > 0
    val, test = ground.judge(model), ground.judge(model, "test") if has_test else None
    return Outcome(
        folder=folder,
        model=place,
        epochs=0,
        val_accuracy=val.accuracy,
        test_accuracy=None if test is None else test.accuracy,
        test_count=None if test is None else test.count,
    )


def _trained(ground: Ground, folder: Path, rewind: Path) -> Outcome:
    epoch = ground.sparse.rewind
    keepers = []
    if epoch:
        keepers = [RewindKeeper(rewind, epoch=epoch)]
    elif not rewind.exists():
        folder.mkdir(parents=True, exist_ok=True)
        RewindPoint.of(ground.first_model()).save(rewind)
    epochs = ground.dense_epochs
    ground.say(f"dense network: {epochs} epochs")
    found = train_stage(ground, folder, epochs=epochs, number=None, between_steps=keepers)
    return Outcome(
        folder=folder,
        model=found.model,
        epochs=0,
        val_accuracy=found.val_accuracy,
        test_accuracy=found.test_accuracy,
        test_count=found.test_count,
    )
