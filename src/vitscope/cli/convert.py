"""`vitscope convert SOURCE OUT --to FORMAT`: weights from anywhere in another format, with a certificate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import tyro

from vitscope.cli.console import console, print_json, say
from vitscope.cli.model_source import refuse_missing
from vitscope.core.config import config, field_types, require
from vitscope.core.errors import EXIT_DONE, UsageError, expected
from vitscope.core.flags import parse_flags
from vitscope.core.strict_json import encode
from vitscope.core.switch import Switch

PROG = "vitscope convert"
OTHER_WORDS = {"hf": "huggingface", "transformers": "huggingface", "own": "vitscope"}
"""What others call the formats."""


@config
class ConvertCommand:
    """Write a model's weights in another format, and say what became of every tensor.

    SOURCE is a model folder (vitscope's, timm's, Hugging Face's), a run, a weights file (.safetensors, .pth, .npz ...)
    or a name on the hub. OUT is a new folder; with --to timm also a file ending in .safetensors or .pth.

    What was written is opened again and compared, bit by bit. certificate.json, beside the weights, tells what came
    from where and how far the answers differ from those of the library the weights come from.
    """

    examples: ClassVar[dict[str, str]] = {"model": "vit_tiny"}

    source: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")] = None
    """Where the weights are."""
    out: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")] = None
    """Where to write."""
    to: Literal["vitscope", "timm", "huggingface"] = "vitscope"
    """Whose format to write."""
    model: str | None = None
    """Which model a bare file is for: a name (`vitscope models` lists them), whose classes the file counts, or a model
    folder."""
    img_size: int | tuple[int, int] | None = None
    """Another picture size, or height and width: positions are resampled."""
    patch_size: int | tuple[int, int] | None = None
    """Another patch size: filters are resampled."""
    in_chans: int | None = None
    """Another number of channels: filters are adapted."""
    num_classes: int | None = None
    """Another number of classes: the head begins anew; 0 for none."""
    dtype: Literal["fp32", "fp16", "bf16"] | None = None
    """The type of the numbers written; as they are stored by default."""
    positions: Literal["bicubic_antialias", "bicubic"] = "bicubic_antialias"
    """How positions are resampled: as timm does, or without antialias, as transformers does."""
    allow_partial: Switch = False
    """Go on where tensors are missing or unknown; what is missing begins anew."""
    strict: Switch = False
    """Refuse all that is otherwise a warning: resampled tensors, a new head."""
    proof: bool = True
    """Compare with the libraries of source and result, where they are installed; where they differ nothing is
    written."""
    overwrite: Switch = False
    """Replace an older result."""
    json: Switch = False
    """Print the certificate as JSON."""

    def __post_init__(self) -> None:
        for name in ("in_chans", "num_classes"):
            value, least = getattr(self, name), 0 if name == "num_classes" else 1
            require(value is None or value >= least, name, f"a number from {least}", value)


def run(args: Sequence[str]) -> int:
    _refuse_other_words(args)
    command = parse_flags(ConvertCommand(), places_first(args), prog=PROG)
    if command.source is None or command.out is None:
        missing = "SOURCE and OUT" if command.source is None else "OUT"
        raise UsageError(f"no {missing} named", where=PROG, fix=f"`{PROG} SOURCE OUT --to timm`")
    refuse_missing(command.source)

    from vitscope.core.dtypes import TORCH_DTYPES  # torch comes with these
    from vitscope.weights.adapt import Resampling
    from vitscope.weights.convert import convert

    certificate = convert(
        command.source,
        command.out,
        to=command.to,
        config=command.model,
        img_size=command.img_size,
        patch_size=command.patch_size,
        in_chans=command.in_chans,
        num_classes=command.num_classes,
        dtype=None if command.dtype is None else TORCH_DTYPES[command.dtype],
        resampling=Resampling(positions=command.positions),
        allow_partial=command.allow_partial,
        strict=command.strict,
        prove=command.proof,
        overwrite=command.overwrite,
        say=say,
    )
    if command.json:
        print_json(encode(certificate.to_dict()))
    else:
        out = console()
        for line in certificate.lines(out.width):
            out.print(line, markup=False, soft_wrap=True)
    return EXIT_DONE


def _refuse_other_words(args: Sequence[str]) -> None:
    """Some call a format by another word, none of whose letters are like ours."""
    for flag, value in itertools.pairwise([*args, ""]):
        name, equals, joined = flag.partition("=")
        word = joined if equals else value
        if name == "--to" and word in OTHER_WORDS:
            wanted = "one of 'vitscope', 'timm', 'huggingface'"
            raise UsageError(
                expected("--to", wanted, repr(word)), where=PROG, fix=f"did you mean '{OTHER_WORDS[word]}'?"
            )


def places_first(args: Sequence[str]) -> list[str]:
    """SOURCE and OUT may stand anywhere among the flags; the parser wants them together.

    >>> places_first(["a", "--to", "timm", "--img-size", "32", "48", "--json", "b"])
    ['a', 'b', '--to', 'timm', '--img-size', '32', '48', '--json']
    """
    kinds = field_types(ConvertCommand)
    places: list[str] = []
    flags: list[str] = []
    owed = 0
    """How many more words belong to the last flag."""
    for arg in args:
        if arg.startswith("--"):
            flags.append(arg)
            name = arg[2:].replace("-", "_").removeprefix("no_")
            is_switch = kinds.get(name) is bool or name not in kinds
            owed = 0 if is_switch or "=" in arg else 2 if name in ("img_size", "patch_size") else 1
        elif owed == 2 or (owed == 1 and not _was_first_of_two(flags)) or (owed == 1 and _is_number(arg)):
            flags.append(arg)
            owed -= 1
        else:
            places.append(arg)
            owed = 0
    return [*places, *flags]


def _was_first_of_two(flags: list[str]) -> bool:
    """Whether the last word is already a value, so that what comes may be another one or something else."""
    return not flags[-1].startswith("--")


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdigit()
