"""What a sparse network is held against, at equal epochs: dense, by lot, from new weights, and all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from vitscope.core.seed import derive_seed
from vitscope.models.model import VisionModel
from vitscope.sparse.choose import Gone
from vitscope.sparse.masks import Masks, all_kept, by_magnitude, density
from vitscope.sparse.outcome import Outcome, once
from vitscope.sparse.rounds import rounds_of
from vitscope.sparse.rounds.imp import train_masked
from vitscope.sparse.rounds.oneshot import cut_at_once, oneshot_round
from vitscope.sparse.rounds.small import train_small
from vitscope.sparse.stage import train_stage
from vitscope.sparse.trial import Trial
from vitscope.sparse.units import Units


class Controls:
    """Of one trial, round by round; `name` is one of `vitscope.sparse.config.CONTROLS`."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._by_lot: Iterator[tuple[int, Outcome]] | None = None

    def outcomes(self, number: int, found: Outcome) -> Iterator[tuple[str, Outcome]]:
        """The controls that were asked for, beside what the algorithm made in round `number`. Rounds in order."""
        sparse = self.trial.ground.sparse
        if number not in sparse.rounds_held:
            return
        for name in sparse.held_against:
            if name == "oneshot" and self._is_oneshot_itself(number, found):
                self.trial.ground.say(
                    f"round {number}: the control 'oneshot' would be the same network again, and is left out"
                )
                continue
            yield name, getattr(self, f"_{name}")(number, found)

    def _dense(self, number: int, found: Outcome) -> Outcome:
        """Nothing removed, trained for as long from the same weights. Where rounds rewind these are the same in every
        round, and so is the network: it is trained once."""
        trial = self.trial
        folder = trial.round_folder(1 if found.rewind_hash is not None else number, "control-dense")

        def work() -> Outcome:
            trial.ground.say(f"round {number}, control dense: {found.epochs} epochs")
            done = train_stage(trial.ground, folder, epochs=found.epochs, number=number, start=self._begins_with(found))
            return Outcome(
                folder=folder,
                model=done.model,
                epochs=found.epochs,
                val_accuracy=done.val_accuracy,
                test_accuracy=done.test_accuracy,
                test_count=done.test_count,
                rewind_hash=found.rewind_hash,
            )

        return once(folder, work)

    def _random(self, number: int, found: Outcome) -> Outcome:
        """The same algorithm, but what goes is drawn by lot: in the rounds on the way to this one too, where it goes on
        from them."""
        if self.trial.ground.sparse.algorithm == "oneshot":
            return oneshot_round(self.trial, number, criterion="random", name="control-random")
        self._by_lot = self._by_lot or enumerate(rounds_of(self.trial, by_lot=True), start=1)
        return next(drawn for round_, drawn in self._by_lot if round_ == number)

    def _reinit(self, number: int, found: Outcome) -> Outcome:
        """The network that was found, from new weights of its own."""
        trial, folder = self.trial, self.trial.round_folder(number, "control-reinit")
        seed = derive_seed(trial.ground.seed, "new weights", number)

        def work() -> Outcome:
            trial.ground.say(f"round {number}, control reinit: {found.epochs} epochs")
            if found.masks is not None:
                return train_masked(trial, folder, found.masks, number=number, start=new)
            return train_small(trial, folder, found.kept_units, number=number, start=new, epochs=found.epochs)

        def new() -> VisionModel:
            return trial.ground.new_model(trial.dense_model.config, seed)

        return once(folder, work)

    def _oneshot(self, number: int, found: Outcome) -> Outcome:
        """As much, the smallest by magnitude, out of the trained dense network at once."""
        trial, name = self.trial, "control-oneshot"
        if found.masks is None:
            gone = counts_gone(found.kept_units, trial.ground.sparse.ranks)
            return cut_at_once(trial, number, gone, criterion="magnitude", name=name, epochs=found.epochs)
        folder, share = trial.round_folder(number, name), _share_gone(found.masks)

        def work() -> Outcome:
            dense = trial.ground.load(trial.dense.model)
            masks = by_magnitude(dense, all_kept(dense, patch_embed=trial.ground.sparse.patch_embed), share)
            trial.ground.say(f"round {number}, control oneshot: {density(masks):.1%} of the weights are left")
            return train_masked(trial, folder, masks, number=number, start=lambda: dense)

        return once(folder, work)

    def _begins_with(self, found: Outcome) -> Callable[[], VisionModel]:
        trial = self.trial
        return trial.rewound if found.rewind_hash is not None else lambda: trial.dense_model

    def _is_oneshot_itself(self, number: int, found: Outcome) -> bool:
        sparse = self.trial.ground.sparse
        same_cut = sparse.algorithm == "oneshot" and sparse.criterion == "magnitude"
        rewinds_to_trained = found.rewind_hash is not None and self.trial.is_rewound_to_trained
        return same_cut or (sparse.algorithm == "imp" and number == 1 and rewinds_to_trained)


def _share_gone(masks: Masks) -> Fraction:
    """Exactly: a count that was divided and multiplied again in floating point is often one less."""
    return 1 - Fraction(sum(int(mask.sum()) for mask in masks.values()), sum(mask.numel() for mask in masks.values()))


def counts_gone(units: Units, rank: str) -> Gone:
    """As many as are gone of `units`: over all blocks, or of each."""
    if rank == "global":
        return {kind: units.removed(kind) for kind in units.kinds}
    return {
        kind: [total - kept for total, kept in zip(units.totals(kind), units.counts(kind), strict=True)]
        for kind in units.kinds
    }
