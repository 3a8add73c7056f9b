"""`config=` of a load: the name of a model, a folder that describes one, or the settings themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.config import is_config, shortened
from vitscope.core.errors import ConfigError, expected
from vitscope.models.config import ModelConfig
from vitscope.models.variants import model_config
from vitscope.weights.create import with_settings
from vitscope.weights.folder import CONFIG
from vitscope.weights.source import described_in

WHERE = "load_model(..., config=...)"


@dataclass(frozen=True)
class Given:
    config: ModelConfig
    says_classes: bool
    """Not a name, which is an architecture's, nor a folder of Hugging Face, whose weights say it."""


def given_config(config: ModelConfig | str | Path) -> Given:
    """What was given as `config`, as settings; a folder may be vitscope's, timm's or Hugging Face's."""
    given: Any = config
    if is_config(given) and hasattr(given, "family"):
        return Given(given, says_classes=True)
    if not isinstance(given, str | Path):
        raise ConfigError(
            expected("config", "the name of a model, a model folder, or settings such as ViTConfig", shortened(given)),
            where=WHERE,
            fix="make settings of a dict: ViTConfig(**settings), or write them to a model folder",
        )
    path = Path(given)
    if path.name == CONFIG and path.is_file():
        path = path.parent
    if path.is_dir():
        return Given(*described_in(path))
    if path.is_file():
        raise ConfigError(
            expected("config", "the name of a model, a model folder, or its config.json", f"the file '{path}'"),
            where=WHERE,
            fix="give the folder that describes the model, or a name (vitscope models lists them)",
        )
    return Given(model_config(str(given)), says_classes=False)


def with_classes(config: ModelConfig, num_classes: int) -> ModelConfig:
    """The same with as many classes. Masked models have none, and no setting for them."""
    return config if config.num_classes == num_classes else with_settings(config, {"num_classes": num_classes})
