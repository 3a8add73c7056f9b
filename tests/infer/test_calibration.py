"""Confidence against accuracy: the calibration error by hand, the temperature against a search, the swap test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from vitscope.core.config import updated
from vitscope.core.errors import InputError
from vitscope.data.config import DataConfig, PreprocessConfig
from vitscope.data.dataset import open_dataset
from vitscope.infer.calibration import best_temperature, calibrate, confidence_bins, expected_calibration_error
from vitscope.infer.labelled import labelled_logits, swap_test
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig


def test_the_error_by_hand() -> None:
    """Four answers of 0.9, three of them right; two of 0.6, both right: (4 * 0.15 + 2 * 0.4) / 6."""
    rows = torch.tensor([[0.9, 0.1]] * 4 + [[0.4, 0.6]] * 2)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    assert expected_calibration_error(rows, labels) == pytest.approx((4 * 0.15 + 2 * 0.4) / 6, abs=1e-6)
    assert [(one.count, round(one.accuracy, 3)) for one in confidence_bins(rows, labels)] == [(2, 1.0), (4, 0.75)]
    assert expected_calibration_error(torch.eye(3), torch.arange(3)) == 0.0


@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_the_temperature_that_was_taken_away_is_found(true: float) -> None:
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(20_000, 5, generator=generator) * 2
    labels = torch.multinomial(honest.softmax(-1), 1, generator=generator)[:, 0]
    found = best_temperature(honest * true, labels)
    assert found == pytest.approx(true, rel=0.05)
    grid = torch.linspace(0.2, 4.0, 381)
    losses = torch.stack([F.cross_entropy(honest * true / one, labels) for one in grid])
    assert F.cross_entropy(honest * true / found, labels) <= losses.min() + 1e-6
    half = len(labels) // 2
    told = calibrate((honest[:half] * true, labels[:half]), (honest[half:] * true, labels[half:]))
    assert told.ece_after < 0.02
    assert told.loss_after <= told.loss_before + 1e-4
    assert told.count == len(labels) - half


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(InputError, match="N from 1"):
        best_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(InputError, match="finite"):
        best_temperature(torch.tensor([[1.0, float("nan")]]), torch.tensor([0]))


class Shades(nn.Module):
    """Two classes, dark and bright: tells them apart by the mean of what it is shown, at 0."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean = images.mean((1, 2, 3))
        return torch.stack([-mean, mean], dim=-1)


@pytest.fixture
def shades(tmp_path: Path) -> Predictor:
    """It was taught with pixels from -1 to 1, which it carries as its preprocessing."""
    config = ViTConfig(img_size=8, patch_size=8, embed_dim=8, depth=1, num_heads=1, num_classes=2)
    model = build_model(config)
    model.forward = Shades().forward  # type: ignore[method-assign]
    model.preprocessing, model.labels = PreprocessConfig(img_size=(8, 8)), ["bright", "dark"]
    rng = np.random.default_rng(0)
    for name, middle in (("dark", 100), ("bright", 156)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(40):
            pixels = (middle + rng.integers(-20, 21, (8, 8, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"photos/{name}/{number}.png")
    return Predictor(model, device="cpu", batch_size=16)


def test_labelled_logits_are_in_the_datas_order(shades: Predictor, tmp_path: Path) -> None:
    """The model calls its first class bright, and is wrong about every picture, until it is told what it means."""
    data = open_dataset(DataConfig(name=str(tmp_path / "photos"), cache=False))
    assert data.class_names == ("bright", "dark")
    logits, labels = labelled_logits(shades, data, "train")
    assert logits.shape == (len(labels), 2)
    assert (logits.argmax(-1) != labels).all()
    shades.model.labels = ["dark", "bright"]
    logits, labels = labelled_logits(shades, data, "train")
    assert (logits.argmax(-1) == labels).all()
    few, same = labelled_logits(shades, data, "train", most=20)
    chosen = torch.arange(20) * len(labels) // 20  # from all over: they come class by class
    assert torch.allclose(few, logits[chosen])
    assert torch.equal(same, labels[chosen])


def test_the_swap_test_tells_a_wrong_normalisation(shades: Predictor, tmp_path: Path) -> None:
    data = open_dataset(DataConfig(name=str(tmp_path / "photos"), cache=False))
    shades.model.labels = ["dark", "bright"]
    own, *others = swap_test(shades, data, "train")
    assert (own.name, own.accuracy) == ("its own", 1.0)
    assert {swap.name for swap in others} == {"imagenet", "mnist", "none"}
    assert not any(swap.is_better for swap in others)
    shades.preprocessing = updated(shades.preprocessing, mean=(0.0,) * 3, std=(1.0,) * 3)  # now all is bright
    own, *others = swap_test(shades, data, "train")
    assert own.accuracy == pytest.approx(0.5, abs=0.05)
    better = {swap.name: swap for swap in others if swap.is_better}
    assert better["half"].accuracy == 1.0
    assert better["half"].worse == 0
    assert better["half"].better == round(len(labelled_logits(shades, data, "train")[1]) * (1 - own.accuracy))
