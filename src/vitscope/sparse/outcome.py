"""What came of a round for one network, kept in a file: a round that is done is not done again."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from vitscope.core.errors import InputError, expected
from vitscope.core.files import write_atomically, write_json
from vitscope.sparse.units import Units

OUTCOME, MASKS = "outcome.json", "masks.safetensors"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A trained network, and how it came about."""

    folder: Path
    model: Path
    """The folder of the saved model: what is judged, timed and handed on."""
    units: Units | None = None
    """Kept ones, counted from the original network."""
    masks: dict[str, Tensor] | None = None
    """Of single weights that are kept."""
    epochs: int
    """Trained since the dense network."""
    val_accuracy: float | None = None
    test_accuracy: float | None = None
    test_count: int | None = None
    before_cut_val_accuracy: float | None = None
    after_cut_val_accuracy: float | None = None
    lambda_end: float | None = None
    doomed_share: float | None = None
    cut_moved_logits: float | None = None
    rewind_hash: str | None = None
    seconds: float = 0.0

    @property
    def kept_units(self) -> Units:
        if self.units is None:
            raise InputError(expected("the outcome of a round", "one with whole units", f"{self.folder}, without"))
        return self.units


def once(folder: Path, work: Callable[[], Outcome]) -> Outcome:
    """The outcome of `work`, or the one kept in `folder` before. Time before an interruption is not counted."""
    kept = folder / OUTCOME
    if kept.exists():
        return _read(kept)
    began = time.monotonic()
    found = dataclasses.replace(work(), seconds=time.monotonic() - began)
    if found.masks is not None:
        write_atomically(folder / MASKS, save({name: mask.contiguous() for name, mask in found.masks.items()}))
    _write(kept, found)
    return found


def _write(path: Path, outcome: Outcome) -> None:
    plain: dict[str, Any] = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    plain["model"] = str(outcome.model.relative_to(path.parent))
    plain["units"] = None if outcome.units is None else outcome.units.to_json()
    plain["masks"] = None if outcome.masks is None else MASKS
    del plain["folder"]
    write_json(path, plain)


def _read(path: Path) -> Outcome:
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain["model"] = path.parent / plain["model"]
    plain["units"] = None if plain["units"] is None else Units.from_json(plain["units"])
    plain["masks"] = None if plain["masks"] is None else load_file(path.parent / plain["masks"])
    return Outcome(folder=path.parent, **plain)
