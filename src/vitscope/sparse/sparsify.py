"""`vitscope.sparsify(config, sparse, ...)`: an experiment from its settings to its report, new or gone on with."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitscope.core.config import to_dict, updated
from vitscope.core.device import pick_device
from vitscope.core.errors import EXIT_DONE, ConfigError, DataError, expected
from vitscope.core.folder_lock import FolderLock
from vitscope.core.overwrite import forget, put_back
from vitscope.core.run_layout import MODEL, REPLACED
from vitscope.sparse.config import SEED, SparseConfig
from vitscope.sparse.controls import Controls
from vitscope.sparse.experiment_folder import open_folder
from vitscope.sparse.ground import Ground, StoppedError
from vitscope.sparse.measure import Stopwatch
from vitscope.sparse.report import write_report
from vitscope.sparse.report.card import how_it_was_made_smaller
from vitscope.sparse.report.words import lasting
from vitscope.sparse.rounds import rounds_of
from vitscope.sparse.rows import DENSE, Row, read_rows, with_kept, write_rows
from vitscope.sparse.tell import row_of
from vitscope.sparse.trial import Trial, begin_trial, refuse_other_units
from vitscope.sparse.two_of_four import why_no_two_of_four
from vitscope.train.config import TrainConfig
from vitscope.train.signals import StopFlag
from vitscope.weights.folder import README, replace_folder

ROUNDS, SPEED = "rounds.csv", "speed.json"
"""What an experiment's folder holds beside its settings (`experiment_folder.py`)."""
GUESSES = 0.1
"""Of the way from guessing to knowing: who is below has learnt hardly anything."""

log = logging.getLogger("vitscope")


@dataclass(frozen=True)
class Experiment:
    """What came of an experiment."""

    folder: Path
    state: str
    """`finished`, or `stopped` by a signal with everything saved."""
    exit_code: int
    rows: list[Row]

    @property
    def table(self) -> Path:
        return self.folder / ROUNDS

    @property
    def model(self) -> Path:
        """The network of the last round and the first seed: a model folder like any other."""
        return self.folder / MODEL

    @property
    def run(self) -> Path:
        """The run that network is of."""
        return (self.folder / _last(self.rows).model).parent


def sparsify(
    config: TrainConfig,
    sparse: SparseConfig,
    *,
    out: str | Path,
    source: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    title: str = "",
    say: Callable[[str], None] = log.info,
    stop: StopFlag | None = None,
) -> Experiment:
    """Sparsify as `sparse` says a network trained as `config` says, in the folder `out`.

    `source` is a trained model (a run, a model folder; `{seed}` in it stands for each seed): rounds then begin with it
    and rewind to it. Without one a dense network is trained first. The same call with `resume=True` goes on where a
    signal, a kill or more rounds left it: runs to their step, rounds to their outcome, bit for bit on the CPU. With
    `overwrite=True` an experiment that is in `out` is removed first.
    """
    folder = Path(out).expanduser()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopFlag()) if stop is None else stop
        seeds = range(config.loop.seed, config.loop.seed + sparse.seeds)

        def ground_of(seed: int) -> Ground:
            own = updated(config, loop=updated(config.loop, seed=seed))
            return Ground(own, sparse, folder / f"seed-{seed}", stop, say, is_given=source is not None)

        # Before the folder is made: what cannot be done leaves nothing behind.
        _refuse_rewind_into(source, sparse)
        _refuse_two_teachers(config, sparse)
        first = ground_of(seeds[0])
        first.open_data()
        refuse_other_units(first, None if source is None else source.replace(SEED, str(seeds[0])))
        lock = FolderLock()
        stack.callback(lock.release)
        open_folder(folder, config, sparse, source, lock, resume=resume, overwrite=overwrite)
        _warn_of_one_network(sparse, source)
        rows: list[Row] = []
        before = _rows_before(folder / ROUNDS)
        stopwatch = Stopwatch(folder / SPEED, pick_device(config.loop.device))
        try:
            for seed in seeds:
                say(f"seed {seed}")
                ground = first if seed == seeds[0] else ground_of(seed)
                trial = begin_trial(ground, None if source is None else source.replace(SEED, str(seed)))
                is_timed = sparse.timing == "all" or (sparse.timing == "first" and seed == config.loop.seed)
                _rounds(trial, rows, before, folder, stopwatch if is_timed else None)
        except StoppedError as stopped:
            say(f"stopped; everything is saved in {folder}")
            return Experiment(folder, "stopped", stopped.exit_code, with_kept(rows, before))
        except Exception:
            if overwrite and not rows and (folder / REPLACED).exists():
                put_back(folder)
            raise
        rows = with_kept(rows, before)
        _put_model(folder, rows, sparse)
        shown = in_words(config, sparse, source, rows)
        write_report(folder, rows, settings=shown, title=title or sparse.algorithm)
        return Experiment(folder, "finished", EXIT_DONE, rows)


