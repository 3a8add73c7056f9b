"""The algorithms, one file each: from a trial to an outcome a round."""

from __future__ import annotations

from collections.abc import Iterator

from vitscope.sparse.outcome import Outcome
from vitscope.sparse.rounds.imp import imp
from vitscope.sparse.rounds.oneshot import oneshot
from vitscope.sparse.rounds.refill import refill
from vitscope.sparse.rounds.rsst import rsst
from vitscope.sparse.rounds.two_of_four import two_of_four_round
from vitscope.sparse.trial import Trial

STRUCTURED = {"rsst": rsst, "refill": refill, "oneshot": oneshot}


def rounds_of(trial: Trial, *, by_lot: bool = False) -> Iterator[Outcome]:
    """The outcomes of the algorithm that was asked for, one a round; `by_lot`: what goes is drawn by lot instead."""
    sparse = trial.ground.sparse
    name = "control-random" if by_lot else sparse.algorithm
    if sparse.algorithm == "imp":
        return imp(trial, by_lot=by_lot, name=name)
    if sparse.algorithm == "2of4":
        return two_of_four_round(trial, by_lot=by_lot, name=name)
    return STRUCTURED[sparse.algorithm](trial, criterion="random" if by_lot else sparse.criterion, name=name)
