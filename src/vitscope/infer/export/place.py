"""A file takes its place all at once, after it has proved itself; whatever goes wrong leaves what was there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from vitscope.core.errors import UsageError, VitscopeError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.weights.place import flush, make_hidden_beside

Format = Literal["onnx", "pt2"]
ENDINGS: dict[str, Format] = {".onnx": "onnx", ".pt2": "pt2"}


def format_of(out: Path, asked: str | None) -> Format:
    """The one asked for, or the one the name ends in; they must not contradict each other."""
    known: tuple[Any, ...] = get_args(Format)
    if asked is not None and asked not in known:
        raise UsageError(
            expected("format", f"one of {', '.join(known)}", repr(asked)),
            where="export",
            fix=did_you_mean(asked, known) or f"name one of {', '.join(known)}",
        )
    by_name = ENDINGS.get(out.suffix.lower())
    if by_name is None or asked not in (None, by_name):
        wanted = f".{asked}" if asked is not None else " or ".join(ENDINGS)
        raise UsageError(
            expected("out", f"a file that ends in {wanted}", f"'{out}'"),
            where="export",
            fix=f"name it '{out.with_suffix(f'.{asked or known[0]}')}'" if out.name else "name a file",
        )
    return by_name


def refuse_to_bury(out: Path, *, overwrite: bool) -> None:
    if out.is_dir():
        raise UsageError(expected("out", "a file", f"the folder '{out}'"), where="export", fix="name a file in it")
    if out.exists() and not overwrite:
        raise UsageError(
            f"'{out}' already exists", where="export", fix="choose a new place, or pass overwrite=True (--overwrite)"
        )


@contextmanager
def put_in_place(out: Path) -> Iterator[Path]:
    """Where to write; what is there in the end takes the place of `out`. After an error nothing is left, neither the
    file nor folders made for it."""
    place = out.resolve()  # a link stays a link
    made = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = make_hidden_beside(place)
        try:
            yield temporary / place.name
            flush(temporary / place.name)
            (temporary / place.name).replace(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except BaseException as error:
        for folder in made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        if isinstance(error, OSError):
            raise VitscopeError(f"cannot write: {error}", where=str(out), fix="choose another --out") from error
        raise
