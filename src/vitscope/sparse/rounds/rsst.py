"""RSST: doomed units are drawn to 0 while the whole network trains; then they are cut out, and the rest trains on.

A round is two runs of the engine that share one schedule. The first is paused at the cut; the second begins with its
checkpoint, from which the doomed units have been cut: weights, what the optimiser remembers of them, running means.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.errors import VitscopeError
from vitscope.core.run_layout import CHECKPOINTS
from vitscope.models.model import VisionModel
from vitscope.sparse.choose import Gone, gone_after
from vitscope.sparse.cut import Cut, cut_run, is_at
from vitscope.sparse.ground import Ground, StoppedError
from vitscope.sparse.growth import Growth, GrowthHook
from vitscope.sparse.outcome import Outcome, once
from vitscope.sparse.rounds.small import chosen, in_words, short_of
from vitscope.sparse.stage import RUN, Trained, stage_config, train_stage, trained
from vitscope.sparse.trial import Trial
from vitscope.sparse.units import Units, units_of
from vitscope.train.fit import fit
from vitscope.train.work import Work

GROWING, SMALL = "growing", "small"
"""The two runs of a round, in its folder."""
MOST_MOVED = 1e-3
"""By how much of the largest one the cut may move a logit without being remarked on."""


@dataclass
class PauseAt:
    """Pauses a run after one step, with everything saved: `fit(..., between_steps=[PauseAt(step)])`."""

    step: int

    def begin(self, work: Work, sample: Callable[[], Any]) -> None:
        """Nothing yet."""

    def see(self, work: Work) -> None:
        if work.step == self.step:
            work.stop.pause()


def rsst(trial: Trial, *, criterion: str, name: str = "rsst") -> Iterator[Outcome]:
    """An outcome a round; each goes on from the network of the round before."""
    model, units = trial.dense_model, units_of(trial.dense_model)
    for number in range(1, trial.ground.sparse.rounds + 1):
        found = _round(trial, number, model, units, criterion, name)
        yield found
        model, units = trial.ground.load(found.model), found.units or units


def _round(trial: Trial, number: int, model: VisionModel, before: Units, criterion: str, name: str) -> Outcome:
    ground, folder = trial.ground, trial.round_folder(number, name)

    def work() -> Outcome:
        here = units_of(model)  # all kept, in the numbers of the network as it is now
        gone = still_to_go(before, gone_after(before, rate=ground.sparse.rate, rounds=number, rank=ground.sparse.ranks))
        after = chosen(ground.sparse, here, ground.scores(model, criterion, lot=number), gone)
        units = before.refined(after)
        ground.say(f"round {number}, {name}: {in_words(units)} will be left{short_of(ground.sparse, after, gone)}")
        if after == here:
            ground.say(
                f"round {number}, {name}: less than a unit is to go: nothing is removed, the whole network trains on"
            )
            cut = None
            found = train_stage(ground, folder / SMALL, epochs=ground.epochs, number=number, start=lambda: model)
        else:
            cut, found = _grow_and_cut(ground, folder, number, model, here, after)
        trial.rewind.check()
        return Outcome(
            folder=folder,
            model=found.model,
            units=units,
            epochs=number * ground.epochs,
            val_accuracy=found.val_accuracy,
            test_accuracy=found.test_accuracy,
            test_count=found.test_count,
            before_cut_val_accuracy=None if cut is None else cut.before_val_accuracy,
            after_cut_val_accuracy=None if cut is None else cut.after_val_accuracy,
            lambda_end=None if cut is None else cut.lambda_end,
            doomed_share=None if cut is None else cut.doomed_share,
            cut_moved_logits=None if cut is None else cut.moved_logits,
        )

    found = once(folder, work)
    let_go(folder / GROWING / RUN)
    return found


def let_go(growing: Path) -> None:
    """Its checkpoints are what the cut was made from: when the round is done nobody goes on with them."""
    shutil.rmtree(growing / CHECKPOINTS, ignore_errors=True)


def _grow_and_cut(
    ground: Ground, folder: Path, number: int, model: VisionModel, here: Units, after: Units
) -> tuple[Cut, Trained]:
    sparse = ground.sparse
    epochs = min(ground.epochs - 1, max(1, round(sparse.growth_share * ground.epochs)))
    steps = epochs * ground.steps_per_epoch
    growth = Growth(steps=steps, reg=sparse.reg, exp=sparse.exp, schedule=sparse.growth)
    growing, small = folder / GROWING, folder / SMALL
    config = stage_config(ground, growing, epochs=ground.epochs, number=number, start=lambda: model)
    if not is_at(growing / RUN, steps):  # a kill right after the pause must not let it train past the cut
        hook = GrowthHook(here.without(after), growth)
        run = fit(
            config,
            out=growing / RUN,
            resume=True,
            after_step=[hook],
            between_steps=[PauseAt(steps)],
            stop=ground.stop,
        )
        if not ground.stop.is_paused:
            # A signal after the run had left: it was paused, which has no exit code of its own.
            raise StoppedError(run.exit_code or ground.stop.exit_code)
        ground.stop.lower()
        _require_saved(growing / RUN, steps)
    cut = cut_run(ground, config, growing / RUN, small / RUN, here, after)
    if cut.moved_logits > MOST_MOVED:
        ground.say(f"the cut moved a logit by {cut.moved_logits:.1e} of the largest: what was doomed still mattered")
    run = fit(cut.config, out=small / RUN, resume=True, stop=ground.stop)
    return cut, trained(ground, run)


def _require_saved(run: Path, step: int) -> None:
    """Else something older would be cut, with doomed units that still matter."""
    if not is_at(run, step):
        raise VitscopeError(
            f"the growing run has no checkpoint of step {step}, where it was to be cut",
            where=str(run),
            fix="its log says why (no room on the disk, steps that are not finite); then --resume",
        )


def still_to_go(before: Units, gone: Gone) -> Gone:
    """`gone`, counted from the original network, less what went before: for the network as it is now."""

    def rest(kind: str, wanted: Any) -> Any:
        if isinstance(wanted, int):
            return wanted - before.removed(kind)
        lost = (total - kept for total, kept in zip(before.totals(kind), before.counts(kind), strict=True))
        return [number - less for number, less in zip(wanted, lost, strict=True)]

    return {kind: rest(kind, wanted) for kind, wanted in gone.items()}
