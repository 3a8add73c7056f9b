"""Structured pruning in one go: the lowest units of the trained dense network are cut out, then the rest trains."""

from __future__ import annotations

from collections.abc import Iterator

from vitscope.sparse.choose import Gone, gone_after
from vitscope.sparse.outcome import Outcome, once
from vitscope.sparse.rounds.small import chosen, in_words, short_of, train_small
from vitscope.sparse.trial import Trial
from vitscope.sparse.units import units_of


def oneshot(trial: Trial, *, criterion: str, name: str = "oneshot") -> Iterator[Outcome]:
    """An outcome a round, each cut from the dense network anew: as much as that round of the others takes."""
    for number in range(1, trial.ground.sparse.rounds + 1):
        yield oneshot_round(trial, number, criterion=criterion, name=name)


def oneshot_round(trial: Trial, number: int, *, criterion: str, name: str) -> Outcome:
    sparse = trial.ground.sparse
    gone = gone_after(units_of(trial.dense_model), rate=sparse.rate, rounds=number, rank=sparse.ranks)
    return cut_at_once(trial, number, gone, criterion=criterion, name=name)


def cut_at_once(
    trial: Trial, number: int, gone: Gone, *, criterion: str, name: str, epochs: int | None = None
) -> Outcome:
    ground, folder = trial.ground, trial.round_folder(number, name)

    def work() -> Outcome:
        dense = trial.dense_model
        units = chosen(ground.sparse, units_of(dense), ground.scores(dense, criterion), gone)
        ground.say(f"round {number}, {name}: {in_words(units)} are left{short_of(ground.sparse, units, gone)}")
        return train_small(trial, folder, units, number=number, start=lambda: dense, epochs=epochs)

    return once(folder, work)
