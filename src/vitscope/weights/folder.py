"""The own folder: a model as files that explain themselves.

config.json         family and every setting; its `format` is how a model folder is recognised
model.safetensors   the weights; large ones are in shards, model-00001-of-00003.safetensors ..., with an index
preprocessing.json  what must happen to a picture first
labels.json         class names in index order
README.md           what a person should know of it
certificate.json    where the weights come from, written by `convert`; it goes when the weights are replaced

Whatever loads takes a run folder too: its `model/` is meant.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitscope.core.config import from_dict, to_dict
from vitscope.core.dtypes import type_name
from vitscope.core.errors import ConfigError, UsageError, VitscopeError, expected
from vitscope.core.files import write_atomically, write_json
from vitscope.core.run_layout import MODEL, is_run_folder
from vitscope.core.suggest import did_you_mean
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.models.build import CONFIGS
from vitscope.models.config import ModelConfig, pair
from vitscope.models.model import VisionModel
from vitscope.weights.card import plain_card
from vitscope.weights.files import Stored, read_file
from vitscope.weights.fit import (
    fitted_preprocessing,
    refuse_labels,
    refuse_nameless,
    refuse_preprocessing,
    refuse_weights,
)
from vitscope.weights.place import make_hidden_beside, swap
from vitscope.weights.shards import (
    INDEX,
    SHARD_BYTES,
    WEIGHTS,
    is_weights,
    refuse_dtype,
    refuse_shard_bytes,
    write_weights,
)

FORMAT = 1
CONFIG, PREPROCESSING, LABELS = "config.json", "preprocessing.json", "labels.json"
README, CERTIFICATE = "README.md", "certificate.json"
WRITTEN = (CONFIG, WEIGHTS, PREPROCESSING, LABELS, README)
"""What `save_model` writes, as long as one file is enough for the weights, and the classes have names."""
FILES = (*WRITTEN, CERTIFICATE)
"""What a model folder may hold, shards of its weights aside."""


def save_model(
    model: nn.Module,
    folder: str | Path,
    *,
    preprocessing: PreprocessConfig | None = None,
    labels: Sequence[str] | None = None,
    readme: str | None = None,
    notes: Mapping[str, str] | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
    shard_bytes: int = SHARD_BYTES,
    overwrite: bool = False,
) -> Path:
    """Write `model` as a folder, all of it or nothing. Wrappers (`torch.compile`, DDP) are taken off first.

    What is not given comes from the model, if it was loaded: its preprocessing, at the size the model now has, and
    its labels, as long as there are as many as classes. Else: mean = std = 0.5, and no labels.json.
    `readme` is the text of README.md (a short card by default), `notes` go into config.json, for `read_notes`.
    `weights` are written in place of the model's own: a running mean, or what several processes hold together.

    With `dtype` (torch.bfloat16, float16, float32) the weights are cast on their way to the file, the model stays as it
    is; the folder then loads in that type. Weights of more than `shard_bytes` are written as several files.

    `overwrite` replaces an old model with all its files. No certificate.json is written: it would speak of weights as
    they were loaded, and whether they were trained since nobody can tell. `convert` writes one.
    """
    model = unwrapped(model)
    folder = Path(folder)
    refuse_to_bury(folder, overwrite)
    write = writer(
        model,
        preprocessing=preprocessing,
        labels=labels,
        readme=readme,
        notes=notes,
        weights=weights,
        dtype=dtype,
        shard_bytes=shard_bytes,
        where=f"save_model(..., {str(folder)!r})",
    )
    replace_folder(folder.resolve(), write)  # a link stays a link
    return folder


def writer(
    model: VisionModel,
    *,
    preprocessing: PreprocessConfig | None = None,
    labels: Sequence[str] | None = None,
    readme: str | None = None,
    notes: Mapping[str, str] | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
    shard_bytes: int = SHARD_BYTES,
    where: str,
) -> Callable[[Path], None]:
    """What writes the files of `save_model` into an empty folder. All that can be refused is refused here, before."""
    refuse_dtype(dtype)
    refuse_shard_bytes(shard_bytes)
    config: ModelConfig = model.config
    seen = _preprocessing_of(model, preprocessing)
    names = _labels_of(model, labels)
    tensors = _tensors(model.state_dict() if weights is None else weights)
    refuse_weights(config, tensors, where=where, fix="undo what changed layers without the config")
    if readme is None:
        count = sum(parameter.numel() for parameter in model.parameters())
        kind = dtype or next(tensor.dtype for tensor in tensors.values() if tensor.is_floating_point())
        called = names or [str(number) for number in range(config.num_classes)]
        readme = plain_card(config, count, seen, called, type_name(kind))
    described = {"format": FORMAT, "family": config.family, "config": to_dict(config)}

    def write(folder: Path) -> None:
        write_json(folder / PREPROCESSING, to_dict(seen))
        if names is not None:
            write_json(folder / LABELS, names)
        write_atomically(folder / README, readme.encode())
        write_json(folder / CONFIG, described if notes is None else {**described, "notes": dict(notes)})
        write_weights(tensors, folder, dtype=dtype, shard_bytes=shard_bytes)

    return write


def replace_folder(place: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a hidden folder beside `place`, then put it there: all of it or nothing."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = make_hidden_beside(place)
    try:
        write(temporary)
        swap(temporary, place)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def stored_in(folder: Path) -> Stored:
    """The weights of a model folder, not yet read."""
    index = folder / INDEX
    return read_file(index if index.exists() else folder / WEIGHTS)


def read_notes(folder: Path) -> dict[str, str]:
    """What was noted when the model was saved; empty where nothing was, or nothing can be read."""
    try:
        notes = _read_json(folder, CONFIG)["notes"]
    except (VitscopeError, KeyError, TypeError):
        return {}
    return notes if isinstance(notes, dict) else {}


def model_folder(source: str | Path) -> Path:
    """The folder a model lies in: of a run, or of whatever holds one as a run does, its `model/`; else the folder
    itself."""
    folder = Path(source)
    if (folder / CONFIG).exists() or not (is_run_folder(folder) or (folder / MODEL / CONFIG).is_file()):
        return folder
    if not (folder / MODEL).is_dir():
        raise UsageError(
            f"the run '{folder}' holds no model yet",
            fix="wait for its first evaluation, or give a run that has got further",
        )
    return folder / MODEL


def load_config(folder: str | Path) -> ModelConfig:
    """The settings of the model a folder holds."""
    folder = model_folder(folder)
    described = _read_json(folder, CONFIG)
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        found = described.get("format") if isinstance(described, dict) else type(described).__name__
        raise ConfigError(expected("format", FORMAT, found), where=str(folder / CONFIG), fix="update vitscope")
    family = described.get("family")
    if not isinstance(family, str) or family not in CONFIGS:
        raise ConfigError(
            expected("family", f"one of {', '.join(CONFIGS)}", repr(family)),
            where=str(folder / CONFIG),
            fix=did_you_mean(str(family), CONFIGS),
        )
    return from_dict(CONFIGS[family], described.get("config"), where=str(folder / CONFIG))


def load_preprocessing(folder: str | Path) -> PreprocessConfig:
    """What must happen to a picture before the model a folder holds can read it."""
    folder = model_folder(folder)
    return from_dict(PreprocessConfig, _read_json(folder, PREPROCESSING), where=str(folder / PREPROCESSING))


def load_labels(folder: str | Path) -> list[str]:
    """The names of the classes of the model a folder holds, in index order; their numbers where nobody named them."""
    folder = model_folder(folder)
    if not (folder / LABELS).exists():
        return [str(number) for number in range(load_config(folder).num_classes)]
    labels = _read_json(folder, LABELS)
    refuse_nameless(labels, where=str(folder / LABELS))
    return labels


def unwrapped(model: nn.Module) -> VisionModel:
    """The model itself, out of `torch.compile`, DataParallel, DDP and the like, however many lie around it."""
    inner: Any = model
    while not isinstance(inner, VisionModel):
        # Asked by name: a wrapper may pass every other question on to what it wraps.
        parts = getattr(inner, "_modules", {})
        if "_orig_mod" not in parts and "module" not in parts:
            raise VitscopeError(
                expected("model", "a vitscope model, wrapped or not", type(model).__name__),
                where="save_model",
                fix="give a model made by vitscope.create_model or vitscope.load_model",
            )
        inner = parts["_orig_mod"] if "_orig_mod" in parts else parts["module"]
    return inner


def _preprocessing_of(model: VisionModel, given: PreprocessConfig | None) -> PreprocessConfig:
    if given is not None:
        refuse_preprocessing(given, model.config, where="save_model(..., preprocessing=...)")
        return given
    config = model.config
    return fitted_preprocessing(model.preprocessing, config) or half_normalised(pair(config.img_size), config.in_chans)


def _labels_of(model: VisionModel, given: Sequence[str] | None) -> list[str] | None:
    """None where nobody named the classes: numbers in their place would pass for names one day."""
    count = model.config.num_classes
    if given is not None:
        refuse_nameless(given if isinstance(given, str) else list(given))  # one text is not a list of its letters
        refuse_labels(given, count, where="save_model(..., labels=...)")
        return list(given)
    if model.labels is not None and len(model.labels) == count:
        return list(model.labels)
    return None


def carried_by(folder: Path, config: ModelConfig) -> tuple[PreprocessConfig | None, list[str] | None]:
    """The preprocessing and labels in a folder: absent is fine, wrong is not."""
    preprocessing = load_preprocessing(folder) if (folder / PREPROCESSING).exists() else None
    if preprocessing is not None:
        where = str(folder / PREPROCESSING)
        refuse_preprocessing(preprocessing, config, where=where, fix="correct the file, or take it away")
    labels = load_labels(folder) if (folder / LABELS).exists() else None
    if labels is not None:
        where = str(folder / LABELS)
        refuse_labels(labels, config.num_classes, where=where, fix="correct the file, or take it away")
    return preprocessing, labels


def _read_json(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"'{folder}' is not a saved model: it has no {name}",
            fix="give a folder written by vitscope.save_model, or a run",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise VitscopeError(f"cannot read {name}: {error}", where=str(folder), fix="save the model again") from None


def _tensors(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A layer compiled by itself keeps its name."""
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in weights.items()}


def refuse_to_bury(folder: Path, overwrite: bool) -> None:
    """Never write over something that is not a model, nor over a model unless told to."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
    strangers = sorted(name for name in names if name not in FILES and not is_weights(name))
    if not _is_model_folder(folder):
        reason = f"it holds {', '.join(strangers[:5])}" if strangers else f"it has no {CONFIG} of vitscope's"
        raise UsageError(f"'{folder}' is not a saved model: {reason}", fix="choose a new folder")
    if strangers:
        raise UsageError(
            f"'{folder}' holds more than a model, which would be lost: {', '.join(strangers[:5])}",
            fix="choose a new folder, or move these files away",
        )
    if not overwrite:
        raise UsageError(
            f"'{folder}' already holds a model", fix="choose a new folder, or pass overwrite=True (--overwrite)"
        )


def _is_model_folder(folder: Path) -> bool:
    """Whether its config.json is of this format, of whatever number."""
    try:
        described = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(described, dict) and isinstance(described.get("format"), int)
