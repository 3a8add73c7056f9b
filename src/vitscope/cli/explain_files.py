"""Where the pictures of `vitscope explain` go, settled before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vitscope.cli.writing import refuse_place
from vitscope.core.errors import UsageError, expected

PROG = "vitscope explain"


class Places:
    """A main file and some beside it, none of which is there yet, unless they may be replaced."""

    def __init__(
        self, out: str | None, picture: Path, kind: str, extras: Sequence[str], *, overwrite: bool = False
    ) -> None:
        """`out` is a PNG file or a folder. Where it is not given, a free name in the current folder is taken."""
        self.main = _main(out, f"{picture.stem}-{kind.replace('_', '-')}")
        refuse_place(self.main)
        if out is None and not overwrite:
            self.main = self._free(extras)
        taken = [path for path in (self.main, *map(self.beside, extras)) if path.exists() or path.is_symlink()]
        inside = [path for path in taken if path.is_dir()]
        if inside or (taken and not overwrite):
            raise UsageError(
                f"'{(inside or taken)[0]}' is there already",
                where=PROG,
                fix="give another --out" if inside else "replace it with --overwrite, or give another --out",
            )
        if any(path.exists() and path.samefile(picture) for path in taken if picture.exists()):
            raise UsageError(f"'{picture}' would be replaced by its own map", where=PROG, fix="give another --out")

    def beside(self, extra: str) -> Path:
        return self.main.with_name(f"{self.main.stem}-{extra}.png")

    def _free(self, extras: Sequence[str]) -> Path:
        first, number = self.main, 1
        while any(path.exists() for path in (self.main, *map(self.beside, extras))):
            number += 1
            self.main = first.with_name(f"{first.stem}-{number}.png")
        return self.main


def _main(out: str | None, name: str) -> Path:
    if out is None:
        return Path(f"{name}.png")
    path = Path(out).expanduser()
    if path.suffix.lower() == ".png" and not path.is_dir():
        return path
    if path.suffix and not path.is_dir():
        raise UsageError(
            expected("--out", "a folder, or a file that ends in .png", repr(out)),
            where=PROG,
            fix=f"--out {path.with_suffix('.png')}",
        )
    if path.exists() and not path.is_dir():
        raise UsageError(
            expected("--out", "a folder, or a file that ends in .png", repr(out)), where=PROG, fix=f"--out {out}.png"
        )
    return path / f"{name}.png"
