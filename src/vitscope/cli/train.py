"""`vitscope train [RECIPE_OR_YAML]`: train a classifier, continue a run, list the recipes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitscope.cli.console import console, plain_table, print_json
from vitscope.cli.settings_start import named_start, nameless_start, refuse_means_of_no_picture
from vitscope.cli.train_flags import PROG, TrainCommand, is_yaml, names_data, read_command, resolve
from vitscope.core.config import to_dict
from vitscope.core.environment import process_place
from vitscope.core.errors import EXIT_DONE, UsageError, expected
from vitscope.core.one_voice import in_one_voice
from vitscope.core.run_folder import RunFolder
from vitscope.core.run_layout import CONFIG, is_run_folder
from vitscope.core.run_view import read_run
from vitscope.core.strict_json import encode
from vitscope.core.yaml import to_yaml
from vitscope.recipes import RECIPES
from vitscope.train.config import TrainConfig
from vitscope.train.config.metric import is_larger_better
from vitscope.train.config.read import read_train_config

if TYPE_CHECKING:
    from vitscope.train.fit import Run

PLACES = ("--out", "--resume-from")
"""Flags with a value that say where a run is."""
ONCE = ("--resume", "--overwrite", "--json", "--monitor")
"""Switches that are not about what is trained."""


def run(args: Sequence[str]) -> int:
    with in_one_voice():
        command, settings = read_command(args)
        if command.list:
            _list(command)
            return EXIT_DONE
        if command.print_config or "--help" in settings:
            _print_config(command, resolve(command, settings, _start(command, settings)))
            return EXIT_DONE

    from vitscope.train.signals import StopFlag

    # From here on a signal is heard: importing torch takes seconds.
    rank, _, world = process_place()
    with StopFlag() as stop:
        stop.stays_deaf = world > 1
        with in_one_voice(lambda: bool(stop)):
            if command.resume_from is not None:
                RunFolder.open(command.out or "")  # a new folder would be begun at step 0, whatever was asked for
            config = resolve(command, settings, _start(command, settings))
            if not command.resumes:
                refuse_means_of_no_picture(config, prog=PROG)
        from vitscope.doctor.monitor import Monitor
        from vitscope.train.fit import fit

        done = fit(
            config,
            out=command.out,
            name=_run_name(command, config),
            resume=command.resume,
            resume_from=command.resume_from,
            overwrite=command.overwrite,
            command=_repeatable(command, args),
            remarks=_chosen_by_nobody(command, config),
            between_steps=[Monitor()] if command.monitor else [],
            stop=stop,
        )
    if rank:  # the first process reports
        return done.exit_code
    report = report_of(done)
    print_json(encode(report)) if command.json else _print_report(report)
    return done.exit_code


def _start(command: TrainCommand, settings: Sequence[str]) -> TrainConfig:
    """What flags are applied to: the recipe, the file, the run that is continued, or the defaults."""
    word = command.recipe
    if word is not None:
        if is_run_folder(Path(word)):
            raise UsageError(
                expected("RECIPE_OR_YAML", "a recipe or a YAML file", f"the run '{word}'"),
                where=PROG,
                fix=f"`{PROG} {Path(word) / CONFIG}` repeats it, `{PROG} --resume --out {word}` continues it",
            )
        return named_start(command, settings, prog=PROG)
    if command.resumes and not names_data(command, settings):
        return read_train_config(RunFolder.open(command.out or "").config_path)
    return nameless_start(command, settings, prog=PROG)


def _chosen_by_nobody(command: TrainCommand, config: TrainConfig) -> list[str]:
    if command.recipe is not None or command.resumes or command.model is not None or command.init_from is not None:
        return []
    epochs = f"{config.loop.epochs:,} epoch{'s' * (config.loop.epochs > 1)}"
    change = " (change with --epochs)" * (command.epochs is None)
    return [f"no --model given: training {config.model.name} for {epochs}{change}"]


def _run_name(command: TrainCommand, config: TrainConfig) -> str:
    """What a numbered folder is called after: the recipe, the file, or data and model."""
    word = command.recipe
    if word is None:
        return f"{Path(config.data.name).stem}-{config.model.name}"
    if not is_yaml(word):
        return word
    path = Path(word).resolve()
    return re.sub(r"-\d+$", "", path.parent.name) if path.name == CONFIG else path.stem


def _repeatable(command: TrainCommand, args: Sequence[str]) -> str:
    """What to type for such a run anywhere: where it was written is nobody else's business."""
    words, passes = ["vitscope", "train"], False
    for arg in args:
        flag, equals, _ = arg.replace("_", "-").partition("=")
        if not passes and flag not in PLACES and flag not in ONCE:
            words.append(arg)
        passes = flag in PLACES and not equals
    if command.resume:
        words += ["--resume", "--out", "RUN"]
    elif command.resume_from is not None:
        words += ["--resume-from", Path(command.resume_from).name, "--out", "RUN"]
    return shlex.join(words)


