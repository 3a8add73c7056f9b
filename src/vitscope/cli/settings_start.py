"""What flags are applied to: the recipe or file that was named, or the defaults."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from vitscope.cli.train_flags import PROG, YAML_ENDS, EverydayFlags, is_yaml, names_data
from vitscope.core.environment import process_place
from vitscope.core.errors import ConfigError, UsageError, expected
from vitscope.core.one_voice import in_one_voice
from vitscope.core.run_layout import runs_in
from vitscope.recipes import RECIPES, Recipe, find_recipe
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config

TAKES = {
    True: ("RECIPE_OR_YAML", "a recipe or a YAML file"),
    False: ("RECIPE_OR_YAML_OR_RUN", "a recipe, a YAML file or a run's folder"),
}
"""Whether it is training that asks -> what its first word is called, and may be."""


def named_start(command: EverydayFlags, settings: Sequence[str], *, prog: str) -> TrainConfig:
    word = command.recipe or ""
    if word not in RECIPES:
        refuse_pictures(word, command, prog=prog)
    if is_yaml(word):
        return read_train_config(word)
    only_looks = "--help" in settings or getattr(command, "print_config", False)
    if not only_looks:
        _refuse_without(find_recipe(word), {"--from": command.init_from, "--data": command.data}, prog)
    return find_recipe(word)()


def nameless_start(command: EverydayFlags, settings: Sequence[str], *, prog: str) -> TrainConfig:
    """The defaults, which say nothing of the data."""
    if not names_data(command, settings) and "--help" not in settings:
        raise UsageError(
            expected("--data", "a data set, as no recipe is named", "nothing"),
            where=prog,
            fix=f"`{prog} --data digits`, or a recipe of `vitscope train --list`",
        )
    return TrainConfig()


def refuse_pictures(word: str, command: EverydayFlags, *, prog: str) -> None:
    """Pictures are named by --data: what stands alone is a recipe, settings or a run."""
    path = Path(word).expanduser()
    if word.endswith(YAML_ENDS) or (path.exists() and runs_in(path)):
        return
    from vitscope.data.sources.files import PICTURE_SUFFIXES
    from vitscope.data.sources.open import is_data_name, looks_like_data

    given = shlex.quote(word)
    model = "" if command.model is None else f" --model {shlex.quote(command.model)}"
    if path.exists():
        _refuse_experiment(path, prog)
    if not path.exists() and is_data_name(word):
        kind, fix = "data set", f"`{prog} --data {given}{model}`"
    elif not path.exists():
        return
    elif path.is_file() and path.suffix.lower() in PICTURE_SUFFIXES:
        kind, fix = "picture", f"`{prog} --data FOLDER{model}` takes many, `vitscope predict MODEL {given}` one"
    elif looks_like_data(path):
        kind, fix = "folder of pictures" if path.is_dir() else "file of pictures", f"`{prog} --data {given}{model}`"
    else:
        return
    name, wanted = TAKES[prog == PROG]
    raise UsageError(expected(name, wanted, f"the {kind} '{word}'"), where=prog, fix=fix)


def refuse_several_processes(why_one: str, *, prog: str) -> None:
    world = process_place()[2]
    with in_one_voice():
        if world == 1:
            return
        raise UsageError(expected("processes", f"one: {why_one}", world), where=prog, fix="start it without torchrun")


def _refuse_experiment(path: Path, prog: str) -> None:
    from vitscope.sparse.config import SPARSE

    if not (path / SPARSE).is_file():
        return
    inside = sorted(one for one in path.glob("seed-*/round-*/**/run") if "control-" not in str(one.relative_to(path)))
    last = str(inside[-1] if inside else path / "seed-0/round-1/.../run")
    name, wanted = TAKES[prog == PROG]
    raise UsageError(
        expected(name, wanted, f"the sparse experiment '{path}', which holds many runs"),
        where=prog,
        fix=f"`{prog} {shlex.quote(last + ('/config.yaml' if prog == PROG else ''))}`",
    )


def refuse_means_of_no_picture(config: TrainConfig, *, prog: str) -> None:
    """Only before training: the doctor examines whatever can be set."""
    given = {"data.mean": config.data.mean, "data.std": config.data.std}
    wrong = {name: numbers for name, numbers in given.items() if not all(0 <= one <= 1 for one in numbers or ())}
    if not wrong:
        return
    name, numbers = next(iter(wrong.items()))
    flags = [
        f"--{name} {' '.join(f'{one / 255:.3g}' for one in numbers)}" for name, numbers in wrong.items() if numbers
    ]
    are_bytes = all(0 <= one <= 255 for numbers in wrong.values() for one in numbers or ())
    raise ConfigError(
        expected(name, "numbers from 0 to 1, as pixels are counted", numbers),
        where=prog,
        fix=f"if pixels are counted from 0 to 255: `{' '.join(flags)}`"
        if are_bytes
        else "`--data.normalisation half` needs neither mean nor std",
    )


def _refuse_without(recipe: Recipe, given: Mapping[str, str | None], prog: str) -> None:
    for flag in recipe.needs:
        if given[flag] is None:
            example = recipe.measured["command"].replace("vitscope train", prog, 1)
            raise UsageError(f"the recipe '{recipe.name}' needs {flag}", where=prog, fix=f"`{example}`")
