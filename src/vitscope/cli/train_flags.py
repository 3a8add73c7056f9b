"""From what was typed after `vitscope train` (or `doctor`) to a command and the settings of a run.

Everyday flags (`--epochs`) and settings (`--loop.epochs`) are read apart: which settings there are depends on the
model, and that on the everyday flags.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import tyro

from vitscope.cli.train_start import for_channels, from_source, given_settings, pick_model
from vitscope.core.config import config, field_names, require, updated
from vitscope.core.errors import ConfigError, UsageError
from vitscope.core.flags import flag_names, parse_flags, refuse_unknown_flags
from vitscope.core.run_layout import is_run_folder
from vitscope.core.suggest import nearest
from vitscope.core.switch import Switch
from vitscope.data.config import augmentation, strength_of
from vitscope.models.variants import is_classifier
from vitscope.recipes import RECIPES
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import side_of

PROG = "vitscope train"
ABOUT_SETTINGS = (
    """Every setting of a run, with the values it would have. `vitscope train --help` shows the everyday flags."""
)
YAML_ENDS = (".yaml", ".yml")

# Everyday flag -> the setting it stands for.
ALIASES = {
    "data": ("data", "name"),
    "epochs": ("loop", "epochs"),
    "batch_size": ("data", "batch_size"),
    "lr": ("optim", "lr"),
    "seed": ("loop", "seed"),
    "device": ("loop", "device"),
    "init_from": ("checkpoint", "init_from"),
    "teacher": ("loss", "teacher"),
    "deterministic": ("precision", "deterministic"),
}
# Settings that decide over others, and so are read with the everyday flags.
EARLY = {"--from": "--init-from", "--checkpoint.init-from": "--init-from", "--model.name": "--model"}
# Other people's words.
SYNONYMS = {
    "dataset": "data",
    "learning-rate": "lr",
    "batch": "batch-size",
    "bs": "batch-size",
    "output": "out",
    "output-dir": "out",
    "pretrained": "from timm/NAME",
    "init": "from",
    "arch": "model",
    "continue": "resume",
    "recipes": "list",
}


E = TypeVar("E", bound="EverydayFlags")


@config
class EverydayFlags:
    """Short names for the settings of a run that everybody needs."""

    examples: ClassVar[dict[str, str]] = {
        "data": "photos",
        "model": "vit_tiny",
        "device": "cpu",
        "init_from": "runs/first",
        "teacher": "runs/first",
    }

    recipe: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE_OR_YAML]")] = None
    """A recipe (see --list), or a YAML file with settings."""
    data: str | None = None
    """What to train on: a built-in set, a folder or file, or a name under $VITSCOPE_DATA or data/."""
    model: str | None = None
    """A model of `vitscope models`; nothing of the recipe's model is kept. Beside --from also a run or model folder
    that describes the model of a weights file."""
    augment: Literal["none", "basic", "medium", "strong"] | None = None
    """How strongly pictures are varied."""
    epochs: int | None = None
    """How many times to go through the training pictures."""
    batch_size: int | None = None
    """Pictures per step."""
    lr: float | None = None
    """Learning rate at the top of the schedule."""
    seed: int | None = None
    """Seed for initial weights, data order, augmentation and dropout."""
    device: str | None = None
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""
    init_from: Annotated[str | None, tyro.conf.arg(aliases=("--from",))] = None
    """Start training from this model, with its weights and preprocessing: a run, a model folder (timm's and Hugging
    Face's too), a name on the hub such as timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k, or, with --model, a weights
    file."""
    teacher: str | None = None
    """A run or model folder to learn from beside the labels."""
    deterministic: Switch = False
    """Use only algorithms that give the same bits every time. Slower on a GPU."""


@config
class TrainCommand(EverydayFlags):
    """Train a classifier: by a recipe, a YAML file, or from --data and --model alone.

    Every setting of a run is a flag, `--section.key value`, in the sections model, data, augment, optim, schedule,
    loss, precision, loop and checkpoint; `vitscope train digits_vit --help` shows them all, with that recipe's values.
    Flags win over the recipe or file. `vitscope train runs/NAME/config.yaml` repeats a run.
    """

    examples: ClassVar[dict[str, str]] = {
        **EverydayFlags.examples,
        "out": "runs/first",
        "resume_from": "last",
    }

    out: str | None = None
    """The run folder; by default a new one under runs/."""
    resume: Switch = False
    """Continue the newest good checkpoint of --out; the recipe may be left out."""
    resume_from: str | None = None
    """Continue exactly this checkpoint: a name such as step-000123, last or best in --out, or a path."""
    overwrite: Switch = False
    """Replace the run that is in --out."""
    monitor: Switch = False
    """Watch every layer: gradients, updates, activations, attention; warn by name, keep rows in diagnostics/."""
    print_config: Switch = False
    """Print all settings as YAML (or JSON) and exit."""
    list: Switch = False
    """Show the recipes and exit."""
    json: Switch = False
    """Print the result as JSON."""

    def __post_init__(self) -> None:
        resumed = self.resume or self.resume_from is not None
        flag = "resume" if self.resume else "resume_from"
        require(not (resumed and self.overwrite), flag, "no --overwrite beside it", "both", fix="leave one of them out")
        both = self.resume and self.resume_from is not None
        require(not both, "resume", "no --resume-from beside it", "both", fix="leave one of them out")
        placed = not resumed or self.out is not None
        require(placed, flag, "the run's folder as --out", "no --out", fix="add --out runs/NAME")

    @property
    def resumes(self) -> bool:
        return self.resume or self.resume_from is not None


def read_command(args: Sequence[str]) -> tuple[TrainCommand, list[str]]:
    return read_words(TrainCommand(), args, prog=PROG)


def read_words(default: E, args: Sequence[str], *, prog: str) -> tuple[E, list[str]]:
    """The everyday part of a command line, and the words of its settings. Prints help and leaves on `--help`."""
    args, recipe = _without_recipe(default, _early(args))
    everyday, settings = _sorted_out(args)
    if {"-h", "--help"} & {*everyday}:
        if recipe is None and len(args) == 1:
            parse_flags(default, ["--help"], prog=prog)
        everyday = [arg for arg in everyday if arg not in ("-h", "--help")]
        settings = [*settings, "--help"]
    _refuse_unknown(default, everyday, prog)
    return parse_flags(default, [*([recipe] if recipe else []), *everyday], prog=prog), settings


def resolve(command: EverydayFlags, settings: Sequence[str], start: TrainConfig, *, prog: str = PROG) -> TrainConfig:
    """`start` (a recipe, a file or the defaults) with everything changed that was typed."""
    parts: dict[str, Any] = {name: getattr(start, name) for name in field_names(TrainConfig)}
    try:
        if command.init_from is not None:
            parts, source = from_source(command.init_from, parts, model=command.model)
            command = updated(command, init_from=source)
        elif command.model is not None:
            parts["model"] = pick_model(command.model)
        for section, changes in given_settings(command, ALIASES).items():
            parts[section] = updated(parts[section], **changes)
        read = _read_settings(parts, settings, prog)
        if command.init_from is not None:
            parts["data"] = for_channels(parts["data"], read["model"].bare.in_chans)
            read = _read_settings(parts, settings, prog)
        strength = command.augment
        if strength is None and command.init_from is not None:
            strength = strength_of(start.augment, side_of(start.model))  # meant for a model that has been replaced
        if strength is not None:
            # Which of a strength's two forms depends on the model's size, which settings may have changed.
            parts["augment"] = augmentation(strength, side_of(read["model"]))
            read = _read_settings(parts, settings, prog)
        if not is_classifier(read["model"]):
            raise UsageError(
                f"{read['model'].name} is no classifier, and nothing else is trained here",
                where=f"{prog}: model",
                fix="`vitscope models` lists others",
            )
        return TrainConfig(**read)
    except ConfigError as error:
        error.where = error.where or prog
        error.fix = error.fix or f"`{prog} --help` shows all flags"
        raise


def _read_settings(parts: dict[str, Any], args: Sequence[str], prog: str) -> dict[str, Any]:
    """Sections with the fields changed that `--section.key value` names. What holds between sections is not asked."""
    types = {name: type(part) for name, part in parts.items()}
    cls = type("Settings", (), {"__doc__": ABOUT_SETTINGS, "__annotations__": types, **parts})
    cls.__module__ = __name__
    read = parse_flags(config(cls)(), args, prog=prog)
    return {field.name: getattr(read, field.name) for field in fields(read)}  # pyright: ignore[reportArgumentType]


def _early(args: Sequence[str]) -> list[str]:
    """Flags under the names they are read by. `--checkpoint.init-from None` stays: it takes a file's away."""
    words: list[str] = []
    for word, after in itertools.pairwise([*args, ""]):
        name, equals, value = word.partition("=")
        early = EARLY.get(name.replace("_", "-"))
        words.append(word if early is None or (value if equals else after) == "None" else f"{early}{equals}{value}")
    return words


def _without_recipe(default: EverydayFlags, args: Sequence[str]) -> tuple[list[str], str | None]:
    """RECIPE_OR_YAML stands first, or anywhere it is no flag's value; taken out, no flag can swallow it."""
    for place, arg in enumerate(args):
        before = args[place - 1] if place else ""
        is_value = before.startswith("--") and "=" not in before and not _is_switch(default, before)
        named = arg in RECIPES or arg.endswith(YAML_ENDS) or _is_run(arg)
        if not arg.startswith("-") and not is_value and (place == 0 or named):
            return [*args[:place], *args[place + 1 :]], arg
    return list(args), None


def _is_run(word: str) -> bool:
    with contextlib.suppress(OSError, ValueError):  # no name a file could have
        return is_run_folder(Path(word).expanduser())
    return False


def _is_switch(default: EverydayFlags, flag: str) -> bool:
    """Of the everyday flags, and of the settings where the defaults tell."""
    *sections, leaf = flag.removeprefix("--").replace("-", "_").split(".")
    held: Any = TrainConfig() if sections else default
    for section in sections:
        held = getattr(held, section, None)
    return any(isinstance(getattr(held, name, None), bool) for name in (leaf, leaf.removeprefix("no_")))


def _sorted_out(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Everyday flags with their values, and settings (`--section.key`) with theirs."""
    everyday: list[str] = []
    settings: list[str] = []
    goes_to = everyday
    for arg in args:
        if re.match(r"--[A-Za-z]|-h$", arg):
            goes_to = settings if "." in arg.partition("=")[0] else everyday
        goes_to.append(arg)
    return everyday, settings


def _refuse_unknown(default: EverydayFlags, args: Sequence[str], prog: str) -> None:
    """A mistyped everyday flag gets the nearest one, or the setting it may have meant."""
    known = [*flag_names(default), "from"]
    for arg in args:
        flag = arg[2:].partition("=")[0].replace("_", "-")
        if not re.match(r"--[A-Za-z]", arg) or flag in known:
            continue
        ours = SYNONYMS.get(flag)
        near = [ours] if ours is not None and ours.split()[0] in known else nearest(flag, known, limit=1, likeness=0.8)
        if near:
            raise UsageError(f"unknown flag '--{flag}'", where=prog, fix=f"did you mean '--{near[0]}'?")
        refuse_unknown_flags(TrainConfig(), [arg], prog=prog)


def is_yaml(word: str) -> bool:
    return word.endswith(YAML_ENDS) or Path(word).is_file()


def names_data(command: EverydayFlags, settings: Sequence[str]) -> bool:
    return command.data is not None or any(re.match(r"--data\.name(=|$)", arg) for arg in settings)
