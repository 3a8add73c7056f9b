"""docs/train.md names every setting with its default, and none that is not there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from vitscope.train.config import TrainConfig

PAGE = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")
SECTIONS = ("optim", "schedule", "loss", "precision", "loop", "checkpoint")


def shown(value: Any) -> str:
    """A default as the page writes it."""
    match value:
        case None | ():
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case tuple():
            return ", ".join(map(shown, value))
    return str(value)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_table_has_every_setting_with_its_default(section: str) -> None:
    table = PAGE.partition(f"\n### {section}\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", table, re.MULTILINE)
    settings = getattr(TrainConfig(), section)
    assert [(name, default) for name, default, _ in rows] == [
        (field.name, shown(getattr(settings, field.name))) for field in fields(settings)
    ]
    assert all(about.strip() for _, _, about in rows)
