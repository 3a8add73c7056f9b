"""Folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitscope.data.config import PreprocessConfig
from vitscope.models.config import ModelConfig


def described_by(
    described: dict[str, Any], folder: Path
) -> tuple[ModelConfig, PreprocessConfig | None, list[str] | None]:
    raise NotImplementedError
