"""A loss that takes the logits out of the model's answer itself is examined as one that is given them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitscope
from doctor.conftest import loader_of, pictures, small_vit
from vitscope.doctor.loss_of_output import LossOfOutput, for_logits
from vitscope.doctor.module_patient import module_patient

PACKED: dict[str, Callable[[Tensor], Any]] = {
    "named": lambda logits: SimpleNamespace(logits=logits, loss=None),
    "keyed": lambda logits: {"features": logits.exp(), "logits": logits},
    "placed": lambda logits: (logits, logits.exp()),
}
LOSSES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "named": lambda given, labels: F.cross_entropy(given.logits, labels),
    "keyed": lambda given, labels: F.cross_entropy(given["logits"], labels),
    "placed": lambda given, labels: F.cross_entropy(given[0], labels),
}


class Packing(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner, self.kind = small_vit(), kind

    def forward(self, images: Tensor) -> Any:
        return PACKED[self.kind](self.inner(images))


@pytest.mark.parametrize("kind", list(PACKED))
@pytest.mark.parametrize("takes_logits", [True, False])
def test_whatever_the_answer_is_packed_in(kind: str, takes_logits: bool) -> None:
    model = Packing(kind)
    loss = F.cross_entropy if takes_logits else LOSSES[kind]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    report = vitscope.check_up(model, loader_of(*pictures()), loss=loss, optimizer=optimizer, quick=True)
    assert [one.check.name for one in report.asked if one.failed is not None] == []
    assert report.verdict == "healthy"


def test_a_loss_with_weights_keeps_them_and_one_that_wants_more_stays_as_it_is() -> None:
    class Learning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, given: Any, labels: Tensor) -> Tensor:
            return self.scale * F.cross_entropy(given.logits, labels)

    loss = Learning()
    kept = module_patient(Packing("named"), loader_of(*pictures()), loss=loss).loss
    assert isinstance(kept, LossOfOutput)
    assert list(kept.parameters()) == [loss.scale]

    def both(given: Any, labels: Tensor) -> Tensor:
        return F.cross_entropy(given[0], labels) + given[1].mean()

    assert module_patient(Packing("placed"), loader_of(*pictures()), loss=both).loss is both


@pytest.mark.parametrize("kind", ["logits", "named"])
def test_a_loss_that_counts_or_draws_comes_back_as_it_was(kind: str) -> None:
    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, given: Any, labels: Tensor) -> Tensor:
            self.calls += 1
            self.calls = self.calls + torch.rand(())
            return F.cross_entropy(given.logits if kind == "named" else given, labels)

    loss, model = Counting(), Packing("named")
    buffer, drawn = loss.calls, torch.get_rng_state()
    module_patient(model, loader_of(*pictures()), loss=loss)
    assert loss.calls is buffer
    assert float(loss.calls) == 0
    assert torch.equal(torch.get_rng_state(), drawn)
    for_logits(loss, model(pictures(2)[0]), torch.zeros(2).long())
    assert torch.equal(torch.get_rng_state(), drawn)
