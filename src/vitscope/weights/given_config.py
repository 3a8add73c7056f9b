"""`config=` of a load: the name of a model, a folder that describes one, or the settings themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.config import is_config, shortened, updated
from vitscope.core.errors import ConfigError, expected
from vitscope.core.what_lies import what_lies_at
from vitscope.data.config import PreprocessConfig
from vitscope.models.config import ModelConfig
from vitscope.models.variants import model_config
from vitscope.weights.create import with_settings
from vitscope.weights.files import Stored
from vitscope.weights.folder import CONFIG
from vitscope.weights.source import described_in

WHERE = "load_model(..., config=...)"
UNSAID = ("norm_eps", "act")
"""Settings no tensor belongs to and that change what is computed: a name has the usual ones, a folder the true ones."""


@dataclass(frozen=True)
class Given:
    config: ModelConfig
    says_classes: bool = True
    """Not a name, which is an architecture's, nor a folder of Hugging Face, whose weights say it."""
    is_name: bool = False
    folder: Path | None = None
    """Where it was described, with the two below."""
    preprocessing: PreprocessConfig | None = None
    labels: list[str] | None = None


def given_config(config: ModelConfig | str | Path, weights: Stored | None = None) -> Given:
    """What was given as `config`, as settings; a folder may be vitscope's, timm's or Hugging Face's, and of the last
    `weights` say what its config.json leaves open."""
    given: Any = config
    if is_config(given) and hasattr(given, "family"):
        return Given(given)
    if not isinstance(given, str | Path):
        raise ConfigError(
            expected("config", "the name of a model, a model folder, or settings such as ViTConfig", shortened(given)),
            where=WHERE,
            fix="make settings of a dict: ViTConfig(**settings), or write them to a model folder",
        )
    path = Path(given)
    lies = what_lies_at(path)
    if path.name == CONFIG and lies == "file":
        path, lies = path.parent, "folder"
    if lies == "folder":
        said = described_in(path, weights)
        return Given(said.config, said.says_classes, False, path, said.preprocessing, said.labels)
    if lies is not None:
        kind = "the file" if lies == "file" else "what is not a plain file:"
        raise ConfigError(
            expected("config", "the name of a model, a model folder, or its config.json", f"{kind} '{path}'"),
            where=WHERE,
            fix="give the folder that describes the model, or a name (vitscope models lists them)",
        )
    return Given(model_config(str(given)), says_classes=False, is_name=True)


def with_classes(config: ModelConfig, num_classes: int) -> ModelConfig:
    """The same with as many classes. Masked models have none, and no setting for them."""
    return config if config.num_classes == num_classes else with_settings(config, {"num_classes": num_classes})


def as_its_weights(named: ModelConfig, known: ModelConfig) -> tuple[ModelConfig, list[str]]:
    """The model of a name, with what a name does not say as the weights' own settings, `known`, have it; and what is to
    be said of that."""
    if named.family != known.family:
        return named, []
    changes = {key: getattr(known, key) for key in UNSAID if getattr(known, key, None) != getattr(named, key, None)}
    if (getattr(named, "position", None), getattr(known, "position", None)) == ("learned", "sincos"):
        changes["position"] = "sincos"
    told = updated(named, **changes) if changes else named
    return told, [
        f"{key} is {_shown(told, key)}, as the weights have it, where the name alone means {_shown(named, key)}"
        for key in changes
        if _shown(told, key) != _shown(named, key)
    ]


def _shown(config: Any, key: str) -> object:
    return config.activation if key == "act" and hasattr(config, "activation") else getattr(config, key)
