"""Where weights come from: a model folder of ours, timm's or Hugging Face's, a run, a bare file, or a hub name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vitscope.core.config import shortened
from vitscope.core.errors import ConfigError, UsageError, VitscopeError, expected
from vitscope.core.what_lies import what_lies_at
from vitscope.data.config import PreprocessConfig
from vitscope.models.config import ModelConfig
from vitscope.models.variants import VARIANTS
from vitscope.weights import folder as own
from vitscope.weights.files import Stored, read_file
from vitscope.weights.formats import huggingface_folder, timm_folder
from vitscope.weights.formats.huggingface_folder import OtherSize
from vitscope.weights.hub import fetch, hidden_by_folder, is_hub_name

Layout = Literal["vitscope", "timm", "huggingface", "file"]
LOCAL = "local-dir:"
"""What timm writes before a folder."""
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""What the weights of a folder may be called, the ones to prefer first."""

MOST_TRIES = 5


@dataclass(frozen=True)
class Source:
    """Weights, and what lies beside them."""

    words: str
    """How the asker called it."""
    layout: Layout
    path: Path
    """The folder or file."""
    weights: Stored
    config: ModelConfig | None = None
    """What model they are for; None for a bare file."""
    preprocessing: PreprocessConfig | None = None
    labels: list[str] | None = None
    described: dict[str, Any] | None = None
    """config.json, as it lies there."""
    other_size: OtherSize | None = None
    """Where pictures are made in another size than the positions are for."""
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def sha256(self) -> dict[str, str]:
        return self.weights.sha256()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *reason: object) -> None:
        self.weights.close()


def open_source(source: str | Path, *, alone: bool = False) -> Source:
    """Find out what `source` is, and what it says of itself. No tensor is read yet. `alone`: a weights file is nothing
    else, whatever lies beside it, as its model is named otherwise."""
    if not isinstance(source, str | Path):
        raise ConfigError(
            expected("source", "a folder, a weights file or a name on the hub", shortened(source)),
            where="load_model",
            fix="give its path or name as a text",
        )
    source = source if isinstance(source, Path) else source.removeprefix(LOCAL)
    path = Path(source)
    lies = what_lies_at(path)
    if lies == "folder":
        return _open_folder(path, str(source))
    if lies == "other":
        raise UsageError(f"'{source}' is not a plain file", fix="give a weights file, or a folder that holds one")
    if lies == "file" and path.name == own.CONFIG:
        return replace(_open_folder(path.parent, str(source)), remarks=("the weights are those beside config.json",))
    if lies == "file" and not alone and _is_weights_of_its_folder(path):
        return replace(_open_folder(path.parent, str(source)), remarks=("its settings are in config.json beside it",))
    if lies == "file":
        return Source(str(source), "file", path, read_file(path))
    if is_hub_name(source):
        return _open_folder(fetch(str(source)), str(source))
    if hidden_by_folder(source):
        raise UsageError(
            f"'{source}' is not a saved model: there is no such folder or file",
            where=f"the folder '{path.parts[0]}' here: what begins with its name is looked for in it alone",
            fix=f"give a folder or file that is there, or, if the model on the hub is meant, 'hf-hub:{source}'",
        )
    if str(source) in VARIANTS:
        raise UsageError(
            f"'{source}' is the name of a model, not of weights: there is no such folder or file",
            fix=f"create_model('{source}', pretrained=True) fetches its weights, where there are some",
        )
    raise UsageError(
        f"'{source}' is not a saved model: there is no such folder or file",
        fix="give a folder written by save_model, a run, a weights file, or a name like 'timm/vit_base_patch16_224...'",
    )


@dataclass(frozen=True)
class Description:
    """What a folder says of a model, whose weights may lie elsewhere."""

    config: ModelConfig
    says_classes: bool
    """Not where the weights say it, as with Hugging Face."""
    preprocessing: PreprocessConfig | None
    labels: list[str] | None