def _rounds(trial: Trial, rows: list[Row], before: list[Row], folder: Path, stopwatch: Stopwatch | None) -> None:
    """All rounds of one seed; the table is written whenever a row is there."""

    def enter(row: Row) -> None:
        rows.append(row)
        write_rows(folder / ROUNDS, with_kept(rows, before))
        forget(folder)  # what this one replaces: it has come somewhere itself
        trial.ground.say(how_far(rows, sparse))

    sparse = trial.ground.sparse
    enter(
        row_of(trial, 0, DENSE, trial.dense, root=folder, stopwatch=stopwatch if _is_timed(sparse, stopwatch) else None)
    )
    _warn_of_guessing(trial)
    controls = Controls(trial)
    for number, found in enumerate(rounds_of(trial), start=1):
        enter(row_of(trial, number, sparse.algorithm, found, root=folder, stopwatch=stopwatch))
        for name, control in controls.outcomes(number, found):
            enter(row_of(trial, number, f"control:{name}", control, root=folder))


def how_far(rows: Sequence[Row], sparse: SparseConfig) -> str:
    """Of all networks, and how long the others take if they take as long as those of rounds did so far."""
    held = sparse.rounds_held
    in_all = sparse.seeds * (1 + sparse.rounds + len(held) * len(sparse.held_against))
    took = [row.seconds for row in rows if row.round]
    left = in_all - len(rows)
    if "random" in sparse.held_against and sparse.algorithm != "oneshot":  # rounds by lot on the way, without a row
        there = sum(row.network == "control:random" and row.round == held[-1] for row in rows)
        left += (held[-1] - len(held)) * (sparse.seeds - there)
    rest = f", about {lasting(left * sum(took) / len(took))} to go" if took and left > 0 else ""
    return f"network {len(rows)} of {in_all} is done{rest}"


def _rows_before(table: Path) -> list[Row]:
    """What the experiment has measured so far. A table of other columns is made anew, from what every round left."""
    try:
        return read_rows(table)
    except DataError:
        return []


def _last(rows: list[Row]) -> Row:
    """Of the first seed, what the algorithm came to in the end."""
    return [row for row in rows if row.seed == rows[0].seed and not row.is_control][-1]


def _put_model(folder: Path, rows: list[Row], sparse: SparseConfig) -> None:
    """A copy where verbs look for a model, all of it or nothing."""

    def write(place: Path) -> None:
        shutil.copytree(folder / _last(rows).model, place, dirs_exist_ok=True)
        with (place / README).open("a", encoding="utf-8") as card:
            card.write(f"\n{how_it_was_made_smaller(rows[0], _last(rows), sparse)}")

    replace_folder(folder / MODEL, write)


def _is_timed(sparse: SparseConfig, stopwatch: Stopwatch | None) -> bool:
    """Whether the dense network has something beside it that is timed."""
    if sparse.algorithm == "2of4":
        return stopwatch is not None and why_no_two_of_four(stopwatch.device) is None
    return sparse.algorithm != "imp"


def in_words(config: TrainConfig, sparse: SparseConfig, source: str | None, rows: Sequence[Row]) -> dict[str, str]:
    """The settings a reader of the report asks for. Controls are those of the rows: an earlier call may have asked for
    more."""
    began = f"trained here, {sparse.dense_epochs or config.loop.epochs} epochs" if source is None else source
    shown = {
        "data": config.data.name,
        "model": config.model.name,
        "dense network": began,
        "epochs a round": str(sparse.epochs or config.loop.epochs),
        "optimiser": f"{config.optim.name}, lr {config.optim.lr:g}",
    }
    if config.loss.teacher is not None:
        shown["teacher"] = f"{config.loss.teacher}, {config.loss.distill_share:g} of the loss"
    controls = [row for row in rows if row.is_control]
    beside = {
        "rank": sparse.ranks,
        "controls": ", ".join(dict.fromkeys(row.network.removeprefix("control:") for row in controls)) or "none",
        "control_rounds": ", ".join(map(str, sorted({row.round for row in controls}))) or "none",
    }
    asked = {key: str(value) for key, value in to_dict(sparse).items() if key not in ("epochs", "dense_epochs")}
    return shown | asked | beside


def _refuse_two_teachers(config: TrainConfig, sparse: SparseConfig) -> None:
    if sparse.dense_teaches and config.loss.teacher is not None:
        raise ConfigError(
            expected("dense_teaches", "0 beside loss.teacher: networks have one teacher", sparse.dense_teaches),
            fix="leave one of the two out",
        )


def _refuse_rewind_into(source: str | None, sparse: SparseConfig) -> None:
    if source is not None and sparse.rewind:
        raise ConfigError(
            expected("rewind", "0 where a trained network is given: rounds go back to it", sparse.rewind),
            fix="leave it out, or let the dense network be trained here (a recipe or a YAML file)",
        )


def _warn_of_guessing(trial: Trial) -> None:
    accuracy, chance = trial.dense.val_accuracy, 1 / trial.ground.basis.dataset.num_classes
    if accuracy is not None and accuracy < chance + GUESSES * (1 - chance):
        log.warning(
            "the dense network is right for %.1f %% of the validation pictures, hardly more than guessing (%.1f %%): "
            "what rounds make of it tells nothing of pruning",
            100 * accuracy,
            100 * chance,
        )


def _warn_of_one_network(sparse: SparseConfig, source: str | None) -> None:
    if source is not None and sparse.seeds > 1 and SEED not in source:
        log.warning(
            "all %d seeds begin with the one network '%s': their spread is that of the rounds alone. With {seed} in "
            "the name each seed begins with its own",
            sparse.seeds,
            source,
        )
