"""A named table with wildcards and did-you-mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from vitscope.core.errors import UsageError
from vitscope.core.suggest import CERTAIN, did_you_mean, nearest, plainly

Entry = TypeVar("Entry")
WILDCARDS = "*?["


class Registry(Generic[Entry]):
    """Maps names to entries of one kind (`Registry("model")`). A name is registered once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, entry: Entry) -> Entry:
        if name in self._entries:
            raise UsageError(
                f"{self.kind} '{name}' is registered twice",
                fix=f"choose another name, or remove one of the two rows named '{name}'",
            )
        self._entries[name] = entry
        return entry

    def names(self, pattern: str | None = None) -> list[str]:
        """All names, or those that match a shell-style wildcard, in natural order (patch8 before patch16)."""
        chosen = (name for name in self._entries if pattern is None or fnmatchcase(name, pattern))
        return sorted(chosen, key=_natural)

    def search(self, word: str) -> list[str]:
        """Names that match a wildcard or contain a word, in natural order. Refuses a word that finds nothing, and one
        that is nearly a name, with a did-you-mean."""
        if any(mark in word for mark in WILDCARDS):
            found = self.names(word)
            if not found:
                raise UsageError(
                    f"no {self.kind} matches '{word}'",
                    where=self._where(),
                    fix=f"`vitscope {self.kind}s` lists them",
                )
            return found
        found = [name for name in self.names() if word and plainly(word) in plainly(name)]
        if word not in self and (not found or nearest(word, found, likeness=CERTAIN)):
            self[word]  # refuses
        return found

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise UsageError(
                f"unknown {self.kind} '{name}'",
                where=self._where(),
                fix=did_you_mean(name, self._entries) or f"`vitscope {self.kind}s` lists them",
            ) from None

    def _where(self) -> str:
        return f"{len(self._entries)} {self.kind}s are registered"

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._entries)


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Digits compare as numbers, everything else as text."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part]
