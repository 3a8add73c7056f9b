"""The table of recipes. A recipe is a function that returns a TrainConfig; its docstring says what it is in the first
line, and below it, as `word: text` lines, the command and what was measured with it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

from vitscope.core.errors import UsageError
from vitscope.core.registry import Registry
from vitscope.train.config import TrainConfig

_FIGURE = re.compile(r"(?P<what>[a-z][a-z/ ]*): +(?P<text>.*\S)")


@dataclass(frozen=True)
class Recipe:
    """A function that returns a run's settings, and what is known about it."""

    name: str
    make: Callable[[], TrainConfig]
    about: str
    """What it is, in a line."""
    measured: dict[str, str]
    """What its docstring tells: command, time, images/s, accuracy -> text."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Flags it cannot do without, as its docstring names them: `needs: --from --data`."""
        return tuple(self.measured.get("needs", "").split())

    def __call__(self) -> TrainConfig:
        return self.make()


RECIPES: Registry[Recipe] = Registry("recipe")


def recipe(make: Callable[[], TrainConfig]) -> Callable[[], TrainConfig]:
    """Register a function under its name: afterwards `vitscope train NAME` runs it."""
    about, _, rest = (inspect.getdoc(make) or "").partition("\n")
    if not about:
        raise UsageError(f"recipe '{make.__name__}' has no docstring", fix="say in its first line what it is")
    RECIPES.register(make.__name__, Recipe(make.__name__, make, about, _measured(rest)))
    return make


def find_recipe(name: str) -> Recipe:
    """The recipe of this name; refuses others with a did-you-mean."""
    try:
        return RECIPES[name]
    except UsageError as error:
        near = error.fix if (error.fix or "").startswith(("did you mean", "you mean")) else None
        raise UsageError(
            f"'{name}' is neither a recipe nor a YAML file",
            where="vitscope train",
            fix=near or "`vitscope train --list` shows the recipes",
        ) from None


def _measured(text: str) -> dict[str, str]:
    """`word: text` lines; indented lines go on with the one above."""
    figures: dict[str, str] = {}
    last = None
    for line in text.splitlines():
        match = _FIGURE.fullmatch(line)
        if match is not None:
            last = match["what"]
            figures[last] = match["text"]
        elif last is not None and line.startswith(" "):
            figures[last] += " " + line.strip()
        else:
            last = None
    return figures
