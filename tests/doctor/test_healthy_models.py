"""Healthy networks from several houses: forward and backward checks come through and find nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from doctor.conftest import CLASSES
from doctor.healthy import HEALTHY, SIZE, PlainViT, healthy, small_vit
from vitscope import create_model
from vitscope.doctor.checks import backward, forward
from vitscope.doctor.examination import examine
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]
CHECKS = (*forward.CHECKS, *backward.CHECKS)


def assert_nothing_found(one: Patient) -> None:
    report = examine(one, CHECKS)
    assert [finding.cause for finding in report.findings] == []
    assert [asked.failed for asked in report.asked if asked.failed is not None] == []
    assert report.not_asked == []


@pytest.mark.parametrize("name", list(HEALTHY))
def test_a_healthy_model_gets_no_finding(patient: Make, name: str) -> None:
    assert_nothing_found(patient(healthy(name)))


@pytest.mark.parametrize(
    "changes",
    [
        {"pool": "attention", "class_token": False},
        {"qk_norm": True},
        {"position": "rope"},
        {"position": "relative"},
        {"position": "sincos"},
        {"layer_scale": 1e-5},
        {"drop_rate": 0.5, "depth": 6},
        {"init": "mimetic"},
    ],
    ids=str,
)
def test_our_own_options_are_healthy(patient: Make, changes: dict[str, object]) -> None:
    assert_nothing_found(patient(small_vit(**changes)))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, weight_decay=5e-4),
        lambda params: torch.optim.Adam(params, 1e-3, weight_decay=1e-4),
        lambda params: torch.optim.AdamW(params, 5e-3, weight_decay=0.3),
        lambda params: torch.optim.AdamW(params, 1e-5, weight_decay=0.01),
    ],
    ids=["sgd", "adam", "adamw, strong", "adamw, fine-tuning"],
)
@pytest.mark.parametrize("name", ["vit_tiny", "plain cnn"])
def test_usual_optimisers_are_healthy(
    patient: Make, name: str, optimizer: Callable[..., torch.optim.Optimizer]
) -> None:
    model = healthy(name)
    assert_nothing_found(patient(model, optimizer=optimizer(model.parameters()), clip_norm=1.0))


def test_a_position_table_that_begins_at_zero_learns(patient: Make) -> None:
    model = PlainViT()
    assert model.pos_embed is not None
    model.pos_embed.data.zero_()
    assert_nothing_found(patient(model))


def test_branches_that_begin_at_zero_have_no_gradient_to_hold_decay_against(patient: Make) -> None:
    torch.manual_seed(0)
    model = create_model("resnet20", num_classes=CLASSES, img_size=SIZE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    assert_nothing_found(patient(model, optimizer=optimizer))
