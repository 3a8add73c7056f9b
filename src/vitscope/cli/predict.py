"""`vitscope predict MODEL IMAGES...`: what the pictures show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from vitscope.cli.console import console, print_json, print_table
from vitscope.cli.model_source import find_described_model
from vitscope.cli.predict_files import as_csv, file_to_write, write_predictions
from vitscope.cli.progress import progress_bar
from vitscope.core.config import config, require
from vitscope.core.errors import EXIT_DATA, EXIT_DONE, UsageError, expected
from vitscope.core.flags import parse_flags
from vitscope.core.near_path import did_you_mean_path
from vitscope.core.strict_json import encode
from vitscope.core.switch import Switch

PROG = "vitscope predict"


@config
class PredictCommand:
    """Say what pictures show: the likeliest classes, with how sure the model is.

    MODEL is a run, a model folder (vitscope's, timm's, Hugging Face's) or a name on the hub. IMAGES are files, folders
    (all pictures in them and below) or patterns in quotes. Pictures are prepared as the model learnt them.

    A picture that cannot be read gets a line with the reason; the others go on.
    """

    examples: ClassVar[dict[str, str]] = {"keep_float": "head", "out": "answers.csv"}

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """The model to ask; several, with commas between, answer by the mean of their probabilities."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES...")] = ()
    """The pictures: files, folders or patterns."""
    top_k: int = 5
    """How many classes to name for each picture."""
    views: tuple[Literal["flip", "crops"], ...] = ()
    """Look at each picture several times and take the mean of the answers: `flip` also mirrored (2 looks), `crops` also
    at the four corners (5), both 10. It takes as many times as long, and makes the answer hang less on how the picture
    is cut; leave `flip` out where left and right matter, as in digits and writing."""
    weights: tuple[float, ...] = ()
    """How much each of several models counts; all alike by default."""
    temperature: float = 1.0
    """Divide logits by this: above 1 the model is less sure of itself. `vitscope eval --calibrate` finds one."""
    batch_size: int = 32
    """Pictures at once."""
    dtype: Literal["fp32", "bf16", "fp16", "int8", "int8_weights"] = "fp32"
    """The type of the arithmetic. `vitscope bench --cheaper` says which is quicker here, and what it costs."""
    launch: Literal["eager", "compiled", "graph", "compiled_graph"] = "eager"
    """How the model is launched: kernel by kernel, through torch.compile (half a minute first), as a CUDA graph, or
    both."""
    keep_float: tuple[str, ...] = ()
    """With int8: layers that stay floats, by name or pattern."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""
    out: str | None = None
    """Write the answers to this file instead of showing a table: .csv, .json, or .jsonl (a picture a line)."""
    overwrite: Switch = False
    """Replace the file --out names."""
    csv: Switch = False
    """Print CSV: path, label, index, confidence, error, and class_1, probability_1, ... of all --top-k classes."""
    json: Switch = False
    """Print JSON."""

    def __post_init__(self) -> None:
        require(self.top_k > 0, "top_k", "a number from 1", self.top_k)
        require(self.temperature > 0, "temperature", "a positive number", self.temperature)
        require(self.batch_size > 0, "batch_size", "a number from 1", self.batch_size)
        require(not (self.csv and self.json), "csv", "one of --csv and --json", "both")


def run(args: Sequence[str]) -> int:
    command = parse_flags(PredictCommand(), args, prog=PROG)
    if command.model is None or not command.images:
        missing = "MODEL" if command.model is None else "IMAGES"
        raise UsageError(f"no {missing} named", where=PROG, fix=f"`{PROG} runs/NAME photos/`")
    out = None if command.out is None else file_to_write(command.out, overwrite=command.overwrite)

    from vitscope.infer.ensemble import Ensemble
    from vitscope.infer.predictor import Predictor

    members = [
        Predictor.load(
            find_described_model(name),
            device=command.device,
            dtype=command.dtype,
            launch=command.launch,
            keep_float=command.keep_float,
            batch_size=command.batch_size,
            temperature=command.temperature,
        )
        for name in _members(command.model)
    ]
    asked = members[0] if len(members) == 1 and not command.weights else Ensemble(members, command.weights or None)
    with progress_bar("looking") as progress:
        found = asked.classify(command.images, top_k=command.top_k, views=command.views, progress=progress)
    classes = min(command.top_k, len(asked.labels))
    if out is not None:
        write_predictions(out, found, classes=classes)
    if command.json:
        print_json(encode([told.to_dict() for told in found]))
    elif command.csv:
        sys.stdout.write(as_csv(found, classes=classes))
    elif out is not None:
        _print_written(out, found)
    else:
        _print_tables(found)
    return EXIT_DONE if any(told.error is None for told in found) else EXIT_DATA


def _members(model: str) -> list[str]:
    """Of several names, with commas between; of a folder that has commas in its own name, that one."""
    if Path(model).expanduser().exists() and model:
        return [model]
    names = [name.strip() for name in model.split(",")]
    if not all(names):
        wanted = "a model, or several with commas between"
        raise UsageError(expected("MODEL", wanted, repr(model)), where=PROG, fix=f"`{PROG} runs/NAME photos/`")
    return names


def _reason(told: Any) -> str:
    """Why there is no answer; of a path that leads nowhere, also which was meant."""
    meant = did_you_mean_path(told.path or "")
    return told.error or "" if meant is None else f"{told.error}; {meant}"


def _print_written(path: Path, found: Sequence[Any]) -> None:
    bad = sum(told.error is not None for told in found)
    about = f"{len(found)} {'picture' if len(found) == 1 else 'pictures'}{f', {bad} of them with an error' * bool(bad)}"
    console().print(f"wrote {path}: {about}", markup=False, soft_wrap=True)


def _print_tables(found: Sequence[Any]) -> None:
    """One picture: its classes, one below the other. Several: a line each."""
    from rich.markup import escape

    if len(found) == 1 and found[0].error is None:
        rows = [(escape(guess.label), f"{guess.probability:.1%}", str(guess.index)) for guess in found[0].top_k]
        print_table(("class", "probability", "number"), rows, numbers=("probability", "number"))
        if found[0].agreement is not None:
            console().print(f"agreement of the models on the first: {found[0].agreement:.0%}")
        return
    rows = []
    for told in found:
        sure = "" if told.confidence is None else f"{told.confidence:.1%}"
        also = ", ".join(f"{guess.label} {guess.probability:.1%}" for guess in told.top_k[1:3])
        said = told.label if told.error is None else f"error: {_reason(told)}"
        agreed = "" if told.agreement is None else f"{told.agreement:.0%}"
        rows.append((escape(told.path or ""), escape(said or ""), sure, agreed, escape(also)))
    columns = ["picture", "class", "probability", "agreement", "then"]
    if all(told.agreement is None for told in found):
        columns.remove("agreement")
        rows = [(*row[:3], row[4]) for row in rows]
    print_table(columns, rows, numbers=("probability", "agreement"), wraps={"then": 20})
