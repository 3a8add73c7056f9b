"""`vitscope models [NAME]`: list, count, trace, advise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from vitscope.cli.console import console, print_json
from vitscope.core.config import config, field_names, require, updated
from vitscope.core.errors import EXIT_DONE, ConfigError, UsageError, expected
from vitscope.core.flags import parse_flags
from vitscope.models.config import ModelConfig, Wishes
from vitscope.models.variants import VARIANTS, list_models

PROG = "vitscope models"
LARGEST_BATCH = 1_000_000
WILDCARDS = "*?["


@config
class ModelsCommand:
    """List the models; with a NAME, count its parts. NAME may be a wildcard such as 'deit_*'.

    Every setting of the named model is a flag: `vitscope models vit_small --model.depth 6 --trace`.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """A model, or a wildcard that filters the list."""
    trace: bool = False
    """Show the shape after every stage instead of the costs."""
    batch: int = 1
    """Images in a batch, for memory and shapes."""
    advise: bool = False
    """Say which model suits; describe your case with --images, --img-size, --memory-gb and --wish."""
    images: int | None = None
    """With --advise: how many pictures you can train on."""
    memory_gb: float | None = None
    """With --advise: memory of the GPU in GB."""
    wish: Literal["balance", "speed", "accuracy", "memory", "trial"] = "balance"
    """With --advise: what matters most."""
    img_size: int | None = None
    """Side of your pictures in pixels (short for --model.img-size)."""
    num_classes: int | None = None
    """Classes of the head (short for --model.num-classes)."""
    json: bool = False
    """Print JSON instead of a table."""

    def __post_init__(self) -> None:
        require(0 < self.batch <= LARGEST_BATCH, "batch", f"from 1 to {LARGEST_BATCH:,}", self.batch)
        if not self.advise:
            for flag in ("images", "memory_gb"):
                require(getattr(self, flag) is None, flag, "--advise beside it", "no --advise", fix="add --advise")
            require(self.wish == "balance", "wish", "--advise beside it", "no --advise", fix="add --advise")


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
    name = _name(args)
    if name is None or any(mark in name for mark in WILDCARDS):
        return parse_flags(ModelsCommand(), args, prog=PROG), None
    preset = VARIANTS[name].config
    command = parse_flags(_with_model(preset), args, prog=PROG)
    model: ModelConfig = command.model  # pyright: ignore[reportAttributeAccessIssue]
    if command.advise:
        return command, model
    short = {key: getattr(command, key) for key in ("img_size", "num_classes") if getattr(command, key) is not None}
    unusable = [key for key in short if key not in field_names(type(model))]
    if unusable:
        inside = "use --model.encoder.img-size" if unusable[0] == "img_size" else "leave it out, it has no classifier"
        raise UsageError(f"{name} has no setting '{unusable[0]}' of its own", where=PROG, fix=inside)
    try:
        return command, updated(model, **short)
    except ConfigError as error:
        error.where = PROG
        raise


def _name(args: Sequence[str]) -> str | None:
    """NAME decides which flags there are, so it is looked for before they are read: first, or anywhere."""
    if args and not args[0].startswith("-"):
        return args[0]
    return next((arg for arg in args if arg in VARIANTS), None)


def _refuse_what_would_be_ignored(command: ModelsCommand, model: ModelConfig | None) -> None:
    if command.advise and command.name is not None:
        raise UsageError(
            expected("--advise", "no NAME, it chooses one", repr(command.name)),
            where=PROG,
            fix="leave out the NAME, or --advise",
        )
    if model is not None:
        return
    if command.name is not None and not any(mark in command.name for mark in WILDCARDS):
        VARIANTS[command.name]  # refuses, with a did-you-mean
    plain = ModelsCommand()
    for key in ("trace", "batch", "num_classes", *(() if command.advise else ("img_size",))):
        if getattr(command, key) != getattr(plain, key):
            raise UsageError(
                expected(f"--{key.replace('_', '-')}", "the NAME of one model beside it", repr(command.name)),
                where=PROG,
                fix="`vitscope models vit_small ...`; `vitscope models` lists the names",
            )


def _with_model(preset: ModelConfig) -> ModelsCommand:
    """The command with one more section: the settings of the model that was named."""
    cls = type(
        "ModelsCommand",
        (ModelsCommand,),
        {"__annotations__": {"model": type(preset)}, "__doc__": ModelsCommand.__doc__, "model": preset},
    )
    cls.__module__ = __name__
    return config(cls)()


def _list(command: ModelsCommand) -> None:
    from vitscope.cli.model_tables import list_rows, list_table

    names = list_models(command.name)
    if not names:
        raise UsageError(f"no model matches '{command.name}'", where=PROG, fix="`vitscope models` lists all")
    rows = list_rows(names)
    if command.json:
        print_json(rows)
    else:
        console().print(list_table(rows))
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

    img_size = command.img_size if command.img_size is not None else Wishes().img_size
    try:
        wishes = Wishes(images=command.images, img_size=img_size, memory_gb=command.memory_gb, wish=command.wish)
    except ConfigError as error:
        error.where = f"{PROG} --advise"
        raise
    advice = advise(wishes)
    print_json(advice_data(advice)) if command.json else print_advice(advice)
