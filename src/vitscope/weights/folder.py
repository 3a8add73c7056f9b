"""The own folder: a model as files that explain themselves.

config.json         family and every setting
model.safetensors   the weights
preprocessing.json  what must happen to a picture first
labels.json         class names in index order
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from vitscope.core.config import from_dict, shortened, to_dict
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.core.files import write_json
from vitscope.core.suggest import did_you_mean
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.models.build import CONFIGS, build_model
from vitscope.models.config import ModelConfig, pair

FORMAT = 1
CONFIG, WEIGHTS, PREPROCESSING, LABELS = (
    "config.json",
    "model.safetensors",
    "preprocessing.json",
    "labels.json",
)
FILES = (CONFIG, WEIGHTS, PREPROCESSING, LABELS)


def save_model(
    model: Any,
    folder: str | Path,
    *,
    preprocessing: PreprocessConfig | None = None,
    labels: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write `model` as a folder, all of it or nothing. Without `preprocessing`, mean = std = 0.5 at the model's size;
    without `labels`, the classes are called by their numbers."""
    folder = Path(folder)
    _refuse_to_bury(folder, overwrite)
    image = _image_settings(model.config)
    preprocessing = preprocessing or half_normalised(pair(image.img_size), image.in_chans)
    labels = list(labels) if labels is not None else [str(i) for i in range(image.num_classes)]
    if len(labels) != image.num_classes:
        raise ConfigError(expected("labels", f"{image.num_classes} names, one per class", len(labels)))
    _refuse_nameless(labels)

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = _make_hidden_beside(folder)
    try:
        write_json(temporary / PREPROCESSING, to_dict(preprocessing))
        write_json(temporary / LABELS, labels)
        described = {"format": FORMAT, "family": model.config.family, "config": to_dict(model.config)}
        write_json(temporary / CONFIG, described)
        save_file(_tensors(model), temporary / WEIGHTS, metadata={"format": "pt"})
        shutil.copymode(temporary / CONFIG, temporary / WEIGHTS)  # safetensors keeps its files to their owner
        _flush(temporary / WEIGHTS)
        _swap(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def load_model(folder: str | Path) -> Any:
    """The model a folder holds, in eval mode, bit for bit as it was saved."""
    folder = Path(folder)
    config = load_config(folder)
    try:
        # Copied: a loaded file stays mapped, and what happens to it later would happen to the model.
        tensors = {name: tensor.clone() for name, tensor in load_file(folder / WEIGHTS).items()}
    except (SafetensorError, OSError) as error:
        raise VitscopeError(
            f"cannot read the weights: {error}",
            where=str(folder / WEIGHTS),
            fix="copy or save the folder again",
        ) from None
    with torch.device("meta"):  # no time lost on initial weights that are replaced at once
        model = build_model(config)
    _refuse_mismatch(model.state_dict(), tensors, where=str(folder / WEIGHTS))
    model.load_state_dict(tensors, strict=True, assign=True)
    model.reset_buffers()
    return model.eval()


def load_config(folder: str | Path) -> ModelConfig:
    """The settings of the model a folder holds."""
    described = _read_json(Path(folder), CONFIG)
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        found = described.get("format") if isinstance(described, dict) else type(described).__name__
        raise ConfigError(expected("format", FORMAT, found), where=str(Path(folder) / CONFIG), fix="update vitscope")
    family = described.get("family")
    if not isinstance(family, str) or family not in CONFIGS:
        raise ConfigError(
            expected("family", f"one of {', '.join(CONFIGS)}", repr(family)),
            where=str(Path(folder) / CONFIG),
            fix=did_you_mean(str(family), CONFIGS),
        )
    return from_dict(CONFIGS[family], described.get("config"), where=str(Path(folder) / CONFIG))


def load_preprocessing(folder: str | Path) -> PreprocessConfig:
    where = str(Path(folder) / PREPROCESSING)
    return from_dict(PreprocessConfig, _read_json(Path(folder), PREPROCESSING), where=where)


def load_labels(folder: str | Path) -> list[str]:
    labels = _read_json(Path(folder), LABELS)
    _refuse_nameless(labels, where=str(Path(folder) / LABELS))
    return labels


def _refuse_nameless(labels: object, where: str | None = None) -> None:
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(expected("labels", "a list of names", shortened(labels)), where=where)


def _read_json(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise VitscopeError(
            f"'{folder}' is not a saved model: it has no {name}",
            fix="give a folder written by vitscope.save_model (or the model/ folder of a run)",
        ) from None
    except (OSError, ValueError) as error:
        raise VitscopeError(f"cannot read {name}: {error}", where=str(folder), fix="save the model again") from None


def _image_settings(config: Any) -> Any:
    """Masked models wrap the config that knows about images."""
    return getattr(config, "encoder", config)


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """Contiguous copies: safetensors refuses views and shared memory."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}


def _refuse_mismatch(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor], *, where: str) -> None:
    missing = sorted(wanted.keys() - found.keys())
    unexpected = sorted(found.keys() - wanted.keys())
    shapes = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name].shape != found[name].shape
    ]
    kinds = [
        f"{name} {found[name].dtype} instead of {wanted[name].dtype}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name].is_floating_point() != found[name].is_floating_point()
    ]
    faults = [
        f"{len(names)} {kind}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
        for kind, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", shapes),
            ("of another kind", kinds),
        )
        if names
    ]
    if faults:
        raise VitscopeError(
            f"the weights do not fit the config; {'; '.join(faults)}", where=where, fix="save the model again"
        )


def _refuse_to_bury(folder: Path, overwrite: bool) -> None:
    """Never write over something that is not a model, nor over a model unless told to."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    strangers = sorted({path.name for path in folder.iterdir()} - set(FILES)) if folder.is_dir() else [folder.name]
    if strangers or not (folder / CONFIG).is_file():
        raise VitscopeError(
            f"'{folder}' is not a saved model: it holds {', '.join(strangers[:5])}"
            if strangers
            else f"'{folder}' is not a saved model: it has no {CONFIG}",
            fix="choose a new folder",
        )
    if not overwrite:
        raise VitscopeError(f"'{folder}' already holds a model", fix="choose a new folder, or pass overwrite=True")


def _make_hidden_beside(folder: Path) -> Path:
    """A new folder on the same disk, open to whom the umask says."""
    made = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.tmp"
    made.mkdir()
    return made


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _swap(temporary: Path, folder: Path) -> None:
    """Put the finished folder in place; the old one goes only after the new one stands."""
    if not folder.exists():
        temporary.rename(folder)
        return
    old = _make_hidden_beside(folder)
    try:
        folder.rename(old / "model")
        temporary.rename(folder)
    except BaseException:
        if (old / "model").exists():
            (old / "model").rename(folder)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)
