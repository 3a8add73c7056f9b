"""The own folder: a model as files that explain themselves.

config.json         family and every setting; its `format` is how a model folder is recognised
model.safetensors   the weights
preprocessing.json  what must happen to a picture first
labels.json         class names in index order
README.md           what a person should know of it, where that was given
certificate.json    what others may add; like README.md it speaks of these weights and goes when they are replaced

Whatever loads takes a run folder too: its `model/` is meant.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from vitscope.core.config import from_dict, to_dict, updated
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.core.files import write_atomically, write_json
from vitscope.core.run_layout import MODEL, is_run_folder
from vitscope.core.suggest import did_you_mean
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.models.build import CONFIGS, build_model
from vitscope.models.config import ModelConfig, pair
from vitscope.models.model import VisionModel
from vitscope.weights.fit import refuse_labels, refuse_mismatch, refuse_nameless, refuse_preprocessing, refuse_weights
from vitscope.weights.place import flush, make_hidden_beside, swap

FORMAT = 1
CONFIG, WEIGHTS, PREPROCESSING, LABELS = "config.json", "model.safetensors", "preprocessing.json", "labels.json"
README = "README.md"
WRITTEN = (CONFIG, WEIGHTS, PREPROCESSING, LABELS)
"""What `save_model` always writes."""
FILES = (*WRITTEN, README, "certificate.json")
"""What a model folder may hold."""


def save_model(
    model: nn.Module,
    folder: str | Path,
    *,
    preprocessing: PreprocessConfig | None = None,
    labels: Sequence[str] | None = None,
    readme: str | None = None,
    notes: Mapping[str, str] | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write `model` as a folder, all of it or nothing. Wrappers (`torch.compile`, DDP) are taken off first.

    What is not given comes from the model, if it was loaded: its preprocessing, at the size the model now has, and
    its labels, as long as there are as many as classes. Else: mean = std = 0.5, and classes called by their numbers.
    `readme` is the text of README.md, `notes` go into config.json, for `read_notes`. `weights` are written in place of
    the model's own: a running mean, or what several processes hold together. `overwrite` replaces an old model with all
    its files, README.md and certificate.json included.
    """
    model = unwrapped(model)
    folder = Path(folder)
    _refuse_to_bury(folder, overwrite)
    config: ModelConfig = model.config
    preprocessing = _preprocessing_of(model, preprocessing)
    labels = _labels_of(model, labels)
    tensors = _tensors(model.state_dict() if weights is None else weights)
    refuse_weights(
        config, tensors, where=f"save_model(..., {str(folder)!r})", fix="undo what changed layers without the config"
    )

    place = folder.resolve()  # a link stays a link
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = make_hidden_beside(place)
    try:
        write_json(temporary / PREPROCESSING, to_dict(preprocessing))
        write_json(temporary / LABELS, labels)
        if readme is not None:
            write_atomically(temporary / README, readme.encode())
        described = {"format": FORMAT, "family": config.family, "config": to_dict(config)}
        write_json(temporary / CONFIG, described if notes is None else {**described, "notes": dict(notes)})
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
        shutil.copymode(temporary / CONFIG, temporary / WEIGHTS)  # safetensors keeps its files to their owner
        flush(temporary / WEIGHTS)
        swap(temporary, place)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def load_model(source: str | Path) -> VisionModel:
    """The model a folder (or a run) holds, in eval mode, bit for bit as it was saved. It carries the folder's
    preprocessing and labels as `model.preprocessing` and `model.labels` (None where the folder has no such file)."""
    folder = model_folder(source)
    config = load_config(folder)
    preprocessing, labels = _carried_by(folder, config)
    # Copied: what happens to the file later would happen to the model.
    tensors = {name: tensor.clone() for name, tensor in mapped_weights(folder).items()}
    with torch.device("meta"):  # no time lost on initial weights that are replaced at once
        model = build_model(config)
    refuse_mismatch(model.state_dict(), tensors, where=str(folder / WEIGHTS), fix="save the model again")
    model.load_state_dict(tensors, strict=True, assign=True)
    model.reset_buffers()
    for part in model.modules():  # the encoder of a masked model is a model too, and is taken away to be used
        if isinstance(part, VisionModel):
            part.preprocessing = preprocessing
            part.labels = labels
    return model.eval()


