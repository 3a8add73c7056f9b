"""The folder of an experiment: made, found again, or replaced. There is no config.yaml in it, as it is no run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from vitscope.core.config import require, to_dict
from vitscope.core.errors import ConfigError, UsageError
from vitscope.core.files import write_json
from vitscope.core.folder_lock import FolderLock
from vitscope.core.overwrite import set_aside
from vitscope.core.run_layout import LOCK, REPLACED
from vitscope.core.yaml import load_yaml, save_yaml
from vitscope.sparse.config import SPARSE, TRAIN, SparseConfig
from vitscope.train.config import TrainConfig
from vitscope.train.resume import refuse_to_replace_sources

SOURCE = "source.json"
"""Beside `SPARSE` and `TRAIN`: the network it began with."""
DEVICE = "loop.device"
"""Where it is computed is no part of what is computed."""
MAY_CHANGE = ("rounds", "seeds", "controls", "control_rounds", "timing")
"""On resuming: more of the same, or measured otherwise. All else would make it another experiment."""


def kept_settings(folder: Path) -> tuple[TrainConfig, SparseConfig, str | None]:
    """What an experiment was begun with: settings of training and of sparsity, and the network it began with."""
    try:
        source = json.loads((folder / SOURCE).read_text(encoding="utf-8"))["source"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"'{folder}' does not say what the experiment began with: {error}",
            where="--resume",
            fix="the same command as before, with --resume",
        ) from error
    return load_yaml(TrainConfig, folder / TRAIN), load_yaml(SparseConfig, folder / SPARSE), source


def open_folder(
    folder: Path,
    config: TrainConfig,
    sparse: SparseConfig,
    source: str | None,
    lock: FolderLock,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Made, emptied, or found to be the same experiment's; refused otherwise."""
    require(not (resume and overwrite), "--resume", "no --overwrite beside it", "both", fix="leave one of them out")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"'{folder}' is not a folder", where="--out", fix="choose another --out")
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set[str]()
    if there and overwrite:
        _refuse_to_replace(folder, there, config, source)
    elif there and not resume:
        raise UsageError(
            f"the output folder '{folder}' is not empty",
            where="--out",
            fix="go on with what is in it (--resume), replace it (--overwrite), or choose another --out",
        )
    # Whoever was killed while writing these has done nothing else yet.
    goes_on = bool(there - {LOCK, SOURCE, TRAIN, REPLACED}) and not overwrite
    if goes_on and SPARSE not in there:
        raise UsageError(
            f"'{folder}' holds no experiment: there is no {SPARSE} in it", where="--resume", fix="choose another --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    lock.take(folder)
    if there and overwrite:
        set_aside(folder)  # until the new one has its first network
    if goes_on:
        _refuse_changes(folder, config, sparse, source)
    write_json(folder / SOURCE, {"source": _whole(source)})
    save_yaml(config, folder / TRAIN)
    save_yaml(sparse, folder / SPARSE)  # the last: it says that there is an experiment


def _refuse_to_replace(folder: Path, there: set[str], config: TrainConfig, source: str | None) -> None:
    """Only an experiment is replaced, and none that holds what the new one begins with."""
    if not there & {SPARSE, SOURCE, REPLACED}:
        raise UsageError(
            f"'{folder}' holds no experiment, and is not replaced: there is no {SPARSE} in it",
            where="--overwrite",
            fix="choose another --out",
        )
    refuse_to_replace_sources(config, folder)
    if source is not None and Path(source).expanduser().resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"'{source}' is in what would be replaced", where="--overwrite", fix="choose another --out")


def _refuse_changes(folder: Path, config: TrainConfig, sparse: SparseConfig, source: str | None) -> None:
    kept, now = (to_dict(one) | {"rank": one.ranks} for one in (load_yaml(SparseConfig, folder / SPARSE), sparse))
    before, after = (dict(_flat(to_dict(one))) for one in (load_yaml(TrainConfig, folder / TRAIN), config))
    other = [f"{key} ({kept[key]} -> {now[key]})" for key in now if key not in MAY_CHANGE and kept[key] != now[key]]
    other += [
        f"{key} ({before.get(key)} -> {after.get(key)})"
        for key in {**before, **after}
        if before.get(key) != after.get(key) and key != DEVICE
    ]
    other += [f"{key} ({kept[key]} -> {now[key]})" for key in ("rounds", "seeds") if now[key] < kept[key]]
    note = folder / SOURCE
    began = json.loads(note.read_text(encoding="utf-8"))["source"] if note.exists() else _whole(source)
    if _whole(source) != began:
        other.append(f"what it begins with ({began or 'trained here'} -> {source or 'trained here'})")
    if other:
        raise ConfigError(
            f"an experiment cannot go on with other settings: {', '.join(other)}",
            where="--resume",
            fix=f"leave them as they were ({folder / SPARSE}, {folder / TRAIN}), or begin another with --out",
        )


def _flat(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Settings by their names with dots."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _whole(source: str | None) -> str | None:
    """The same from wherever it is named; a name on the hub stays as it is."""
    if source is None:
        return None
    place = Path(source).expanduser()
    return str(place.absolute()) if place.parent.exists() else source
