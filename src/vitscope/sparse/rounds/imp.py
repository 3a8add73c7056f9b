"""Iterative magnitude pruning with rewinding (lottery tickets: Frankle et al. 2019, arXiv 1903.01611).

Train to the end, take the smallest of the remaining weights, put the survivors back to the rewind point, train again
with a new optimiser and schedule. Nothing becomes smaller or faster: what is masked is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from vitscope.core.seed import derive_seed
from vitscope.models.model import VisionModel
from vitscope.sparse.mask_hook import MaskHook
from vitscope.sparse.masks import Masks, all_kept, apply_masks, by_magnitude, density
from vitscope.sparse.outcome import Outcome, once
from vitscope.sparse.stage import train_stage
from vitscope.sparse.trial import Trial


def imp(trial: Trial, *, by_lot: bool = False, name: str = "imp") -> Iterator[Outcome]:
    """An outcome a round: density (1 - rate)^k. `by_lot`: which weights go means nothing."""
    trained: VisionModel | None = None
    masks = all_kept(trial.dense_model, patch_embed=trial.ground.sparse.patch_embed)
    for number in range(1, trial.ground.sparse.rounds + 1):
        found = ticket(trial, number, masks, trained, by_lot=by_lot, name=name)
        yield found
        masks, trained = found.masks or {}, trial.ground.load(found.model)


def ticket(
    trial: Trial, number: int, before: Masks, trained: VisionModel | None, *, by_lot: bool = False, name: str = "imp"
) -> Outcome:
    """The ticket of one round: from the masks and the trained network of the round before (None: the dense one)."""
    ground, folder = trial.ground, trial.round_folder(number, name)

    def work() -> Outcome:
        masks = next_masks(trial, number, before, trained, by_lot=by_lot)
        ground.say(f"round {number}, {name}: {density(masks):.1%} of the prunable weights are left")
        return train_masked(trial, folder, masks, number=number)

    return trial.proved(once(folder, work))


def next_masks(trial: Trial, number: int, before: Masks, trained: VisionModel | None, *, by_lot: bool = False) -> Masks:
    """Without the `rate` of what remains that is smallest in the trained network, or that the lot falls on."""
    model = trained or trial.dense_model
    if by_lot:
        model = with_random_weights(trial.rewound(), derive_seed(trial.ground.seed, "random weights", number))
    return by_magnitude(model, before, trial.ground.sparse.rate)


def train_masked(
    trial: Trial, folder: Path, masks: Masks, *, number: int, start: Callable[[], VisionModel] | None = None
) -> Outcome:
    """A round of a masked network, from the rewind point unless `start` gives a network of its own to change."""
    ground = trial.ground

    def begin() -> VisionModel:
        model = (start or trial.rewound)()
        apply_masks(model, masks)
        return model

    hook = MaskHook(masks)
    found = train_stage(
        ground, folder, epochs=ground.epochs, number=number, start=begin, after_step=[hook], between_steps=[hook]
    )
    trial.rewind.check()
    return Outcome(
        folder=folder,
        model=found.model,
        masks=masks,
        epochs=ground.epochs,
        val_accuracy=found.val_accuracy,
        test_accuracy=found.test_accuracy,
        test_count=found.test_count,
        rewind_hash=trial.rewind.hash if start is None else None,
    )


@torch.no_grad()
def with_random_weights(model: VisionModel, seed: int) -> VisionModel:
    """Every size is as likely everywhere: the smallest are drawn by lot."""
    rng = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.copy_(torch.rand(parameter.shape, generator=rng) + 0.5)
    return model
