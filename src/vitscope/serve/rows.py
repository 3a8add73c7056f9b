"""What came of the pictures of a request, as the rows of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from torch import Tensor

from vitscope.core.errors import expected
from vitscope.core.suggest import did_you_mean
from vitscope.infer.prediction import predictions
from vitscope.serve.metrics import Metrics
from vitscope.serve.overlay import Wish
from vitscope.serve.refusal import Refusal
from vitscope.serve.uploads import Asked, Upload

Row = dict[str, Any] | Refusal
PICTURES = ("file", "files", "image", "images", "picture")
"""Under these names people send pictures."""
UNSOUND = "the model's weights are not sound: start the server with another checkpoint"


def predicted(picture: Upload, found: Tensor | Refusal, labels: Sequence[str], top_k: int) -> Row:
    """As `vitscope predict --json` tells it."""
    if isinstance(found, Refusal):
        return found
    (told,) = predictions([picture.name], found[None], labels, top_k=top_k)
    return told.to_dict() if told.error is None else Refusal(500, told.error, fix=UNSOUND)


def vector(picture: Upload, found: Tensor | Refusal) -> Row:
    if isinstance(found, Refusal):
        return found
    if not found.isfinite().all():
        return Refusal(500, "the model's answer is not a number", fix=UNSOUND)
    return {"path": picture.name, "vector": found.tolist()}


def as_answer(word: str, asked: Asked, rows: Sequence[Row], **more: Any) -> JSONResponse:
    """200 as soon as one picture was answered; a picture that was not has its own status in its row."""
    told = [
        {"path": picture.name, **row.content(), "status": row.status} if isinstance(row, Refusal) else row
        for picture, row in zip(asked.pictures, rows, strict=True)
    ]
    refused = [row for row in rows if isinstance(row, Refusal)]
    if len(refused) < len(rows):
        return JSONResponse({word: told, **more})
    worst = max(refused, key=lambda row: row.status)
    return JSONResponse({**worst.content(), word: told}, worst.status, worst.headers())


def count(metrics: Metrics, path: str, found: Sequence[object]) -> None:
    for one in found:
        metrics.pictures.add(path, "refused" if isinstance(one, Refusal) else "answered")


def number(settings: dict[str, str], name: str, default: int | None, *, least: int | None = None) -> int | None:
    """A setting that came beside the pictures, else the one in the address."""
    given = settings.get(name)
    try:
        value = default if given is None else int(given)
    except ValueError:
        raise not_a_number(name, given) from None
    if value is not None and least is not None and value < least:
        raise too_small(name, least, value)
    return value


def not_a_number(name: str, given: object) -> Refusal:
    return Refusal(400, expected(name, "a whole number", repr(given)[:80]), fix=f"send a whole number, or no {name}")


def too_small(name: str, least: object, given: object) -> Refusal:
    return Refusal(400, expected(name, f"a number from {least}", given), fix=f"send a larger number, or no {name}")


def refuse_unknown(request: Request, asked: Asked, known: Sequence[str]) -> None:
    """A setting nobody reads is a setting mistyped: whoever sent it would take the answer for another one."""
    for name in (*asked.settings, *request.query_params):
        if name not in known:
            takes = f"{request.url.path} takes {', '.join(known) or 'no settings'} beside its pictures"
            is_path = name in PICTURES and name in asked.settings
            near = "a picture needs its file name: curl -F file=@picture.jpg" if is_path else did_you_mean(name, known)
            raise Refusal(400, f"unknown field '{name[:80]}'", fix=near or takes)


def wish(settings: dict[str, str], asked: Wish) -> Wish:
    """`asked` in the address, changed by what came beside the picture."""
    layer = number(settings, "layer", asked.layer)
    return Wish(
        method=settings.get("method", asked.method),
        layer=-1 if layer is None else layer,
        head=number(settings, "head", asked.head),
        target=settings.get("target", asked.target),
    )
