"""What is timed: the same work in the type that was asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vitscope.infer.benchmark.work import make_batch, training_step

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("dtype", "computes_in"), [(None, torch.float32), (torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16)]
)
def test_a_training_step_computes_in_the_type_and_keeps_its_weights(
    dtype: torch.dtype | None, computes_in: torch.dtype
) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 5))
    seen = []
    network[1].register_forward_hook(lambda module, given, logits: seen.append(logits.dtype))
    before = network[1].weight.detach().clone()
    training_step(network, *make_batch(2, (4, 4), 3, 5, CPU), "eager", dtype=dtype)()
    assert seen == [computes_in]
    assert network[1].weight.dtype is torch.float32
    assert not torch.equal(network[1].weight, before)
