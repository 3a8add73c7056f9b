"""Refill (Chen et al. 2022, arXiv 2202.04736): a ticket's unstructured mask says how many whole units it is worth.

So many, the best by the criterion on the trained weights, are restored whole from the rewind point; the others are cut
out, and the small network trains from there.
"""

from __future__ import annotations

from collections.abc import Iterator

from vitscope.models.model import VisionModel
from vitscope.sparse.layout import groups_of
from vitscope.sparse.masks import Masks, all_kept, density
from vitscope.sparse.outcome import Outcome, once
from vitscope.sparse.refill import gone_by_masks
from vitscope.sparse.rounds.imp import next_masks, ticket
from vitscope.sparse.rounds.small import chosen, in_words, short_of, train_small
from vitscope.sparse.trial import Trial
from vitscope.sparse.units import Units, units_of


def refill(trial: Trial, *, criterion: str, name: str = "refill") -> Iterator[Outcome]:
    """An outcome a round. The tickets between rounds are trained once, whoever asks."""
    ground, dense = trial.ground, trial.dense_model
    masks, trained, units = all_kept(dense, patch_embed=ground.sparse.patch_embed), None, units_of(dense)
    for number in range(1, ground.sparse.rounds + 1):
        before = masks
        masks = next_masks(trial, number, before, trained)
        found = _round(trial, number, masks, trained, units, criterion, name)
        yield found
        units = found.units or units
        if number < ground.sparse.rounds:
            trained = ground.load(ticket(trial, number, before, trained).model)


def _round(
    trial: Trial,
    number: int,
    masks: Masks,
    trained: VisionModel | None,
    before: Units,
    criterion: str,
    name: str,
) -> Outcome:
    ground, folder = trial.ground, trial.round_folder(number, name)
    sparse, model = ground.sparse, trained or trial.dense_model

    def work() -> Outcome:
        gone = gone_by_masks(groups_of(model), masks, fillback=sparse.fillback, rank=sparse.ranks)
        units = chosen(sparse, before, ground.scores(model, criterion, masks=masks), gone)
        worth = f"{in_words(units)}{short_of(sparse, units, gone)}"
        ground.say(f"round {number}, {name}: a mask at {density(masks):.1%} density corresponds to {worth}")
        return train_small(trial, folder, units, number=number, start=trial.rewound, rewound=True)

    return trial.proved(once(folder, work))
