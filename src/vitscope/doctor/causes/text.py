"""A sentence in every language the doctor speaks, with places for numbers, and causes made of such sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, Literal, NamedTuple

Language = Literal["en", "zh"]


class Text(NamedTuple):
    """The same sentence twice; places such as `{lr:.2g}` are filled from a finding's numbers."""

    en: str
    zh: str

    def said(self, language: Language, numbers: Mapping[str, Any]) -> str:
        return (self.en if language == "en" else self.zh).format_map(numbers)


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a model does not train, in sentences. Its name is public and stable."""

    name: str
    title: Text
    """What is wrong, in a few words, without numbers."""
    evidence: Text
    """What was measured, with the numbers."""
    cost: Text
    """What it costs to leave it."""
    action: Text
    """What to do next: a setting, a command, a line of code."""
    effect: Text
    """What to expect of that."""

    @property
    def places(self) -> set[str]:
        """Names of the numbers its sentences need."""
        texts = (self.title, self.evidence, self.cost, self.action, self.effect)
        parts = [part for text in texts for part in Formatter().parse(text.en)]
        return {name.partition(".")[0].partition("[")[0] for _, name, _, _ in parts if name}


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A note, or why a check was left out: one sentence."""

    name: str
    text: Text
