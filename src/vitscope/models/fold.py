"""Twelve alike blocks are one row, twelve times: folding tables that go through a network module by module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=Named)


def fold_alike(rows: Sequence[Row], looks: Callable[[Row], Any]) -> list[tuple[Row, str, int]]:
    """[(first row, folded name, times)]. Neighbouring blocks whose rows look the same (`looks`, besides their names
    below the block) become one: `blocks.0.attn.qkv` ... `blocks.11.attn.qkv` -> `blocks.0-11.attn.qkv`, 12."""
    groups: list[tuple[str, int | None, list[Row]]] = []
    for row in rows:
        stem, index, _ = split_index(row.name)
        if groups and index is not None and groups[-1][:2] == (stem, index):
            groups[-1][2].append(row)
        else:
            groups.append((stem, index, [row]))

    def look(group: tuple[str, int | None, list[Row]]) -> Any:
        return group[0], [(split_index(row.name)[2], looks(row)) for row in group[2]]

    folded: list[tuple[Row, str, int]] = []
    start = 0
    while start < len(groups):
        stem, first, members = groups[start]
        end = start + 1
        while first is not None and end < len(groups) and look(groups[end]) == look(groups[start]):
            end += 1
        times, last = end - start, groups[end - 1][1]
        for row in members:
            name = f"{stem}.{first}-{last}{split_index(row.name)[2]}" if times > 1 else row.name
            folded.append((row, name, times))
        start = end
    return folded


def split_index(name: str) -> tuple[str, int | None, str]:
    """The innermost number of a module's name is its block.

    >>> split_index("layers.0.blocks.1.attn.qkv")
    ('layers.0.blocks', 1, '.attn.qkv')
    """
    words = name.split(".")
    for i in range(len(words) - 1, 0, -1):
        if words[i].isdigit():
            return ".".join(words[:i]), int(words[i]), "".join(f".{word}" for word in words[i + 1 :])
    return name, None, ""
