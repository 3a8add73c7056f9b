"""Whole units out, at once: which ones, and a round of training for the network that is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vitscope.models.model import VisionModel
from vitscope.sparse.choose import Gone, Scores, choose
from vitscope.sparse.config import SparseConfig
from vitscope.sparse.outcome import Outcome
from vitscope.sparse.stage import START, train_stage
from vitscope.sparse.surgery import shrink
from vitscope.sparse.trial import Trial
from vitscope.sparse.units import Units


def chosen(sparse: SparseConfig, units: Units, scores: Scores, gone: Gone) -> Units:
    """`units` without the lowest ones, as the settings would have it. Kinds that are not to lose any lose none."""
    least = {kind: 1 if kind == "heads" else sparse.least_neurons for kind in units.kinds}
    wanted = {kind: gone[kind] for kind in units.kinds if kind in sparse.kinds and kind in gone}
    return choose(units, scores, wanted, least=least, round_to=sparse.round_to, allow_empty=sparse.allow_empty)


def in_words(units: Units) -> str:
    """What is left, for the log."""
    return ", ".join(f"{sum(units.counts(kind))} of {sum(units.totals(kind))} {kind}" for kind in units.kinds)


def short_of(sparse: SparseConfig, units: Units, gone: Gone) -> str:
    """Where fewer went than were to go, and not by rounding: why."""
    said: list[str] = []
    for kind, wanted in gone.items():
        if kind not in units.kinds or kind not in sparse.kinds:
            continue
        lacking = (wanted if isinstance(wanted, int) else sum(wanted)) - units.removed(kind)
        rounding = 0 if kind == "heads" else len(units.counts(kind)) * (sparse.round_to - 1)
        if lacking > rounding:
            said.append(f"{lacking} more {kind} were to go")
    remedy = "--least-neurons" if sparse.allow_empty else "--least-neurons, --allow-empty"
    return f" ({', '.join(said)}, but some stay in every block: {remedy})" if said else ""


def train_small(
    trial: Trial,
    folder: Path,
    units: Units,
    *,
    number: int,
    start: Callable[[], VisionModel],
    epochs: int | None = None,
    rewound: bool = False,
) -> Outcome:
    """Cut `units` out of what `start` gives, and train what is left; `number` is the round's."""
    ground = trial.ground
    epochs = epochs or ground.epochs
    found = train_stage(ground, folder, epochs=epochs, number=number, start=lambda: shrink(start(), units))
    after_cut = ground.judge(ground.load(folder / START)).accuracy
    trial.rewind.check()
    return Outcome(
        folder=folder,
        model=found.model,
        units=units,
        epochs=epochs,
        val_accuracy=found.val_accuracy,
        test_accuracy=found.test_accuracy,
        test_count=found.test_count,
        after_cut_val_accuracy=after_cut,
        rewind_hash=trial.rewind.hash if rewound else None,
    )