def described_in(folder: Path, weights: Stored | None = None) -> Description:
    """What a folder of ours, timm's or Hugging Face's describes. The last says less than all: the rest follows from its
    weights, or, where it has none, from those it is to describe."""
    folder = own.model_folder(folder)
    described = _described(folder)
    if described is None or _is_own(described):
        config = own.load_config(folder)
        return Description(config, True, *own.carried_by(folder, config))
    if "architecture" in described:
        config, preprocessing, labels = timm_folder.described_by(described, folder)
        return Description(config, True, preprocessing, labels)
    if "model_type" in described and weights is not None and _own_weights(folder) is None:
        return Description(*_without_classes(huggingface_folder.described_by(described, folder, weights)))
    with _open_folder(folder, str(folder)) as opened:
        return Description(*_without_classes((opened.config, opened.preprocessing, opened.labels)))


def _without_classes(said: tuple[Any, PreprocessConfig | None, list[str] | None]) -> tuple[Any, bool, Any, Any]:
    return said[0], False, said[1], said[2]


def _is_own(described: dict[str, Any]) -> bool:
    return isinstance(described.get("format"), int) or "family" in described


def _open_folder(folder: Path, words: str) -> Source:
    """Settings and weights of one and the same folder: another may take its place while it is opened, as a run's new
    best does. Once the files are open that no longer matters."""
    folder = own.model_folder(folder)
    for _ in range(MOST_TRIES):
        before = _identity(folder)
        try:
            opened = _open_once(folder, words)
        except VitscopeError:
            if _identity(folder) == before:
                raise
            continue
        if _identity(folder) == before:
            return opened
        opened.weights.close()
    raise VitscopeError(
        f"the folder was replaced {MOST_TRIES} times while it was opened",
        where=words,
        fix="wait until whoever writes it is done, then load again",
    )


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_once(folder: Path, words: str) -> Source:
    described = _described(folder)
    weights = _own_weights(folder)
    if weights is not None and not (folder / own.CONFIG).exists():  # as good as the bare file
        return Source(words, "file", weights, read_file(weights))
    if described is None or _is_own(described):
        config = own.load_config(folder)
        preprocessing, labels = own.carried_by(folder, config)
        return Source(words, "vitscope", folder, own.stored_in(folder), config, preprocessing, labels, described)
    stored = read_file(_weights_in(folder))
    if "architecture" in described:
        config, preprocessing, labels = timm_folder.described_by(described, folder)
        return Source(words, "timm", folder, stored, config, preprocessing, labels, described)
    if "model_type" in described:
        config, preprocessing, labels = huggingface_folder.described_by(described, folder, stored)
        return Source(
            words,
            "huggingface",
            folder,
            stored,
            config,
            preprocessing,
            labels,
            described,
            other_size=huggingface_folder.other_size(described, config, preprocessing),
            warnings=huggingface_folder.warnings_of(described, stored),
        )
    raise VitscopeError(
        "config.json is neither vitscope's (format), nor timm's (architecture), nor Hugging Face's (model_type)",
        where=str(folder),
        fix="load its weights file by itself, and name its model: config= (--model)",
    )


def _described(folder: Path) -> dict[str, Any] | None:
    """config.json, or None where `folder.load_config` will say what is wrong with it."""
    try:
        described = json.loads((folder / own.CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return described if isinstance(described, dict) else None


def holds_weights(folder: Path) -> bool:
    """Whether a folder holds weights under a name they go by, described or not."""
    return _own_weights(folder) is not None


def _own_weights(folder: Path) -> Path | None:
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)


def _is_weights_of_its_folder(path: Path) -> bool:
    """Whether a file is just what its folder, opened, would be read from."""
    weights = _own_weights(path.parent)
    return weights is not None and weights.name == path.name and _described(path.parent) is not None


def _weights_in(folder: Path) -> Path:
    weights = _own_weights(folder)
    if weights is not None:
        return weights
    raise VitscopeError("the folder has no weights", where=str(folder), fix=f"it should hold {' or '.join(WEIGHTS)}")


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
