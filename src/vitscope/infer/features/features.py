"""Features of some pictures, with everything that says what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitscope.core.errors import UsageError, expected


@dataclass(frozen=True)
class BadPicture:
    """A picture that has no features, and why."""

    place: int
    """Its number among those given."""
    path: str | None
    reason: str


@dataclass(frozen=True, repr=False)
class Features:
    """A row for each picture that could be read, in the order given."""

    values: Mapping[str, Tensor]
    """Name -> (N, ...), on the CPU. A name says what it is: `layer11_cls_after_norm`."""
    paths: Sequence[str | None]
    """Of each row; None for what came from no file."""
    places: Sequence[int]
    """Of each row, its number among the pictures given."""
    labels: Tensor | None = None
    """(N,) int64, where classes are known."""
    classes: tuple[str, ...] = ()
    parts: Sequence[str] | None = None
    bad: Sequence[BadPicture] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """The model, the features, the preprocessing: what a file of them says too."""

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {tuple(content.shape)}" for name, content in self.values.items())
        return f"Features({shown}; {len(self.bad)} bad)"

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.values:
            raise UsageError(expected("feature", f"one of {', '.join(self.values)}", repr(name)))
        return self.values[name]

    @property
    def only(self) -> Tensor:
        """The one feature there is, where there is one."""
        if len(self.values) != 1:
            names = ", ".join(self.values)
            raise UsageError(expected("features", "a single one", names), fix="take one by its name: features[NAME]")
        return next(iter(self.values.values()))