def _list(command: TrainCommand) -> None:
    recipes = [RECIPES[name] for name in RECIPES]
    if command.json:
        print_json([{"name": recipe.name, "about": recipe.about, **recipe.measured} for recipe in recipes])
        return
    figures = ("accuracy", "time", "images/s")
    table = plain_table("recipe", "what it is", *figures)
    for recipe in recipes:
        table.add_row(recipe.name, recipe.about, *(recipe.measured.get(figure, "") for figure in figures))
    console().print(table)
    console().print(f"\n`{PROG} RECIPE` runs one, `{PROG} RECIPE --print-config` shows all its settings", markup=False)


def _print_config(command: TrainCommand, config: TrainConfig) -> None:
    if command.json:
        print_json(encode(to_dict(config)))
    else:
        sys.stdout.write(to_yaml(config))
        sys.stdout.flush()


def report_of(done: Run) -> dict[str, Any]:
    """What came of a run, in plain data."""
    folder = done.folder.path
    place = shlex.quote(str(folder))
    finished = done.state == "finished"
    seen = read_run(done.folder.path)
    return {
        "state": done.state,
        "run": str(folder),
        "model": str(done.model_folder) if done.model_folder.exists() else None,
        "plots": str(done.folder.plots) if done.folder.plots.exists() else None,
        "best": done.best,
        "monitor": seen.monitor,
        "larger_is_better": is_larger_better(seen.monitor, seen.monitor_mode),
        "test": done.test,
        "next": f"vitscope eval {place}" if finished else f"{PROG} --resume --out {place}",
    }


def _best(report: dict[str, Any]) -> str:
    """'best epoch 3 (highest val/accuracy)': the best by one figure need not be the best by another."""
    which = "highest" if report["larger_is_better"] else "lowest"
    return f"best epoch {report['best']['epoch']:g} ({which} {report['monitor']})"


def _print_report(report: dict[str, Any]) -> None:
    """Two or three lines: how good, where, what to type next."""
    best, test = report["best"], report["test"]
    figures = []
    if test is not None and "test/accuracy" in test:
        count = test.get("test/count")
        pictures = f" ({count:,.0f} pictures)" if count is not None else ""
        figures.append(f"test accuracy {test['test/accuracy']:.2%}{pictures}")
    if best is not None and "val/accuracy" in best:
        figures.append(f"{_best(report)}: validation accuracy {best['val/accuracy']:.2%}")
    if report["state"] != "finished":
        figures.insert(0, report["state"])
    places = [f"run {report['run']}/"]
    places += [f"{name} {report[name]}/" for name in ("plots", "model") if report[name] is not None]
    out = console()
    for line in ("; ".join(figures), ", ".join(places), f"next: {report['next']}"):
        if line:
            out.print(line, markup=False, soft_wrap=True)
