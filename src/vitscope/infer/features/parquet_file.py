"""Features in a Parquet file: a row for each picture, a column of lists for each feature, metadata under `vitscope`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from vitscope.infer.features.reading import Feature
from vitscope.infer.features.stored import FeatureWriter, Rows, as_numbers, from_numbers

KEY = "vitscope"
PATH, LABEL, CLASS, PART = "path", "label", "class", "part"
GROUP_BYTES = 32 << 20
"""Of a row group: what a reader must hold at once."""


class ParquetWriter(FeatureWriter):
    """`path`; `label`, `class` and `part` where known; then the features, flat, their shapes in the metadata."""

    classes: Sequence[str] = ()

    def open(self) -> None:
        self._made = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []

    def add(self, rows: Rows, values: Mapping[str, Tensor]) -> None:
        columns: dict[str, pa.Array] = {PATH: pa.array(rows.paths, pa.string())}
        if rows.labels is not None:
            columns[LABEL] = pa.array(rows.labels, pa.int64())
            columns[CLASS] = pa.array([self.classes[label] for label in rows.labels], pa.string())
        if rows.parts is not None:
            columns[PART] = pa.array(rows.parts, pa.string())
        for feature in self.features:
            columns[feature.name] = self._lists(feature, as_numbers(values[feature.name]))
        self._waiting.append(pa.RecordBatch.from_pydict(columns))
        if sum(batch.nbytes for batch in self._waiting) >= GROUP_BYTES:
            self._flush()

    def finish(self, about: Mapping[str, Any], classes: Sequence[str]) -> None:
        del classes  # each row has its own
        self._flush()
        writer = self._opened(self._empty())
        writer.add_key_value_metadata({KEY: json.dumps(about, ensure_ascii=False)})
        writer.close()
        self._made.replace(self.path)

    def close(self) -> None:
        if self._writer is not None and self._writer.is_open:
            self._writer.close()
        self._made.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._opened(table.schema).write_table(table)
            self._waiting = []

    def _opened(self, schema: pa.Schema) -> pq.ParquetWriter:
        if self._writer is None:
            words = [name for name in (CLASS, PART) if name in schema.names]
            options: dict[str, Any] = {"compression": "zstd", "use_dictionary": words}
            self._writer = pq.ParquetWriter(self._made, schema, **options)
        return self._writer

    def _lists(self, feature: Feature, numbers: np.ndarray) -> pa.Array:
        flat = pa.array(np.ascontiguousarray(numbers).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(feature.shape)))

    def _empty(self) -> pa.Schema:
        """Where no picture could be read."""
        lists = [(one.name, self._lists(one, np.zeros((0, *one.shape), self.numbers)).type) for one in self.features]
        return pa.schema([(PATH, pa.string()), *lists])


def read_parquet(path: Path) -> tuple[dict[str, Tensor], Rows, dict[str, Any]]:
    """Features, what is known of the pictures, and the metadata."""
    file = pq.ParquetFile(path)
    about = json.loads(file.metadata.metadata[KEY.encode()])
    table = file.read()
    values = {}
    for name, told in about["features"].items():
        numbers = table.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False)
        values[name] = from_numbers(numbers.reshape(len(table), *told["shape"]), about["dtype"])
    rows = Rows(
        table.column(PATH).to_pylist(),
        table.column(LABEL).to_pylist() if LABEL in table.column_names else None,
        table.column(PART).to_pylist() if PART in table.column_names else None,
    )
    return values, rows, about
