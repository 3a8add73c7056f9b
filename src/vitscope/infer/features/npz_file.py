"""Features in an .npz file, as `np.load` reads it, written without ever holding them all.

An array's header says how long it is, which is known only in the end: numbers are spooled to a hidden folder beside the
file, one spool each, and copied behind their headers when all have come. The file appears whole or not at all.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from torch import Tensor

from vitscope.infer.features.stored import FeatureWriter, Rows, as_numbers, from_numbers
from vitscope.weights.place import make_hidden_beside

COPIED_AT_ONCE = 1 << 24
WRITTEN_AT_ONCE = 10_000
METADATA, PATHS, LABELS, CLASSES, PARTS = "metadata", "paths", "labels", "classes", "parts"


class NpzWriter(FeatureWriter):
    """An array for each feature; `paths`; `labels`, `classes` and `parts` where they are known; `metadata` as JSON."""

    def open(self) -> None:
        self._folder = make_hidden_beside(self.path)
        self._spools: dict[str, BinaryIO] = {
            feature.name: (self._folder / str(number)).open("w+b") for number, feature in enumerate(self.features)
        }
        self._rows = Rows()

    def add(self, rows: Rows, values: Mapping[str, Tensor]) -> None:
        for name, spool in self._spools.items():
            spool.write(as_numbers(values[name]).tobytes())
        self._rows.extend(rows)

    def finish(self, about: Mapping[str, Any], classes: Sequence[str]) -> None:
        rows, made = self._rows, self._folder / "made"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
            for feature in self.features:
                shape = (len(rows.paths), *feature.shape)
                _write(archive, feature.name, shape, self.numbers, _spooled(self._spools[feature.name]))
            _write_texts(archive, PATHS, [path or "" for path in rows.paths])
            if rows.labels is not None:
                labels = np.asarray(rows.labels, dtype=np.int64)
                _write(archive, LABELS, labels.shape, labels.dtype, [labels.tobytes()])
                _write_texts(archive, CLASSES, classes)
            if rows.parts is not None:
                _write_texts(archive, PARTS, rows.parts)
            metadata = np.array(json.dumps(about, ensure_ascii=False))
            _write(archive, METADATA, (), metadata.dtype, [metadata.tobytes()])
        made.replace(self.path)

    def close(self) -> None:
        for spool in self._spools.values():
            spool.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def read_npz(path: Path) -> tuple[dict[str, Tensor], Rows, dict[str, Any]]:
    """Features, what is known of the pictures, and the metadata. Nothing in the file is run."""
    with np.load(path, allow_pickle=False) as archive:
        about = json.loads(str(archive[METADATA]))
        values = {name: from_numbers(archive[name], about["dtype"]) for name in about["features"]}
        rows = Rows(
            [str(text) or None for text in archive[PATHS]],
            archive[LABELS].tolist() if LABELS in archive else None,
            [str(text) for text in archive[PARTS]] if PARTS in archive else None,
        )
    return values, rows, about


def _write(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype, content: Iterator[bytes] | list[bytes]
) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(file, header)
        for chunk in content:
            file.write(chunk)


def _write_texts(archive: zipfile.ZipFile, name: str, texts: Sequence[str]) -> None:
    """NumPy keeps texts as wide as the widest: a chunk at a time, as all at once might not fit."""
    dtype = np.dtype(f"<U{max(map(len, texts), default=1) or 1}")
    starts = range(0, len(texts), WRITTEN_AT_ONCE)
    chunks = (np.array(texts[start : start + WRITTEN_AT_ONCE], dtype=dtype).tobytes() for start in starts)
    _write(archive, name, (len(texts),), dtype, chunks)


def _spooled(spool: BinaryIO) -> Iterator[bytes]:
    spool.seek(0)
    while chunk := spool.read(COPIED_AT_ONCE):
        yield chunk
