"""`vitscope export MODEL --format onnx|pt2 --out FILE`: a model as one file for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import tyro

from vitscope.cli.console import console, in_bytes, plain_table, print_json, say
from vitscope.cli.model_source import find_described_model
from vitscope.core.config import config
from vitscope.core.errors import EXIT_DONE, UsageError
from vitscope.core.flags import parse_flags
from vitscope.core.strict_json import encode
from vitscope.core.switch import Switch

PROG = "vitscope export"


@config
class ExportCommand:
    """Write a model as one file that other programs run: ONNX, or a .pt2 of torch.export.

    MODEL is a run, a model folder (vitscope's, timm's, Hugging Face's) or a name on the hub. The file takes any number
    of pictures at once, and holds the model's preprocessing and class names.

    What was written is opened again, answers for photographs in batches of 1, 2 and 7, and is compared with torch.
    Where it says something else nothing is left of it, and an older file stays as it was.
    """

    examples: ClassVar[dict[str, str]] = {"out": "model.onnx", "images": "photos"}

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """The model to export."""
    format: Literal["onnx", "pt2"] | None = None
    """Which kind of file; by default what --out ends in."""
    out: str | None = None
    """The file to write: NAME.onnx or NAME.pt2."""
    img_size: int | tuple[int, int] | None = None
    """Another picture size, or height and width: positions are resampled."""
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    """The type of the numbers in the file; its input and output stay float32. ONNX has no bf16."""
    opset: int | None = None
    """Version of ONNX's operators, 18 to 23; 20 by default."""
    pixels: Switch = False
    """Let the file take uint8 pixels of the right size, and normalise them itself."""
    images: tuple[str, ...] = ()
    """Pictures of your own to compare with, files or folders: the first 100 count. Two photographs by default."""
    overwrite: Switch = False
    """Replace an older file."""
    json: Switch = False
    """Print JSON."""


def run(args: Sequence[str]) -> int:
    command = parse_flags(ExportCommand(), args, prog=PROG)
    if command.model is None or command.out is None:
        missing = "MODEL" if command.model is None else "--out"
        raise UsageError(f"no {missing} named", where=PROG, fix=f"`{PROG} runs/NAME --out NAME.onnx`")

    from vitscope.core.dtypes import TORCH_DTYPES  # torch comes with these
    from vitscope.infer.export.export import export_model

    report = export_model(
        find_described_model(command.model),
        command.out,
        format=command.format,
        img_size=command.img_size,
        dtype=TORCH_DTYPES[command.dtype],
        opset=command.opset,
        pixels=command.pixels,
        pictures=command.images or None,
        overwrite=command.overwrite,
        say=say,
    )
    told = report.to_dict()
    if command.json:
        print_json(encode(told))
    else:
        _print_table(told)
    return EXIT_DONE


def _print_table(told: dict[str, Any]) -> None:
    from rich.markup import escape

    found = told["comparison"]
    same = found["same_top1"]
    rows = {
        "file": told["path"],
        "size": f"{in_bytes(told['bytes'])}, {told['dtype']}",
        "takes": ", ".join(f"{name}: {shape}" for name, shape in told["inputs"].items()),
        "answers": ", ".join(f"{name}: {shape}" for name, shape in told["outputs"].items()),
        "opset": None if told["opset"] is None else str(told["opset"]),
        "tried": f"by {told['runtime']} on {found['pictures']} photographs, "
        f"in batches of {', '.join(map(str, found['batches']))}",
        "off from torch by": f"{found['difference']:.1e} of the largest answer ({found['allowed']:g} is allowed)",
        "same first class": None if same is None else f"{same} of {found['pictures']}",
        "one picture": f"{found['file_ms']:.1f} ms, torch {found['torch_ms']:.1f} ms (on this CPU, roughly)",
    }
    table = plain_table("export", told["format"])
    for name, text in rows.items():
        if text is not None:
            table.add_row(name, escape(text))
    console().print(table)
