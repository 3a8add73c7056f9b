"""A loss that wants what the model gives as it is, and takes the logits out of that itself: `loss(output, labels)`."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from vitscope.core.seed import preserved_rng
from vitscope.doctor.as_it_came import module_as_it_came
from vitscope.doctor.patient import Loss, as_logits


class LossOfOutput(nn.Module):
    """Given logits, it packs them as the model does; whatever else the model gives is not there."""

    def __init__(self, loss: Loss, output: Any) -> None:
        super().__init__()
        self.loss, self.kind = loss, _kind(output)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        packed = {"named": SimpleNamespace(logits=logits), "keyed": {"logits": logits}, "placed": (logits,)}
        return self.loss(packed[self.kind], labels)


def for_logits(loss: Loss, output: Any, labels: Tensor) -> Loss:
    """The loss itself where it takes logits, or cannot do with them alone: then the checks that ask it say so."""
    if isinstance(output, Tensor):
        return loss
    packing = LossOfOutput(loss, output)
    return packing if not _takes(loss, output, labels) and _takes(packing, output, labels) else loss


def _takes(loss: Loss, output: Any, labels: Tensor) -> bool:
    kept = module_as_it_came(loss) if isinstance(loss, nn.Module) else contextlib.nullcontext()
    with kept, preserved_rng():
        try:
            loss(as_logits(output), labels)
        except Exception:  # the owner's code may raise anything
            return False
    return True


def _kind(output: Any) -> str:
    if hasattr(output, "logits"):
        return "named"
    return "keyed" if isinstance(output, dict) else "placed"
