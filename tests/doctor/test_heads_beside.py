"""Models that give more than logits: a head beside the classifier is neither taken for it nor called cut off."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.broken import small_cnn
from doctor.conftest import CLASSES
from vitscope.doctor.checks import backward, forward
from vitscope.doctor.examination import Report, examine
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


class TwoHeads(nn.Module):
    """The auxiliary head runs last and may learn from features that are detached."""

    def __init__(self, *, is_cut: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(*list(small_cnn())[:-1])
        self.head, self.auxiliary = nn.Linear(512, CLASSES), nn.Linear(512, CLASSES)
        self.is_cut = is_cut

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(images)
        logits = self.head(features)
        return (logits.detach() if self.is_cut else logits), self.auxiliary(features.detach())


def examined(one: Patient) -> Report:
    return examine(one, (*forward.CHECKS, *backward.CHECKS))


def test_a_head_that_runs_last_is_not_taken_for_the_classifier(patient: Make) -> None:
    model = TwoHeads()
    report = examined(patient(model))
    assert (report.verdict, [note.name for note in report.notes]) == ("healthy", ["reached_beside"])
    model.head.requires_grad_(False)
    assert [one.cause for one in examined(patient(model)).findings] == ["head_frozen"]


def test_a_step_of_ones_own_may_teach_what_the_loss_does_not_reach(patient: Make) -> None:
    class Hidden(TwoHeads):
        def forward(self, images: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            logits, self.besides = super().forward(images)
            return logits

    model = Hidden()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels) + F.cross_entropy(model.besides, labels)
        loss.backward()
        optimizer.step()
        return loss

    assert examined(patient(model, optimizer=optimizer, step=step)).verdict == "healthy"
    assert [one.cause for one in examined(patient(Hidden())).findings] == ["no_gradient_for"]


def test_what_is_really_cut_off_is_still_found(patient: Make) -> None:
    assert "no_gradient_for" in [one.cause for one in examined(patient(TwoHeads(is_cut=True))).findings]
