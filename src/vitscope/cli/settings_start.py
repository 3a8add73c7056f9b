"""What flags are applied to: the recipe or file that was named, or the defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vitscope.cli.train_flags import EverydayFlags, is_yaml, names_data
from vitscope.core.errors import UsageError, expected
from vitscope.recipes import Recipe, find_recipe
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config


def named_start(command: EverydayFlags, settings: Sequence[str], *, prog: str) -> TrainConfig:
    word = command.recipe or ""
    if is_yaml(word):
        return read_train_config(word)
    if "--help" not in settings:
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


def _refuse_without(recipe: Recipe, given: Mapping[str, str | None], prog: str) -> None:
    for flag in recipe.needs:
        if given[flag] is None:
            example = recipe.measured["command"].replace("vitscope train", prog, 1)
            raise UsageError(f"the recipe '{recipe.name}' needs {flag}", where=prog, fix=f"`{example}`")
