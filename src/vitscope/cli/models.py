"""`vitscope models [NAME]`: list, count, trace, advise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vitscope.cli.console import console, print_json
from vitscope.cli.model_flags import name_first, named_model, with_model
from vitscope.core.config import config, field_names, require
from vitscope.core.errors import EXIT_DONE, ConfigError, UsageError, expected
from vitscope.core.flags import parse_flags
from vitscope.core.run_layout import MODEL, is_run_folder
from vitscope.core.switch import Switch
from vitscope.models.config import ModelConfig, Wishes
from vitscope.models.variants import VARIANTS, is_classifier
from vitscope.weights.create import with_settings

PROG = "vitscope models"
LARGEST_BATCH = 1_000_000


@config
class ModelsCommand:
    """List the models; with a NAME, count its parts.

    A trained run or a saved model is counted as it is (`vitscope models runs/first`), what was pruned too.
    A word that is only part of some names lists those (`vitscope models swin`), and so does a wildcard ('deit_*').
    A word that is nearly a name is taken for a mistyped one.

    Every setting of the named model is a flag: `vitscope models vit_small --model.depth 6 --trace`.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """A model, a run or saved model's folder, or a part of names or a wildcard to search for."""
    trace: Switch = False
    """Show the shape after every stage instead of the costs."""
    batch: int = 1
    """Images in a batch, for memory and shapes."""
    advise: Switch = False
    """Say which model suits; describe your case with --images, --img-size, --memory-gb and --wish."""
    images: int | None = None
    """With --advise: how many pictures you can train on."""
    memory_gb: float | None = None
    """With --advise: memory of the GPU in GB."""
    wish: Literal["balance", "speed", "accuracy", "memory", "trial"] = "balance"
    """With --advise: what matters most."""
    img_size: int | tuple[int, int] | None = None
    """Side of your pictures in pixels, or height and width (short for --model.img-size)."""
    num_classes: int | None = None
    """Classes of the head (short for --model.num-classes)."""
    json: Switch = False
    """Print JSON instead of a table."""

    def __post_init__(self) -> None:
        require(0 < self.batch <= LARGEST_BATCH, "batch", f"from 1 to {LARGEST_BATCH:,}", self.batch)
        if not self.advise:
            wishes = Wishes()
            for flag in ("images", "memory_gb", "wish"):
                same = getattr(self, flag) == getattr(wishes, flag)
                require(same, flag, "--advise beside it", "no --advise", fix="add --advise")
        one_side = not (self.advise and isinstance(self.img_size, tuple))
        require(one_side, "img_size", "one number beside --advise", self.img_size, fix="give the shorter side")


def run(args: Sequence[str]) -> int:
    command, model = _parse(args)
    _refuse_what_would_be_ignored(command, model)
    if command.advise:
        _advise(command)
    elif command.name is None or model is None:
        _list(command)
    else:
        _show(command, command.name, model)
    return EXIT_DONE


def _parse(args: Sequence[str]) -> tuple[ModelsCommand, ModelConfig | None]:
    """The command and, where NAME is one model, its settings with all flags applied."""
    name = named_model(args)
    preset = None if name is None else _preset(name)
    if name is None or preset is None:
        if name is not None and not {"-h", "--help"} & {*args}:
            VARIANTS.search(name)  # refuses a mistyped name before the flags it would have had
        return parse_flags(ModelsCommand(), args, prog=PROG), None
    command = parse_flags(with_model(ModelsCommand, preset), name_first(args, name), prog=PROG)
    model: ModelConfig = command.model  # pyright: ignore[reportAttributeAccessIssue]
    if command.advise:
        return command, model
    short = {key: getattr(command, key) for key in ("img_size", "num_classes") if getattr(command, key) is not None}
    if not is_classifier(model) and "num_classes" in short:
        raise UsageError(f"{name} has no classifier", where=PROG, fix="leave --num-classes out")
    try:
        return command, with_settings(model, short)
    except ConfigError as error:
        error.where = PROG
        raise


def _preset(name: str) -> ModelConfig | None:
    """Of a name, or of a model that was saved: a run, a model folder, a sparse experiment, a file of ours."""
    if name in VARIANTS:
        return VARIANTS[name].config
    path = Path(name).expanduser()
    if not path.exists():
        return None
    from vitscope.weights.folder import CONFIG
    from vitscope.weights.load import load_model

    is_saved = is_run_folder(path) or (path / MODEL).is_dir() or (path / CONFIG).is_file()
    if not is_saved and "/" not in name:
        return None
    return load_model(path, say=False).config


def _refuse_what_would_be_ignored(command: ModelsCommand, model: ModelConfig | None) -> None:
    if command.advise and command.name is not None:
        raise UsageError(
            expected("--advise", "no NAME, it chooses one", repr(command.name)),
            where=PROG,
            fix="leave out the NAME, or --advise",
        )
    if model is not None:
        return
    plain = ModelsCommand()
    for key in ("trace", "batch", "num_classes", *(() if command.advise else ("img_size",))):
        if getattr(command, key) != getattr(plain, key):
            if command.advise:
                flag = f"--{key.replace('_', '-')}"
                raise UsageError(f"advice does not depend on {flag}", where=PROG, fix=f"leave {flag} out")
            raise UsageError(
                expected(f"--{key.replace('_', '-')}", "the NAME of one model beside it", repr(command.name)),
                where=PROG,
                fix="`vitscope models vit_small ...`; `vitscope models` lists the names",
            )


def _list(command: ModelsCommand) -> None:
    names = VARIANTS.names() if command.name is None else VARIANTS.search(command.name)
    from vitscope.cli.model_tables import list_rows, print_list  # torch comes with it

    rows = list_rows(names)
    if command.json:
        print_json(rows)
    else:
        print_list(rows)
        models = f"{len(rows)} model{'s' if len(rows) > 1 else ''}"
        console().print(f"\n{models}; `vitscope models NAME` counts one, `--advise` says which to take")


def _show(command: ModelsCommand, name: str, model: ModelConfig) -> None:
    from vitscope.cli.model_tables import account_data, print_account, print_trace, trace_data

    if command.trace:
        print_json(trace_data(name, model, command.batch)) if command.json else print_trace(name, model, command.batch)
    elif command.json:
        print_json(account_data(name, model, command.batch))
    else:
        print_account(name, model, command.batch)


def _advise(command: ModelsCommand) -> None:
    from vitscope.cli.advice_tables import advice_data, print_advice
    from vitscope.models.advice import advise

    told = {key: getattr(command, key) for key in field_names(Wishes) if getattr(command, key) is not None}
    try:
        wishes = Wishes(**told)
    except ConfigError as error:
        error.where = f"{PROG} --advise"
        raise
    advice = advise(wishes)
    print_json(advice_data(advice)) if command.json else print_advice(advice)
