"""Features to a file and back: `.npz` or Parquet, by its ending."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from vitscope.core.errors import DataError, UsageError, expected
from vitscope.infer.features.about import FORMAT
from vitscope.infer.features.features import BadPicture, Features
from vitscope.infer.features.npz_file import METADATA, NpzWriter, read_npz
from vitscope.infer.features.parquet_file import KEY, ParquetWriter, read_parquet
from vitscope.infer.features.reading import Reading
from vitscope.infer.features.stored import FeatureWriter

NPZ, PARQUET = ".npz", ".parquet"


def writer_to(path: str | Path, reading: Reading, dtype: torch.dtype, classes: tuple[str, ...]) -> FeatureWriter:
    """What takes features as they come, and leaves a file."""
    path = Path(path)
    refuse_ending(path)
    if path.suffix.lower() == NPZ:
        return NpzWriter(path, reading.features, dtype)
    writer = ParquetWriter(path, reading.features, dtype)
    writer.classes = classes
    return writer


def refuse_ending(path: Path) -> None:
    if path.suffix.lower() not in (NPZ, PARQUET):
        raise UsageError(
            expected("a file of features", f"an ending of {NPZ} or {PARQUET}", repr(path.name)),
            fix=f"{path.stem or 'features'}{NPZ}, or {path.stem or 'features'}{PARQUET}",
        )


def is_features_file(path: str | Path) -> bool:
    """Whether `vitscope features --out` wrote it. Never raises."""
    path = Path(path)
    try:
        if path.suffix.lower() == NPZ and path.is_file():
            return f"{METADATA}.npy" in zipfile.ZipFile(path).namelist()
        if path.suffix.lower() == PARQUET and path.is_file():
            import pyarrow.parquet as pq

            return KEY.encode() in (pq.read_metadata(path).metadata or {})
    except Exception:  # not a file of that kind at all
        return False
    return False


def read_features(path: str | Path) -> Features:
    """All that a file of features holds."""
    path = Path(path)
    refuse_ending(path)
    try:
        values, rows, about = read_npz(path) if path.suffix.lower() == NPZ else read_parquet(path)
        _refuse_other_format(about)
    except FileNotFoundError:
        raise DataError("there is no such file of features", where=str(path)) from None
    except Exception as error:
        raise DataError(
            f"no features can be read from it: {str(error).partition(chr(10))[0] or type(error).__name__}",
            where=str(path),
            fix="give a file that `vitscope features --out` wrote",
        ) from None
    bad = [BadPicture(one["place"], one["path"], one["reason"]) for one in about["bad"]]
    left_out = {one.place for one in bad}
    places = [place for place in range(len(rows.paths) + len(bad)) if place not in left_out]
    return Features(
        values=values,
        paths=rows.paths,
        places=places,
        labels=None if rows.labels is None else torch.tensor(rows.labels).long(),
        classes=tuple(about["classes"] or ()),
        parts=rows.parts,
        bad=bad,
        about=about,
    )


def _refuse_other_format(about: dict[str, Any]) -> None:
    if about.get("format") != FORMAT:
        raise ValueError(expected("format", f"'{FORMAT}'", repr(about.get("format"))))
