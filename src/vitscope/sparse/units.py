"""Which units of a network are kept. A removed unit stays removed, and is always counted from the original network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import torch
from torch import Tensor, nn

from vitscope.core.errors import ConfigError, InputError, UsageError, expected
from vitscope.sparse.layout import groups_of
from vitscope.sparse.pieces import KINDS, Group

Flags = tuple[tuple[bool, ...], ...]
"""Of each block (of convolutions, each group of channels) one yes or no a unit."""


@dataclass(frozen=True)
class Units:
    """Of every unit whether it is kept, by kind and block: `Units({"heads": ..., "neurons": ...})`."""

    flags: Mapping[str, Flags]

    def __post_init__(self) -> None:
        if not self.flags or not set(self.flags) <= set(KINDS):
            raise InputError(expected("units", f"some of {', '.join(KINDS)}", ", ".join(self.flags) or "none"))
        object.__setattr__(self, "flags", dict(self.flags))
        blocks = {kind: len(flags) for kind, flags in self.flags.items()}
        if len(set(blocks.values())) > 1:
            raise InputError(expected("units", f"{' and '.join(blocks)} of as many blocks", tuple(blocks.values())))

    def __hash__(self) -> int:
        return hash(frozenset(self.flags.items()))

    # --- asking -------------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of units this network has."""
        return tuple(self.flags)

    def of(self, kind: str) -> Flags:
        if kind not in self.flags:
            have = " and ".join(self.kinds)
            raise UsageError(
                expected("kind of units", f"{have}, which this network has", kind), fix=f"ask for {have} (--units)"
            )
        return self.flags[kind]

    def kept(self, group: Group) -> Tensor:
        """(count,) bool, of the units of one group."""
        flags = self.of(group.kind)[group.block]
        if len(flags) != group.count:
            raise InputError(
                expected(f"units of block {group.block}", f"{group.count} {group.kind}", len(flags)),
                fix="these units are of another network: count them anew with units_of(model)",
            )
        return torch.tensor(flags, dtype=torch.bool)

    def counts(self, kind: str) -> tuple[int, ...]:
        """Kept units of each block."""
        return tuple(sum(flags) for flags in self.of(kind))

    def totals(self, kind: str) -> tuple[int, ...]:
        """All units of each block, the removed ones too."""
        return tuple(len(flags) for flags in self.of(kind))

    def removed(self, kind: str) -> int:
        return sum(self.totals(kind)) - sum(self.counts(kind))

    def share_removed(self, kind: str) -> float:
        """Of the units there were; 0 of none."""
        return self.removed(kind) / max(1, sum(self.totals(kind)))

    def is_within(self, other: Units) -> bool:
        """Whether every unit kept here is kept there too."""
        return self == self & other

    def require_within(self, before: Units) -> None:
        """Refuse units that bring a removed one back."""
        back = [
            f"{kind[:-1]} {unit} of block {block}"
            for kind in self.kinds
            for block, pairs in enumerate(zip(self.of(kind), before.of(kind), strict=True))
            for unit, (now, then) in enumerate(zip(*pairs, strict=True))
            if now and not then
        ]
        if back:
            raise InputError(
                f"a removed unit stays removed, but {back[0]} is back{f' and {len(back) - 1} more' * (len(back) > 1)}",
                fix="choose among the units that were kept before",
            )

    # --- combining ----------------------------------------------------------------------------------------------

    def __and__(self, other: Units) -> Units:
        """Kept in both."""
        return self._with(other, lambda here, there: here and there)

    def __or__(self, other: Units) -> Units:
        """Kept in one of them."""
        return self._with(other, lambda here, there: here or there)

    def without(self, other: Units) -> Units:
        """Kept here and not there: `before.without(after)` are the units that go."""
        return self._with(other, lambda here, there: here and not there)

    def narrowed(self, inner: Units) -> Units:
        """`inner` (in the numbering of this network) in the numbering of the network cut to these units."""
        inner.require_within(self)
        return self._each(lambda kind, block: _narrowed(self.of(kind)[block], inner.of(kind)[block]))

    def refined(self, inner: Units) -> Units:
        """The way back: `inner` counts only the units kept here; the answer counts them all."""
        return self._each(lambda kind, block: _refined(self.of(kind)[block], inner.of(kind)[block], kind, block))

    def with_kept(self, kind: str, flags: Iterable[Iterable[bool]]) -> Units:
        """The same with other flags for one kind."""
        new = tuple(tuple(bool(flag) for flag in block) for block in flags)
        self.of(kind)
        return Units({**self.flags, kind: new})

    # --- plain data ---------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, list[str]]:
        """Plain data: of each block a text of 1 (kept) and 0."""
        return {kind: ["".join("01"[flag] for flag in flags) for flags in self.of(kind)] for kind in self.kinds}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        if not all(_is_flags(text) for texts in data.values() for text in texts):
            raise InputError(expected("units", "of each kind a list of texts of 0 and 1", dict(data)))
        return cls({kind: tuple(tuple(mark == "1" for mark in text) for text in data[kind]) for kind in data})

    def _with(self, other: Units, combine: Callable[[bool, bool], bool]) -> Units:
        mine, theirs = ({kind: one.totals(kind) for kind in one.kinds} for one in (self, other))
        if mine != theirs:
            raise InputError(expected("units", mine, theirs), fix="compare units of one network")
        return self._each(
            lambda kind, block: tuple(map(combine, self.of(kind)[block], other.of(kind)[block])),
        )

    def _each(self, made: Callable[[str, int], tuple[bool, ...]]) -> Units:
        return Units({k: tuple(made(k, block) for block in range(len(flags))) for k, flags in self.flags.items()})


def units_of(model: nn.Module) -> Units:
    """All units of a network, all kept."""
    groups = groups_of(model)
    kinds = dict.fromkeys(group.kind for group in groups)
    return Units({kind: tuple((True,) * group.count for group in groups if group.kind == kind) for kind in kinds})


def removed_after(count: int, rate: float, rounds: int) -> int:
    """How many of the original `count` units are gone after so many rounds: floor(count * (1 - (1 - rate)^rounds)).

    In fractions of the number as it is written: 0.3 is 3/10 here, so that no rounding takes a unit less.

    >>> [removed_after(3, 0.2, k) for k in range(6)]
    [0, 0, 1, 1, 1, 2]
    """
    share = as_written(rate, "rate")
    if rounds < 0:
        raise ConfigError(expected("rounds", "0 or more", rounds))
    return int(count * (1 - (1 - share) ** rounds))


def as_written(value: float | Fraction, name: str) -> Fraction:
    """A share from 0 to 1 as the fraction that a person wrote as a decimal number; what is a fraction stays it."""
    if not 0 <= value <= 1:
        raise ConfigError(expected(name, "a share from 0 to 1", value))
    return value if isinstance(value, Fraction) else Fraction(str(float(value)))


def _narrowed(outer: tuple[bool, ...], inner: tuple[bool, ...]) -> tuple[bool, ...]:
    return tuple(kept for there, kept in zip(outer, inner, strict=True) if there)


def _refined(outer: tuple[bool, ...], inner: tuple[bool, ...], kind: str, block: int) -> tuple[bool, ...]:
    if len(inner) != sum(outer):
        raise InputError(expected(f"units of block {block}", f"{sum(outer)} {kind}", len(inner)))
    rest = iter(inner)
    return tuple(there and next(rest) for there in outer)


def _is_flags(text: object) -> bool:
    return isinstance(text, str) and set(text) <= {"0", "1"}
