"""Settings that do measurable harm, and rules of thumb that only make notes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from doctor.conftest import CLASSES, loader_of, pictures, small_vit
from doctor.seen import causes, notes
from vitscope import create_model
from vitscope.doctor.causes import cause_for
from vitscope.doctor.checks.settings import CHECKS
from vitscope.doctor.checks.settings.decay import weight_decay
from vitscope.doctor.checks.settings.drops import drops
from vitscope.doctor.checks.settings.head_dim import head_dim
from vitscope.doctor.checks.settings.lone_batch import lone_batch
from vitscope.doctor.checks.settings.patches import patches
from vitscope.doctor.checks.settings.position_table import position_table
from vitscope.doctor.checks.settings.updates import updates
from vitscope.doctor.examination import examine
from vitscope.doctor.module_patient import module_patient
from vitscope.doctor.patient import Patient
from vitscope.doctor.setting_numbers import head_changes, head_numbers, head_sure
from vitscope.models.layers.position import sincos_2d

Make = Callable[..., Patient]


def small_cnn() -> torch.nn.Module:
    return create_model("mnist_cnn", img_size=16, in_chans=3, num_classes=CLASSES)


@pytest.mark.parametrize("name", ["vit", "cnn", "resnet"])
def test_healthy_patients(patient: Make, name: str) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4)
    )
    if name == "resnet":
        plain(torch.zeros(2, 3, 16, 16))
    one = patient({"vit": small_vit, "cnn": small_cnn, "resnet": lambda: plain}[name]())
    for check in CHECKS:
        assert causes(check.ask(one)) == [], check.name


@pytest.mark.parametrize(("epochs", "is_told"), [(3, True), (12, True), (13, False), (None, False)])
def test_few_updates_are_a_note(patient: Make, epochs: int | None, is_told: bool) -> None:
    seen = updates(patient(epochs=epochs))  # of 8 steps each
    assert causes(seen) == []
    assert notes(seen) == (["few_updates"] if is_told else [])
    assert seen.left_out == (None if epochs else "length_unknown")
    assert notes(updates(patient(epochs=3, pretrained=True))) == []


@pytest.mark.parametrize(("heads", "confidence"), [(8, 0.88), (4, 0.4)])
def test_narrow_heads(patient: Make, heads: int, confidence: float) -> None:
    seen = head_dim(patient(small_vit(num_heads=heads)))
    assert causes(seen) == ["head_dim_too_small"]
    assert seen.findings[0].confidence == confidence
    assert seen.findings[0].numbers["dim"] == 64 // heads
    assert seen.findings[0].numbers["better"] == 2


def test_narrow_heads_are_widened_by_what_sets_them() -> None:
    """Their own width, where it is set; fewer heads; or, where there is one already, a wider model."""
    ways = {(64, 16, None): ("num_heads", 2), (64, 16, 4): ("head_dim", 32), (8, 1, None): ("embed_dim", 32)}
    for given, (setting, value) in ways.items():
        numbers = head_numbers(*given)
        (change,) = head_changes(numbers)
        assert (change.key, change.value) == (f"model.{setting}", value)
        cause = cause_for("head_dim_too_small", numbers)
        assert cause.places <= numbers.keys()
        assert f"{setting}={value}" in cause.action.said("en", numbers)
    assert head_sure(head_numbers(64, 16, 32)["dim"]) is None


def test_heads_of_16_alone_make_nobody_unwell(patient: Make) -> None:
    check = [one for one in CHECKS if one.name == "head_dim"]
    assert examine(patient(small_vit(num_heads=4)), check).verdict == "cannot tell"
    assert examine(patient(small_vit(num_heads=8)), check).verdict == "unwell"


def test_narrow_heads_that_have_learnt_are_a_note(patient: Make) -> None:
    seen = head_dim(patient(small_vit(num_heads=4), pretrained=True))
    assert causes(seen) == []
    assert notes(seen) == ["head_dim_small"]


def test_coarse_patches(patient: Make) -> None:
    seen = patches(patient(small_vit(patch_size=8)))
    assert causes(seen) == ["patch_too_coarse"]
    assert seen.findings[0].numbers["tokens"] == 4
    assert seen.findings[0].numbers["better"] == 2


@pytest.mark.parametrize("size", [1, 2, 32])
def test_batch_norm_wants_a_batch(size: int) -> None:
    one = module_patient(small_cnn(), loader_of(*pictures(64), batch_size=size))
    seen = lone_batch(one)
    assert causes(seen) == (["batch_of_one_with_batchnorm"] if size == 1 else [])
    assert notes(seen) == (["small_batch_with_batchnorm"] if size == 2 else [])


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_is_measured(patient: Make, rate: float) -> None:
    seen = drops(patient(small_vit(drop_rate=rate)))
    assert abs(seen.measured["dropped"] - rate) < 0.1
    assert causes(seen) == (["dropout_too_high"] if rate == 0.9 else [])


@pytest.mark.parametrize("decay", [0.05, 0.3, 10.0])
def test_decay_by_what_it_takes(patient: Make, decay: float) -> None:
    model = small_vit()
    seen = weight_decay(patient(model, optimizer=torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=decay)))
    assert causes(seen) == (["weight_decay_too_high"] if decay == 10 else [])
    assert not any("ratio" in found.numbers for found in seen.findings)  # it is not added to the gradient
    if decay == 10:
        assert seen.findings[0].numbers["taken"] == pytest.approx(1 - 0.99**100)


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_decay_in_the_gradient(patient: Make, name: str) -> None:
    for decay, expected in ((5e-4, []), (10.0, ["weight_decay_too_high"])):
        model = small_vit()
        optimizer = getattr(torch.optim, name)(model.parameters(), 1e-4, weight_decay=decay)
        assert causes(weight_decay(patient(model, optimizer=optimizer))) == expected


def frozen(table: torch.Tensor) -> torch.nn.Module:
    model = small_vit(img_size=32, pool="mean", class_token=False)
    model.pos_embed = torch.nn.Parameter(table[None], requires_grad=False)  # pyright: ignore
    return model


@pytest.mark.parametrize("kind", ["its own", "random", "another grid", "too short, filled up"])
def test_a_frozen_position_table(patient: Make, kind: str) -> None:
    tables = {
        "its own": sincos_2d((8, 8), 64),
        "random": torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) * 0.02,
        "another grid": sincos_2d((14, 14), 64)[:64],
        "too short, filled up": torch.cat([sincos_2d((4, 4), 64), torch.zeros(48, 64)]),
    }
    images, labels = pictures(64, size=32)
    model = frozen(tables[kind])
    one = patient(model, images, labels, val_loader=None)
    expected = ["position_table_wrong_size"] if kind in ("another grid", "too short, filled up") else []
    assert causes(position_table(one)) == expected


def test_a_learnt_table_may_be_anything(patient: Make) -> None:
    model = frozen(torch.zeros(64, 64)).requires_grad_(True)
    images, labels = pictures(64, size=32)
    assert causes(position_table(patient(model, images, labels, val_loader=None))) == []
