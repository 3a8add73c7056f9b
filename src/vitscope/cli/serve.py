"""`vitscope serve MODEL`: answer about pictures over HTTP, and on a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from vitscope.cli.model_source import find_described_model
from vitscope.core.config import config
from vitscope.core.errors import UsageError
from vitscope.core.flags import parse_flags
from vitscope.serve.config import ServeConfig

PROG = "vitscope serve"


@config
class ServeCommand(ServeConfig):
    """Answer about pictures over HTTP: a page for people, /predict, /features and /explain for programs.

    MODEL is a run, a model folder (vitscope's, timm's, Hugging Face's) or a name on the hub. Pictures of several
    requests are looked at together. Only this machine is answered; others need --host and a token. Ctrl-C ends it.
    """

    examples: ClassVar[dict[str, str]] = {"token_file": "token.txt"}

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """The model to serve."""
    token_file: str | None = None
    """A file that holds the token clients must send. Without it $VITSCOPE_TOKEN is looked at."""
    temperature: float = 1.0
    """Divide logits by this: above 1 the model is less sure of itself. `vitscope eval --calibrate` finds one."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The type of the arithmetic: the last two are quicker on a GPU, and less exact."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""


def run(args: Sequence[str]) -> int:
    command = parse_flags(ServeCommand(), args, prog=PROG)
    if command.model is None:
        raise UsageError("no MODEL named", where=PROG, fix=f"`{PROG} runs/NAME`")

    from vitscope.serve.door import find_token
    from vitscope.serve.server import address_of, listen, require_packages, serve

    require_packages()
    token = find_token(command.token_file)
    with listen(command, token=token) as bound:
        from vitscope.infer.predictor import Predictor

        predictor = Predictor.load(
            find_described_model(command.model),
            device=command.device,
            dtype=command.dtype,
            temperature=command.temperature,
        )
        name = _name(command.model)
        address = address_of(bound)
        header = "" if token is None else _header(command.token_file)
        return serve(predictor, command, bound, name=name, token=token, started=lambda: _say(name, address, header))


def _say(name: str, address: str, header: str) -> None:
    """On standard output, at once: a program that started the server waits for the line."""
    sys.stdout.write(
        f"{name} answers at {address}\n"
        f"  a page for people    {address}/\n"
        f"  for programs         curl {header}-F file=@picture.jpg {address}/predict\n"
        "  Ctrl-C ends it\n"
    )
    sys.stdout.flush()


def _header(token_file: str | None) -> str:
    """The token itself is never printed."""
    token = "$VITSCOPE_TOKEN" if token_file is None else f"$(cat {shlex.quote(token_file)})"
    return f'-H "Authorization: Bearer {token}" '


def _name(model: str) -> str:
    """What a person calls it: of a path the last part that says something."""
    path = Path(model)
    return path.parent.name if path.name == "model" and path.parent.name else path.name
