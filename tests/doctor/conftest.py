"""Patients for the doctor's tests: small, quick, and healthy until a test breaks one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from vitscope import create_model
from vitscope.doctor.module_patient import module_patient
from vitscope.doctor.patient import Patient
from vitscope.models.model import VisionModel

CLASSES = 4


def pictures(count: int = 256, *, seed: int = 0, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised pictures of four classes that a small model can tell apart: where the bright quarter is."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, size, size, generator=generator)
    labels = torch.arange(count) % CLASSES
    half = size // 2
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = half * (label // 2), half * (label % 2)
        image[:, top : top + half, left : left + half] += 1.5
    return images, labels


def small_vit(**changes: object) -> VisionModel:
    torch.manual_seed(0)
    settings = {"img_size": 16, "patch_size": 4, "embed_dim": 64, "depth": 2, "num_heads": 2, "num_classes": CLASSES}
    return create_model("vit_tiny", **{**settings, **changes})  # pyright: ignore[reportArgumentType]


def loader_of(
    images: torch.Tensor, labels: torch.Tensor, *, batch_size: int = 32
) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(
        TensorDataset(images, labels), batch_size, shuffle=True, generator=torch.Generator().manual_seed(0)
    )


@pytest.fixture
def patient() -> Callable[..., Patient]:
    """`patient(model=..., images=..., labels=..., lr=...)`: a healthy one but for what is given."""

    def make(
        model: torch.nn.Module | None = None,
        images: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        lr: float = 1e-3,
        **given: object,
    ) -> Patient:
        plain_images, plain_labels = pictures()
        images = plain_images if images is None else images
        labels = plain_labels if labels is None else labels
        model = small_vit() if model is None else model
        optimizer = given.pop("optimizer", None) or torch.optim.AdamW(model.parameters(), lr)
        validation = loader_of(*pictures(128, seed=1))
        settings = {"optimizer": optimizer, "val_loader": validation, **given}
        return module_patient(model, loader_of(images, labels), **settings)  # pyright: ignore[reportArgumentType]

    return make
