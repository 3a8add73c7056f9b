"""Twelve alike blocks are one row; what differs stays apart; nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitscope.models.fold import fold_alike, split_index


@dataclass(frozen=True)
class Line:
    name: str
    size: int = 1


def folded(*lines: Line) -> list[tuple[str, int]]:
    return [(name, times) for _, name, times in fold_alike(lines, lambda line: line.size)]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("blocks.3.attn.qkv", ("blocks", 3, ".attn.qkv")),
        ("blocks.11", ("blocks", 11, "")),
        ("layers.0.blocks.1.attn.qkv", ("layers.0.blocks", 1, ".attn.qkv")),
        ("layer1.0.conv1", ("layer1", 0, ".conv1")),
        ("norm1", ("norm1", None, "")),
        ("head", ("head", None, "")),
        ("lstm.weight_ih_l0", ("lstm.weight_ih_l0", None, "")),
    ],
)
def test_the_innermost_number_is_the_block(name: str, parts: tuple[str, int | None, str]) -> None:
    assert split_index(name) == parts


def test_alike_blocks_become_one() -> None:
    lines = [Line(f"blocks.{i}.{leaf}", size) for i in range(12) for leaf, size in (("a", 1), ("b", 2))]
    assert folded(Line("stem"), *lines, Line("head")) == [
        ("stem", 1),
        ("blocks.0-11.a", 12),
        ("blocks.0-11.b", 12),
        ("head", 1),
    ]


def test_the_first_row_stands_for_the_others() -> None:
    rows = [Line("blocks.0.a"), Line("blocks.1.a")]
    assert fold_alike(rows, lambda line: line.size) == [(rows[0], "blocks.0-1.a", 2)]


def test_a_block_that_differs_stands_alone() -> None:
    assert folded(Line("b.0.a"), Line("b.1.a"), Line("b.2.a", 9), Line("b.3.a")) == [
        ("b.0-1.a", 2),
        ("b.2.a", 1),
        ("b.3.a", 1),
    ]


def test_a_block_with_one_part_more_stands_alone() -> None:
    assert folded(Line("b.0.a"), Line("b.0.shortcut"), Line("b.1.a"), Line("b.2.a")) == [
        ("b.0.a", 1),
        ("b.0.shortcut", 1),
        ("b.1-2.a", 2),
    ]


def test_blocks_of_two_stages_are_not_mixed() -> None:
    assert folded(Line("s.0.b.0.a"), Line("s.0.b.1.a"), Line("s.1.b.0.a"), Line("s.1.b.1.a")) == [
        ("s.0.b.0-1.a", 2),
        ("s.1.b.0-1.a", 2),
    ]


def test_rows_without_a_number_are_never_folded() -> None:
    assert folded(Line("norm"), Line("norm")) == [("norm", 1), ("norm", 1)]


def test_nothing_gives_nothing() -> None:
    assert folded() == []


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=12))
def test_no_row_is_lost_and_no_number_changes(blocks: list[tuple[int, bool]]) -> None:
    lines = [Line("stem", 5)]
    for i, (size, long) in enumerate(blocks):
        lines += [Line(f"b.{i}.x", size), *([Line(f"b.{i}.y", 7)] if long else [])]
    rows = fold_alike(lines, lambda line: line.size)
    assert sum(times for _, _, times in rows) == len(lines)
    assert sum(line.size * times for line, _, times in rows) == sum(line.size for line in lines)
    assert len({name for _, name, _ in rows}) == len(rows)
