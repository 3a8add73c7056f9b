"""What a criterion may look at: the trained network, pictures, masks, a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from vitscope.core.errors import UsageError, expected
from vitscope.sparse.layout import groups_of, network_of
from vitscope.sparse.pieces import Group
from vitscope.train.losses import cross_entropy

LEAST_BATCHES = 10
"""Fewer say more of their pictures than of the network."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A criterion asks for what it needs, and says so where it is not there."""

    model: nn.Module
    """With the trained weights."""
    batches: Iterable[tuple[Tensor, Tensor]] | None = None
    """(images, labels) as in training, on any device."""
    masks: Mapping[str, Tensor] | None = None
    """Unstructured ones, by name."""
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    """(logits, labels) -> 0-d."""
    seed: int = 0
    least_batches: int = LEAST_BATCHES

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return groups_of(self.model)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in network_of(self.model).state_dict().items()}

    def each_batch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All batches, on the model's device; refuses, at the end, if they were too few."""
        if self.batches is None:
            raise _missing("batches of pictures")
        device, count = next(self.model.parameters()).device, 0
        for images, labels in self.batches:
            count += 1
            yield images.to(device), labels.to(device)
        if count < self.least_batches:
            raise UsageError(
                expected("batches to score units by", f"at least {self.least_batches}", count),
                fix="give more, or smaller, batches",
            )

    def by_kind(self, score: Callable[[Group], Tensor]) -> dict[str, Sequence[Tensor]]:
        """Every group's scores, in the order of the blocks."""
        kinds = dict.fromkeys(group.kind for group in self.groups)
        return {kind: [score(group) for group in self.groups if group.kind == kind] for kind in kinds}


def require_masks(evidence: Evidence) -> Mapping[str, Tensor]:
    if not evidence.masks:
        raise _missing("an unstructured mask")
    return evidence.masks


def _missing(what: str) -> UsageError:
    return UsageError(
        f"this criterion needs {what}", where="vitscope.sparse.criteria", fix="give it, or choose 'magnitude'"
    )
