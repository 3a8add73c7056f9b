"""2:4 in one round: the trained dense network loses two of each four neighbours, then trains on with the pattern held
(Mishra et al. 2021, arXiv 2104.08378). Half of the weights: no rate, and no second round."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from vitscope.core.seed import derive_seed
from vitscope.models.model import VisionModel
from vitscope.sparse.masks import Masks, all_kept, density
from vitscope.sparse.outcome import Outcome, once
from vitscope.sparse.rounds.imp import train_masked, with_random_weights
from vitscope.sparse.stage import START
from vitscope.sparse.trial import Trial
from vitscope.sparse.two_of_four import two_of_four


def two_of_four_round(trial: Trial, *, by_lot: bool = False, name: str = "2of4") -> Iterator[Outcome]:
    """One outcome. `by_lot`: which two stay means nothing."""
    ground, folder = trial.ground, trial.round_folder(1, name)

    def work() -> Outcome:
        masks = _masks(trial, by_lot=by_lot)
        ground.say(f"round 1, {name}: {density(masks):.1%} of the prunable weights are left, two of each four")
        found = train_masked(trial, folder, masks, number=1, start=trained)
        return dataclasses.replace(found, after_cut_val_accuracy=ground.judge(ground.load(folder / START)).accuracy)

    def trained() -> VisionModel:
        return ground.load(trial.dense.model)

    yield once(folder, work)


def _masks(trial: Trial, *, by_lot: bool) -> Masks:
    """Of all prunable weights, so that shares are of them: what 2:4 does not fit stays whole."""
    model = trial.dense_model
    if by_lot:
        seed = derive_seed(trial.ground.seed, "random weights", 1)
        model = with_random_weights(trial.ground.load(trial.dense.model), seed)
    return all_kept(model) | two_of_four(model)
