"""Steps at a rate that is held: how far they moved the weights."""

from __future__ import annotations

import pytest
import torch

from vitscope.doctor.experiments.held import length_of


def test_the_length_of_several_tensors_is_that_of_all_their_numbers() -> None:
    some = [torch.randn(3, 4), torch.randn(5, dtype=torch.float16), torch.randn(2, 2, 2)]
    assert length_of(some).item() == pytest.approx(torch.cat([one.double().flatten() for one in some]).norm().item())


def test_they_may_lie_on_several_devices() -> None:
    """`meta` is the second device every machine has."""
    assert length_of([torch.ones(3, device="meta"), torch.ones(3)]).device.type == "meta"
