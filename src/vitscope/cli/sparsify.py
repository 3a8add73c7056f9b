"""`vitscope sparsify RECIPE_OR_YAML_OR_RUN`: smaller networks by sparse training, with their controls, timed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from vitscope.cli.console import console, print_json, say
from vitscope.cli.settings_start import (
    named_start,
    nameless_start,
    refuse_means_of_no_picture,
    refuse_pictures,
    refuse_several_processes,
)
from vitscope.cli.train_flags import EverydayFlags, is_yaml, read_words, resolve
from vitscope.core.config import config, field_names, updated
from vitscope.core.errors import UsageError, expected
from vitscope.core.run_layout import CONFIG, MODEL, RUNS, STATUS, is_run_folder
from vitscope.core.status_file import StatusFile
from vitscope.core.strict_json import encode
from vitscope.core.suggest import did_you_mean
from vitscope.core.switch import Switch
from vitscope.recipes import RECIPES
from vitscope.sparse.config import SEED, SPARSE, SparseConfig
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config

PROG = "vitscope sparsify"


@config
class SparsifyCommand(EverydayFlags, SparseConfig):
    """Remove heads, neurons, channels or single weights in rounds of training; measure what is left: accuracy of the
    small network, its size, its speed beside the dense one, and whether it beats simpler ways at equal epochs.

    A recipe, a YAML file, or --data and --model: a dense network is trained first. A run: rounds begin with its model
    and go back to it; `{seed}` in the name stands for each seed's own run. Every setting of `vitscope train` is a flag
    (`--section.key value`); --epochs is of each round.
    """

    examples: ClassVar[dict[str, str]] = {**EverydayFlags.examples, "out": "runs/small"}

    recipe: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE_OR_YAML_OR_RUN]")] = None
    """A recipe of `vitscope train --list`, a YAML file with settings, or a trained run."""
    epochs: int | None = None
    """Epochs of each round; by default the recipe's or run's own."""
    pretrained: Switch = False
    """Begin with the weights published for the model. One that has none begins with new weights, and that is said."""
    out: str | None = None
    """The experiment's folder; by default a new one under runs/."""
    resume: Switch = False
    """Go on with what is in --out: after Ctrl-C, a kill, or with more rounds, seeds or controls."""
    overwrite: Switch = False
    """Replace the experiment that is in --out."""
    json: Switch = False
    """Print the rows and the verdicts as JSON."""

    def __post_init__(self) -> None:
        self.sparse  # noqa: B018  its rules hold here too

    @property
    def sparse(self) -> SparseConfig:
        return SparseConfig(**{name: getattr(self, name) for name in field_names(SparseConfig)})


def run(args: Sequence[str]) -> int:
    command, settings = read_words(SparsifyCommand(), args, prog=PROG)
    refuse_several_processes("rounds are made one after the other", prog=PROG)
    if command.resume and command.out is None:
        raise UsageError(
            "nothing to resume: no experiment is named", where="--resume", fix="name its folder with --out"
        )
    if command.recipe is None and command.resume and command.out is not None and command.data is None:
        _require_experiment(command.out)
        source, train, sparse = _kept(command, settings, args)
    else:
        source, start = _start(command, settings)
        # --epochs is of a round, and not of the dense network.
        everyday = _with_published(command, start) if command.pretrained else command
        train, sparse = resolve(updated(everyday, epochs=None), settings, start, prog=PROG), command.sparse
        refuse_means_of_no_picture(train, prog=PROG)
    if source is not None:
        for seed in range(sparse.seeds if SEED in source else 1):
            _require_trained(Path(source.replace(SEED, str(train.loop.seed + seed))))
        _refuse_other_layers(source, train)
    out = Path(command.out) if command.out is not None else _free_folder(command, train)

    from vitscope.train.signals import StopFlag

    with StopFlag() as stop:
        from vitscope.sparse.report import as_text, verdicts_of
        from vitscope.sparse.sparsify import sparsify

        done = sparsify(
            train,
            sparse,
            out=out,
            source=source,
            resume=command.resume,
            overwrite=command.overwrite,
            title=f"{sparse.algorithm} on {command.recipe or source or train.data.name}",
            say=say,
            stop=stop,
        )
    if command.json:
        rows, verdicts = [vars(row) for row in done.rows], [vars(one) for one in verdicts_of(done.rows)]
        print_json(encode({"state": done.state, "folder": str(done.folder), "rows": rows, "verdicts": verdicts}))
        return done.exit_code
    if done.state == "finished":
        console().print(as_text(done.rows), markup=False, highlight=False, soft_wrap=True)
        files = f"model {done.model}/, table {done.table}, page {done.folder / 'report.html'}"
        for line in (files, f"next: vitscope eval {shlex.quote(str(done.run))}"):
            console().print(line, markup=False, highlight=False, soft_wrap=True)
    else:
        words = [word for word in args if word not in ("--resume", "--overwrite")]
        words += [] if command.out else ["--out", str(out)]
        console().print(f"next: {PROG} {shlex.join(words)} --resume", markup=False, highlight=False, soft_wrap=True)
    return done.exit_code


