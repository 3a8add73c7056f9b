"""How another format's tensors correspond to ours: one match a tensor, read to load and written to save."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vitscope.models.config import ModelConfig
from vitscope.weights.files import Stored


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _alone(tensor: Tensor) -> tuple[Tensor, ...]:
    return (tensor,)


@dataclass(frozen=True)
class Match:
    """One of our tensors, and theirs that say the same."""

    ours: str
    theirs: tuple[str, ...]
    """What `read` needs of them, in its order."""
    read: Callable[..., Tensor] = _as_it_is
    """Their tensors -> ours."""
    write: Callable[[Tensor], tuple[Tensor, ...]] = _alone
    """Our tensor -> theirs, in the order of `written`."""
    how: str = ""
    """What happens to the numbers, in words; empty where only the name differs."""
    only_read: tuple[str, ...] = ()
    """Those of theirs that another match writes."""

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(name for name in self.theirs if name not in self.only_read)


def named(ours: str, theirs: str) -> Match:
    """The same tensor under another name, or the same."""
    return Match(ours, (theirs,))


def joined(ours: str, *theirs: str, how: str) -> Match:
    """Ours is theirs, one below the other."""
    count = len(theirs)
    return Match(ours, theirs, lambda *parts: torch.cat(parts), lambda whole: whole.chunk(count), how)


def turned(
    ours: str, theirs: str, read: Callable[[Tensor], Tensor], write: Callable[[Tensor], Tensor], how: str
) -> Match:
    """The same numbers in another order or shape."""
    return Match(ours, (theirs,), read, lambda tensor: (write(tensor),), how)


@dataclass(frozen=True)
class Unheld:
    """Tensors of theirs that have no place in our model."""

    pattern: str
    """Wildcard over their names."""
    why: str
    in_head: bool = False
    """Whether a classifier goes with them, which a person must be told."""


class Format(ABC):
    """Somebody's names for the tensors of a model."""

    name: ClassVar[str]
    library: ClassVar[str | None] = None
    """What runs models of this format: 'timm', 'transformers', or nothing that can be asked."""
    normalised_by: ClassVar[str | None] = None
    """Whose code `normalisation` is known of; None: whose format it is."""
    unheld: ClassVar[tuple[Unheld, ...]] = ()

    @abstractmethod
    def recognises(self, stored: Stored) -> bool:
        """Whether these names are of this format."""

    @abstractmethod
    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        """Our name -> its match, for weights that lie as these do. None: this format has no such tensor."""

    def most_blocks(self, stored: Stored) -> int:
        """How many blocks these tensors could fill at most: a config may name any number, and each takes its time."""
        return len(stored)

    def left_out(self, stored: Stored, config: ModelConfig) -> tuple[Unheld, ...]:
        """What of these weights has no place in a model of `config`, and may go."""
        return self.unheld

    def hint(self, stored: Stored, config: ModelConfig) -> str:
        """What to do where weights do not fit `config`, if more is known than that they do not; else empty."""
        return ""

    def normalisation(self, stored: Stored) -> Literal["half", "imagenet"] | None:
        """The mean and std that the code has which writes such files; None where any could be meant."""
        return None

    def remarks(self, stored: Stored, config: ModelConfig) -> tuple[str, ...]:
        """What a person should know of such weights in a model of `config`, where no config lies beside them."""
        return ()
