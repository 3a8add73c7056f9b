"""Models by their name on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path


def is_hub_name(source: str | Path) -> bool:
    return False


def fetch(name: str) -> Path:
    raise NotImplementedError
