"""`vitscope data NAME_OR_PATH`: look a data set over before anything is trained on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from vitscope.cli.console import print_json
from vitscope.cli.progress import progress_bar
from vitscope.core.config import config, require
from vitscope.core.errors import EXIT_DONE, DataError, UsageError, expected
from vitscope.core.flags import parse_flags
from vitscope.core.switch import Switch
from vitscope.data.config import DataConfig

if TYPE_CHECKING:
    from vitscope.data.dataset import Dataset
    from vitscope.data.survey.survey import Survey

PROG = "vitscope data"
NO_SHEET = "none"


@config
class DataCommand:
    """Look a data set over: classes, sizes, bad and odd pictures, duplicates and leaks, and how to start.

    NAME_OR_PATH is a built-in set (digits, shapes, synthetic), a folder or file, or a name under $VITSCOPE_DATA.
    Every picture is decoded once. Nothing is written but the contact sheet.
    """

    examples: ClassVar[dict[str, str]] = {"sheet": "sheet.png", "image_column": "image", "label_column": "label"}

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME_OR_PATH")] = None
    """A built-in set, a folder or file, or a name under $VITSCOPE_DATA or data/."""
    sheet: str | None = None
    """Where the contact sheet goes: by default NAME-sheet.png in the current folder, and with --json nowhere. `none`
    draws no sheet."""
    augment: Literal["none", "basic", "medium", "strong"] | None = None
    """Also draw what training with this augmentation would see, beside the contact sheet."""
    limit: int = 100_000
    """Look at no more than this many pictures, spread evenly."""
    image_column: str | None = None
    """Column of the pictures (Parquet, CSV), where it cannot be told from the file."""
    label_column: str | None = None
    """Column of the labels (Parquet, CSV), where it cannot be told from the file."""
    split_seed: int = 0
    """Seed of the split into train, validation and test, where it is not given."""
    json: Switch = False
    """Print JSON instead of tables."""

    def __post_init__(self) -> None:
        require(self.limit > 0, "limit", "a positive number of pictures", self.limit)
        drawn = self.sheet != NO_SHEET and not (self.json and self.sheet is None)
        require(
            self.augment is None or drawn, "augment", "a sheet to draw it beside", "no sheet", fix="add --sheet FILE"
        )

    @property
    def draws(self) -> bool:
        """Programs get a sheet only when they ask for it."""
        return self.sheet != NO_SHEET and (self.sheet is not None or not self.json)


def run(args: Sequence[str]) -> int:
    command = parse_flags(DataCommand(), args, prog=PROG)
    if command.name is None:
        raise UsageError("no data set named", where=PROG, fix=f"`{PROG} digits`, or the path of your pictures")
    settings = DataConfig(
        name=command.name,
        image_column=command.image_column,
        label_column=command.label_column,
        split_seed=command.split_seed,
    )
    from vitscope.cli.data_tables import print_report  # torch comes with these
    from vitscope.data.dataset import open_dataset
    from vitscope.data.survey.survey import survey

    dataset = open_dataset(settings)
    sheet, why_not = _sheet_path(command, dataset)
    with progress_bar("looking at pictures", afterwards="comparing them with each other") as progress:
        found = survey(dataset, limit=command.limit, progress=progress)
    if not found.good:
        first = found.bad[0]
        raise DataError(
            f"none of the {found.looked_at:,} pictures looked at can be decoded",
            where=f"{first.where}: {first.what}",
            fix="give a data set with pictures that open in an image viewer",
        )
    drawn: list[Path] = []
    if sheet is not None:
        try:
            drawn = _draw(command, dataset, found, sheet)
        except OSError as error:
            why_not = f"no contact sheet: {sheet} cannot be written ({error.strerror or error}); give --sheet FILE"
    from vitscope.cli.data_report import report_of

    report = report_of(dataset, found, drawn)
    print_json(report) if command.json else print_report(report, why_not)
    return EXIT_DONE


def _sheet_path(command: DataCommand, dataset: Dataset) -> tuple[Path | None, str | None]:
    """Where the sheet goes, or why there is none. Never among the user's pictures."""
    if not command.draws:
        return None, None
    from vitscope.data.splits import part_called

    place = Path(dataset.source.place)
    given = command.sheet is not None
    path = Path(command.sheet or f"{_file_name(command.name or '')}-sheet.png")
    if place.is_dir() and part_called(place.resolve().name):  # one part of a data set: the whole is above it
        place = place.resolve().parent
    if place.is_dir() and path.resolve().is_relative_to(place.resolve()):
        if given:
            raise UsageError(
                "the sheet would lie among the pictures", where=str(path), fix="give --sheet another folder"
            )
        return None, "no contact sheet: this folder holds the pictures; give --sheet FILE to have one elsewhere"
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"there is no folder '{path.parent}'"
        raise UsageError(
            f"the sheet cannot be written: {what}",
            where=str(path),
            fix="give --sheet the path of a PNG file in a folder that exists",
        )
    if path.suffix.lower() != ".png":
        raise UsageError(
            expected("--sheet", "a file that ends in .png", repr(str(path))), where=PROG, fix=f"--sheet {path.stem}.png"
        )
    return path, None


def _file_name(name: str) -> str:
    """'shapes:size=64' -> 'shapes-size-64', '.' -> the folder's own name."""
    path = Path(name)
    last = path.resolve().name if path.is_dir() else path.stem if path.is_file() else name
    return re.sub(r"[^\w.-]+", "-", last).strip("-.") or "data"


def _draw(command: DataCommand, dataset: Dataset, found: Survey, sheet: Path) -> list[Path]:
    from vitscope.cli.data_sheet import draw_augmented, draw_sheet

    drawn = [draw_sheet(dataset, found, sheet)]
    if command.augment is not None:
        beside = sheet.with_name(f"{sheet.stem}-{command.augment}.png")
        drawn.append(draw_augmented(dataset, found, command.augment, beside))
    return drawn