def _start(command: SparsifyCommand, settings: Sequence[str]) -> tuple[str | None, TrainConfig]:
    """The trained network rounds begin with, where one is named, and the settings of training."""
    word = command.recipe
    if word is None:
        return None, nameless_start(command, settings, prog=PROG)
    first = Path(word.replace(SEED, str(command.seed or 0))).expanduser()
    if SEED in word and not first.exists():
        raise UsageError(
            f"there is no '{first}', which '{word}' stands for with seed {command.seed or 0}",
            where=PROG,
            fix="train it first, or name the first seed there is (--seed)",
        )
    if first.name == MODEL and is_run_folder(first.parent):
        raise UsageError(
            expected(f"'{word}'", "a run", "the model in it"),
            where=PROG,
            fix=f"`{PROG} {shlex.quote(str(first.parent))}`",
        )
    if is_run_folder(first):
        if command.init_from is not None:
            raise UsageError(f"--from is for new runs: '{word}' brings its weights", where=PROG, fix="leave it out")
        return str(Path(word).expanduser()), _without_its_teacher(first, read_train_config(first / CONFIG))
    if _is_experiment(word):
        raise UsageError(
            f"'{word}' is a sparse experiment, and holds many networks",
            where=PROG,
            fix=f"name the run of one, such as {first}/seed-0/round-1/.../run, or go on with it: --resume --out {word}",
        )
    if word not in RECIPES:
        refuse_pictures(word, command, prog=PROG)
    if word not in RECIPES and not is_yaml(word):
        raise UsageError(
            f"'{word}' is neither a recipe, a YAML file nor a run's folder",
            where=PROG,
            fix=did_you_mean(word, RECIPES) or "`vitscope train --list` shows the recipes",
        )
    return None, named_start(command, settings, prog=PROG)


def _without_its_teacher(run: Path, config: TrainConfig) -> TrainConfig:
    """A run inside an experiment may have been taught by the dense network it came from: that is over with it, and
    would be the wrong one for other seeds."""
    if not any((above / SPARSE).is_file() for above in run.resolve().parents):
        return config
    return updated(config, loss=updated(config.loss, teacher=None))


def _refuse_other_layers(source: str, train: TrainConfig) -> None:
    """A run brings its network, whose layers flags cannot change: they would be forgotten without a word."""
    from vitscope.sparse.ground import DROPS

    first = Path(source.replace(SEED, str(train.loop.seed)))
    brought: Any = read_train_config(first / CONFIG).model
    asked: Any = train.model
    names = field_names(type(brought))
    other = [name for name in names if name not in DROPS and getattr(asked, name, None) != getattr(brought, name)]
    if asked.family != brought.family:
        other = ["family"]
    if other:
        has, came = (repr(getattr(one, other[0])) for one in (brought, asked))
        raise UsageError(
            expected(f"model.{other[0]}", f"{has}, as '{source}' has it", came),
            where=PROG,
            fix="leave it out: of a run's model only drop rates can be set anew (--model.drop-path-rate 0)",
        )


def _is_experiment(folder: str | None) -> bool:
    return folder is not None and (Path(folder).expanduser() / SPARSE).is_file()


def _require_experiment(folder: str) -> None:
    if not _is_experiment(folder):
        there = "a run" if is_run_folder(Path(folder).expanduser()) else "something else"
        raise UsageError(
            expected(f"'{folder}'", "the folder of a sparse experiment", there if Path(folder).exists() else "nothing"),
            where="--resume",
            fix="name its folder with --out; a new experiment begins with a recipe, a YAML file or a run",
        )


def _kept(
    command: SparsifyCommand, settings: Sequence[str], args: Sequence[str]
) -> tuple[str | None, TrainConfig, SparseConfig]:
    """An experiment's own settings, with other rounds, seeds or controls where they were typed, as `args` shows."""
    from vitscope.sparse.experiment_folder import kept_settings

    train, sparse, source = kept_settings(Path(command.out or "").expanduser())
    plain, flags = SparsifyCommand(), (word.partition("=")[0] for word in args if word.startswith("--"))
    typed = {flag.removeprefix("--").replace("-", "_") for flag in flags}
    names = (name for name in field_names(SparseConfig) if {name, f"no_{name}"} & typed)
    changes = {name: getattr(command, name) for name in names}
    everyday = updated(command, epochs=None, **{name: getattr(plain, name) for name in changes})
    return source, resolve(everyday, settings, train, prog=PROG), updated(sparse, **changes)


def _with_published(command: SparsifyCommand, start: TrainConfig) -> SparsifyCommand:
    """The same with the weights somebody published for the model."""
    from vitscope.weights.pretrained import PRETRAINED

    name = command.model or start.model.name
    if command.init_from is not None:
        raise UsageError("--pretrained and --from both say where weights come from", where=PROG, fix="leave one out")
    if name not in PRETRAINED:
        near = ", ".join(sorted(PRETRAINED)[:3])
        say(f"warning: no weights are published for '{name}': it begins with new ones (some that have: {near}, ...)")
        return command
    return updated(command, init_from=PRETRAINED[name].hub, model=name)


def _require_trained(run: Path) -> None:
    status = StatusFile(run / STATUS)
    if status.is_alive():
        raise UsageError(
            expected(f"'{run}'", "a run that has ended", f"one at work (process {(status.read() or {}).get('pid')})"),
            where=PROG,
            fix="wait for its end, or stop it",
        )
    if not (run / MODEL).is_dir():
        raise UsageError(
            expected(f"'{run}'", "a run with a trained model", "none yet"), where=PROG, fix="train it to its end first"
        )
    state = (status.read() or {}).get("state")
    if state not in (None, "finished"):
        how = "killed" if state in ("starting", "running") else state
        say(
            f"'{run}' did not train to its end ({how}): rounds begin with its best epoch so far; "
            f"`vitscope train --resume --out {shlex.quote(str(run))}` goes on with it"
        )


def _free_folder(command: SparsifyCommand, train: TrainConfig) -> Path:
    """The next free runs/sparse-NAME-001."""
    word = command.recipe or f"{train.data.name}-{train.model.name}"
    name = f"sparse-{Path(word.replace(SEED, '')).stem.strip('-_') or 'run'}"
    number = 1
    while (Path(RUNS) / f"{name}-{number:03d}").exists():
        number += 1
    return Path(RUNS) / f"{name}-{number:03d}"
