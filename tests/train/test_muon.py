"""Muon against torch's, against a singular value decomposition, and with steps that must change nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from vitscope.core.errors import ConfigError
from vitscope.train.optim.muon import Muon, orthogonalise

SHAPES = [(24, 16), (16, 24), (24, 16), (16, 16), (24, 16)]


def matrices(seed: int = 0) -> list[nn.Parameter]:
    draws = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=draws) * 0.3) for shape in SHAPES]


def give_gradients(parameters: list[nn.Parameter], seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=draws)


def values(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


@pytest.mark.parametrize("shape", [(3, 12, 40), (2, 40, 12), (1, 16, 16)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, int, int]) -> None:
    given = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    result = orthogonalise(given)
    u, _, vh = torch.linalg.svd(given, full_matrices=False)
    inner = u.mT @ result @ vh.mT  # diagonal, if left and right directions are the given ones
    diagonal = inner.diagonal(dim1=1, dim2=2)
    assert torch.allclose(inner, torch.diag_embed(diagonal), atol=1e-4)
    assert diagonal.min() > 0.6
    assert diagonal.max() < 1.3


def test_size_and_zeros_do_not_matter() -> None:
    given = torch.randn(1, 8, 20, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(orthogonalise(given), orthogonalise(given * 1e-3), atol=1e-5)
    assert torch.equal(orthogonalise(torch.zeros(2, 8, 20)), torch.zeros(2, 8, 20))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_agrees_with_torch(weight_decay: float) -> None:
    """torch rounds to bf16 in between, here it is float32: single steps agree to a few per cent of their size."""
    ours, theirs, lr = matrices(), matrices(), 0.02
    mine = Muon(ours, torch.tensor(lr), momentum=0.95, weight_decay=weight_decay)
    other = torch.optim.Muon(
        theirs, lr=lr, momentum=0.95, weight_decay=weight_decay, nesterov=True, adjust_lr_fn="match_rms_adamw"
    )
    start = values(ours)
    for step in range(4):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        mine.step()
        other.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(mine.state[a]["momentum_buffer"], other.state[b]["momentum_buffer"], atol=1e-6)
    for a, b, begin in zip(ours, theirs, start, strict=True):
        assert (a - b).norm() < 0.03 * (b - begin).norm()


def test_a_step_by_hand() -> None:
    """Momentum, look ahead, orthogonalise exactly (by SVD), decay, move: within Newton-Schulz's own error."""
    parameter = nn.Parameter(torch.randn(6, 30, generator=torch.Generator().manual_seed(3)))
    weights = parameter.detach().clone()
    optimizer = Muon([parameter], lr=0.1, momentum=0.9, weight_decay=0.5)
    momentum = torch.zeros_like(weights)
    for seed in range(3):
        before = parameter.detach().clone()
        give_gradients([parameter], seed)
        gradient = parameter.grad
        assert gradient is not None
        momentum = 0.9 * momentum + 0.1 * gradient
        u, _, vh = torch.linalg.svd(0.1 * gradient + 0.9 * momentum, full_matrices=False)
        optimizer.step()
        moved = before * (1 - 0.1 * 0.5) - parameter.detach()
        exact = 0.1 * 0.2 * math.sqrt(30) * (u @ vh)
        assert (moved - exact).norm() < 0.35 * exact.norm()
        cosine = (moved * exact).sum() / moved.norm() / exact.norm()
        assert cosine > 0.97
    assert torch.allclose(optimizer.state[parameter]["momentum_buffer"], momentum, atol=1e-6)


def test_matrices_do_not_mix() -> None:
    """Stacked or alone, each matrix goes the same way."""
    together, alone = matrices(), matrices()
    stacked, single = Muon(together, 0.02), [Muon([parameter], 0.02) for parameter in alone]
    for step in range(3):
        give_gradients(together, step)
        give_gradients(alone, step)
        stacked.step()
        for optimizer in single:
            optimizer.step()
    for a, b in zip(together, alone, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1.0])
def test_a_skipped_step_changes_no_bit(bad: float) -> None:
    parameters = matrices()
    optimizer = Muon(parameters, torch.tensor(0.02), weight_decay=0.1)
    optimizer.found_inf = torch.zeros(())
    give_gradients(parameters, 0)
    optimizer.step()
    weights = values(parameters)
    momenta = [optimizer.state[parameter]["momentum_buffer"].clone() for parameter in parameters]

    give_gradients(parameters, 1)
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad[0, 0] = bad
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    for parameter, weight, momentum in zip(parameters, weights, momenta, strict=True):
        assert torch.equal(parameter, weight)
        assert torch.equal(optimizer.state[parameter]["momentum_buffer"], momentum)

    give_gradients(parameters, 1)
    optimizer.found_inf = torch.zeros(())
    optimizer.step()
    assert not any(torch.equal(parameter, weight) for parameter, weight in zip(parameters, weights, strict=True))


def test_state_is_there_from_the_start_and_stays_in_its_memory() -> None:
    parameters = matrices()
    optimizer = Muon(parameters, torch.tensor(0.02))
    places = [optimizer.state[parameter]["momentum_buffer"].data_ptr() for parameter in parameters]
    weights = [parameter.data_ptr() for parameter in parameters]
    give_gradients(parameters, 0)
    optimizer.step()
    assert places == [optimizer.state[parameter]["momentum_buffer"].data_ptr() for parameter in parameters]
    assert weights == [parameter.data_ptr() for parameter in parameters]


def test_a_matrix_without_gradient_stays() -> None:
    parameters = matrices()
    before = values(parameters)
    optimizer = Muon(parameters, 0.02, weight_decay=0.1)
    give_gradients(parameters, 0)
    parameters[2].grad = None
    optimizer.step()
    same = [torch.equal(parameter, value) for parameter, value in zip(parameters, before, strict=True)]
    assert same == [False, False, True, False, False]


def test_only_matrices() -> None:
    with pytest.raises(ConfigError, match=r"a matrix, received shape \(4,\)"):
        Muon([nn.Parameter(torch.zeros(4))], 0.02)
