"""A step that was not finite, kept so that it can be taken again (`replay.py`) and looked into.

diagnostics/bad-step-000123/
    step.json           where it was (seed, epoch, batch), by how many processes, and what came out
    model.safetensors   the weights it was computed with: a bad step changes none (on a GPU, where the host looks every
                        `log_every` steps, those of up to as many steps later)

The batch is not stored: it is a function of (seed, epoch, batch), each process's part of it, and is made again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from vitscope.core import strict_json
from vitscope.core.errors import VitscopeError
from vitscope.core.files import write_atomically, write_json
from vitscope.train.state import TrainState

MOST_RECORDS = 5
"""A run that skips a step now and then must not fill the disk."""


def record_bad_step(
    folder: Path,
    state: TrainState,
    row: dict[str, Any],
    *,
    seed: int,
    epoch: int,
    batch: int,
    weights: Mapping[str, Tensor] | None = None,
) -> Path | None:
    """Write it down; None when there are enough already. `weights` are the model's, where it has only a part of them
    itself."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"bad-step-{row['step']:06d}"
    if place.exists():
        shutil.rmtree(place)  # of steps that were taken back
    if len(list(folder.glob("bad-step-*"))) >= MOST_RECORDS:
        return None
    place.mkdir()
    weights = state.model.state_dict() if weights is None else weights
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    are_finite = all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point())
    if are_finite:
        write_atomically(place / "model.safetensors", save(tensors))
    write_json(
        place / "step.json",
        {
            **row,
            "seed": seed,
            "epoch": epoch,  # from 0, as the loader counts; the row's counts from 1
            "batch": batch,
            "micro_batch": state.micro_batch,
            "world": state.processes.world,
            "weights_are_finite": are_finite,
        },
    )
    return place


def read_bad_step(place: str | Path) -> dict[str, Any]:
    path = Path(place) / "step.json"
    try:
        recorded = strict_json.decode(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        if not Path(place).exists():
            why = f"there is no '{place}'"
        elif isinstance(error, FileNotFoundError | NotADirectoryError):
            why = f"'{place}' is not the record of a bad step: it has no step.json"
        else:
            why = f"'{place}' is not the record of a bad step: {getattr(error, 'strerror', None) or error}"
        raise VitscopeError(why, fix="give a diagnostics/bad-step-* folder of a run") from None
    return {"world": 1, **recorded}  # which older records do not say
