"""From a name or path to a source: what it is, is found out by looking."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from vitscope.core.environment import data_roots
from vitscope.core.errors import DataError, UsageError
from vitscope.core.near_path import did_you_mean_path
from vitscope.core.suggest import nearest
from vitscope.data.config import DataConfig
from vitscope.data.decode import bad_image
from vitscope.data.sources.builtin import BUILTIN, open_builtin
from vitscope.data.sources.files import PICTURE_SUFFIXES
from vitscope.data.sources.source import Source

# Asked in this order: the image folder comes last, since a folder of anything looks a little like it.
FORMATS = (
    ("parquet", "ParquetFiles"),
    ("cifar", "CifarFiles"),
    ("idx", "IdxFiles"),
    ("npz", "NpzArrays"),
    ("table", "CsvTable"),
    ("folder", "ImageFolder"),
)
LAYOUTS = "class folders (under train/ val/ test/ or not), Parquet, CIFAR or IDX files, an .npz file or a .csv table"


def open_source(name: str, config: DataConfig | None = None) -> Source:
    """The pictures a name or path stands for.

    In this order: a built-in set (`digits`, `shapes:size=64`), a path, a name under $VITSCOPE_DATA or data/, and a
    Hugging Face data set (`owner/name`, or `hf:name`).
    """
    config = config or DataConfig(name=name)
    if name.partition(":")[0] in BUILTIN:
        return open_builtin(name)
    if name.startswith("hf:") and name != "hf:":
        return _open_hub(name, config)
    for path in (_home_expanded(name), *(root / name for root in data_roots())):
        if _exists(path):
            return open_path(path, config)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name.partition("/")[0]).exists():
        return _open_hub(name, config)
    raise _unknown(name)


def open_path(path: Path, config: DataConfig | None = None) -> Source:
    """The pictures in a folder or file, whatever its format."""
    config = config or DataConfig(name=str(path))
    source = _recognised(path)
    if source is None:
        raise DataError(_what_it_is(path), where=str(path), fix=f"give {LAYOUTS}")
    return source.open(path, config)


def is_data_name(name: str) -> bool:
    """Whether a name, which is no path, stands for pictures: a quick look, nothing is opened or fetched."""
    if name.partition(":")[0] in BUILTIN or name.startswith("hf:"):
        return True
    return bool(name) and any(looks_like_data(root / name) for root in data_roots())


def looks_like_data(path: Path) -> bool:
    """Whether a folder or file seems to hold pictures: a quick look, nothing is opened."""
    return _exists(path) and _recognised(path) is not None


def _recognised(path: Path) -> Any:
    """The class of the first format it looks like."""
    sources = (getattr(import_module(f"vitscope.data.sources.{module}"), kind) for module, kind in FORMATS)
    return next((source for source in sources if source.looks_like(path)), None)


def _what_it_is(path: Path) -> str:
    try:
        if path.is_dir():
            return "no pictures that can be recognised" if any(path.iterdir()) else "an empty folder"
    except OSError as error:
        return f"the folder cannot be read: {bad_image(error).what}"
    return "one picture, no data set" if path.suffix.lower() in PICTURE_SUFFIXES else "no pictures in a known format"


def _open_hub(name: str, config: DataConfig) -> Source:
    from vitscope.data.sources.hub import HubDataset

    return HubDataset.open(name, config)


def _unknown(name: str) -> UsageError:
    found = {
        entry.name: root / entry.name
        for root in data_roots()
        if root.is_dir()
        for entry in root.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    }
    known = [*BUILTIN, *sorted(found)]
    near = nearest(name.partition(":")[0], known)
    meant = f"did you mean '{near[0]}'?" if near else did_you_mean_path(name)
    here = [] if Path(name).is_absolute() else ["the current folder"]
    places = " and ".join([*here, *map(str, data_roots())])
    no_root = "" if data_roots() else "; $VITSCOPE_DATA is not set, and there is no data/ here"
    return UsageError(
        f"unknown data set '{name}': not a built-in set, not a path",
        where=f"looked in {places}{no_root}" if places else no_root.removeprefix("; "),
        fix=meant or f"known here: {', '.join(known)}; or give a path: {LAYOUTS}",
    )


def _home_expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # '~somebody' who has no home here
        return Path(name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL in it, is no path
        return False
