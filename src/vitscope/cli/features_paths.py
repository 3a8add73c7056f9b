"""Where `vitscope features` writes: refused, where it cannot be, before anything is computed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vitscope.cli.writing import refuse_place
from vitscope.core.errors import UsageError, expected
from vitscope.infer.features.files import refuse_ending

if TYPE_CHECKING:
    from vitscope.cli.features import FeaturesCommand

PROG = "vitscope features"
NO_SHEET = "none"


@dataclass(frozen=True)
class Paths:
    """None for what was not asked for."""

    out: Path | None
    map: Path | None
    sheet: Path | None

    @classmethod
    def of(cls, command: FeaturesCommand) -> Paths:
        return cls(
            _out(command),
            None if command.map is None else _png(Path(command.map), "--map", command),
            _sheet(command),
        )


def _out(command: FeaturesCommand) -> Path | None:
    if command.out is None:
        return None
    path = Path(command.out)
    refuse_ending(path)
    refuse_place(path)
    if path.exists() and not command.overwrite:
        raise UsageError(f"'{path}' is there already", where=PROG, fix="add --overwrite, or give another --out")
    return path


def _sheet(command: FeaturesCommand) -> Path | None:
    """Programs get a sheet only when they ask for it; nobody gets one among the pictures unasked."""
    if command.nearest is None or command.sheet == NO_SHEET or (command.sheet is None and command.json):
        return None
    if command.sheet is not None:
        return _png(Path(command.sheet), "--sheet", command)
    name = re.sub(r"[^\w.-]+", "-", Path(command.nearest).stem).strip("-.") or "picture"
    path, number = Path(f"{name}-nearest.png"), 1
    while path.exists() and not command.overwrite:
        number += 1
        path = Path(f"{name}-nearest-{number}.png")
    return None if _lies_among(path, command.images) else path


def _png(path: Path, flag: str, command: FeaturesCommand) -> Path:
    if path.suffix.lower() != ".png":
        raise UsageError(
            expected(flag, "a file that ends in .png", repr(str(path))),
            where=PROG,
            fix=f"{flag} {path.with_suffix('.png') if path.stem else 'map.png'}",
        )
    refuse_place(path, flag=flag)
    if path.exists() and not command.overwrite:
        raise UsageError(f"'{path}' is there already", where=PROG, fix=f"add --overwrite, or give another {flag}")
    if _lies_among(path, command.images):
        raise UsageError(f"{flag} would lie among the pictures", where=str(path), fix=f"give {flag} another folder")
    return path


def _lies_among(path: Path, images: Sequence[str]) -> bool:
    folders = [Path(one) for one in images if Path(one).is_dir()]
    return any(path.resolve().is_relative_to(folder.resolve()) for folder in folders)