def mapped_weights(source: str | Path) -> dict[str, torch.Tensor]:
    """The weights a folder (or a run) holds, on the CPU, where they lie in the file: only what is read takes memory."""
    path = model_folder(source) / WEIGHTS
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise VitscopeError(
            f"cannot read the weights: {error}", where=str(path), fix="copy or save the folder again"
        ) from None


def read_notes(folder: Path) -> dict[str, str]:
    """What was noted when the model was saved; empty where nothing was, or nothing can be read."""
    try:
        notes = _read_json(folder, CONFIG)["notes"]
    except (VitscopeError, KeyError, TypeError):
        return {}
    return notes if isinstance(notes, dict) else {}


def model_folder(source: str | Path) -> Path:
    """The folder a model lies in: of a run its `model/`, else the folder itself."""
    folder = Path(source)
    if (folder / CONFIG).exists() or not is_run_folder(folder):
        return folder
    if not (folder / MODEL).is_dir():
        raise VitscopeError(
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
    """The names of the classes of the model a folder holds, in index order."""
    folder = model_folder(folder)
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
    size = pair(model.config.img_size)
    if given is not None:
        refuse_preprocessing(given, model.config, where="save_model(..., preprocessing=...)")
        return given
    carried: PreprocessConfig | None = model.preprocessing
    if carried is not None and carried.in_chans == model.config.in_chans:
        return updated(carried, img_size=size)
    return half_normalised(size, model.config.in_chans)


def _labels_of(model: VisionModel, given: Sequence[str] | None) -> list[str]:
    count = model.config.num_classes
    if given is not None:
        refuse_nameless(given if isinstance(given, str) else list(given))  # one text is not a list of its letters
        refuse_labels(given, count, where="save_model(..., labels=...)")
        return list(given)
    if model.labels is not None and len(model.labels) == count:
        return list(model.labels)
    return [str(i) for i in range(count)]


def _carried_by(folder: Path, config: ModelConfig) -> tuple[PreprocessConfig | None, list[str] | None]:
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
        raise VitscopeError(
            f"'{folder}' is not a saved model: it has no {name}",
            fix="give a folder written by vitscope.save_model, or a run",
        ) from None
    except (OSError, ValueError) as error:
        raise VitscopeError(f"cannot read {name}: {error}", where=str(folder), fix="save the model again") from None


def _tensors(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Contiguous copies: safetensors refuses views and shared memory. A layer compiled by itself keeps its name."""
    return {
        name.replace("_orig_mod.", ""): tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()
    }


def _refuse_to_bury(folder: Path, overwrite: bool) -> None:
    """Never write over something that is not a model, nor over a model unless told to."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    strangers = sorted({path.name for path in folder.iterdir()} - set(FILES)) if folder.is_dir() else [folder.name]
    if not _is_model_folder(folder):
        reason = f"it holds {', '.join(strangers[:5])}" if strangers else f"it has no {CONFIG} of vitscope's"
        raise VitscopeError(f"'{folder}' is not a saved model: {reason}", fix="choose a new folder")
    if strangers:
        raise VitscopeError(
            f"'{folder}' holds more than a model, which would be lost: {', '.join(strangers[:5])}",
            fix="choose a new folder, or move these files away",
        )
    if not overwrite:
        raise VitscopeError(f"'{folder}' already holds a model", fix="choose a new folder, or pass overwrite=True")


def _is_model_folder(folder: Path) -> bool:
    """Whether its config.json is of this format, of whatever number."""
    try:
        described = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(described, dict) and isinstance(described.get("format"), int)
