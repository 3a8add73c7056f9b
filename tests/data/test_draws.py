"""Random numbers without a generator: the hash is right, the numbers are random, and nothing depends on company."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from vitscope.data.draws import coins, epoch_key, integers, picture_keys, scrambled, uniform, uniforms

MASK = 2**64 - 1


def splitmix_finaliser(value: int) -> int:
    """In Python's own whole numbers, from the paper's constants."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def test_the_hash_is_splitmix64() -> None:
    values = [0, 1, 2, 12345, 2**31, 2**62, 2**63 - 1, -1, -(2**63), -987654321]
    ours = scrambled(torch.tensor(values)).tolist()
    assert [value & MASK for value in ours] == [splitmix_finaliser(value & MASK) for value in values]


def test_known_stream_of_splitmix64() -> None:
    """Seed 1234567 gives these numbers in the generator's published test vector."""
    states = torch.tensor([(1234567 + 0x9E3779B97F4A7C15 * step) & MASK for step in (1, 2, 3)], dtype=torch.uint64)
    ours = scrambled(states.view(torch.int64)).view(torch.uint64).tolist()
    assert ours == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def keys(count: int = 100_000, epoch: int = 0) -> torch.Tensor:
    return picture_keys(epoch_key(0, epoch, "augment"), torch.arange(count))


def test_uniform_is_uniform() -> None:
    drawn = uniform(keys(), 3).numpy()
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert stats.kstest(drawn**1.05, "uniform").pvalue < 1e-3  # the test can tell


def test_uniform_in_a_range() -> None:
    drawn = uniform(keys(), 3, -2.0, 5.0).numpy()
    assert stats.kstest(drawn, stats.uniform(-2, 7).cdf).pvalue > 1e-3


@pytest.mark.parametrize("limit", [2, 3, 9, 256, 1000])
def test_integers_are_even(limit: int) -> None:
    counts = np.bincount(integers(keys(), 5, limit).numpy(), minlength=limit)
    assert len(counts) == limit
    assert stats.chisquare(counts).pvalue > 1e-3


def test_integers_with_a_limit_for_each() -> None:
    limits = torch.arange(100_000) % 7 + 1
    drawn = integers(keys(), 5, limits)
    assert bool((drawn < limits).all())
    assert bool((drawn[limits == 7].bincount() > 1500).all())


def test_coins() -> None:
    assert coins(keys(), 1, 0.3).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert not coins(keys(), 1, 0.0).any()
    assert coins(keys(), 1, 1.0).all()


def test_streams_epochs_seeds_and_copies_are_independent() -> None:
    index = torch.arange(50_000)
    drawn = [
        uniform(picture_keys(epoch_key(0, 0, "augment"), index), 0),
        uniform(picture_keys(epoch_key(0, 0, "augment"), index), 1),
        uniform(picture_keys(epoch_key(0, 0, "augment"), index), 17),
        uniform(picture_keys(epoch_key(0, 1, "augment"), index), 0),
        uniform(picture_keys(epoch_key(1, 0, "augment"), index), 0),
        uniform(picture_keys(epoch_key(0, 0, "order"), index), 0),
        uniform(picture_keys(epoch_key(0, 0, "augment"), index, 1), 0),
        uniform(picture_keys(epoch_key(0, 0, "augment"), index + 1), 0),
    ]
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
        assert stats.kstest((one + other).numpy() / 2, stats.triang(0.5).cdf).pvalue > 1e-4


def test_many_at_once_are_the_streams_one_by_one() -> None:
    together = uniforms(keys(100), 7, 4)
    for place in range(4):
        assert torch.equal(together[:, place], uniform(keys(100), 7 + place))


def test_a_picture_alone_draws_as_in_company() -> None:
    alone = [uniform(picture_keys(9, torch.tensor([index]), torch.tensor([2])), 4).item() for index in (5, 77, 3)]
    assert alone == uniform(picture_keys(9, torch.tensor([5, 77, 3]), torch.tensor([2, 2, 2])), 4).tolist()


def test_no_two_pictures_share_a_key() -> None:
    index = torch.arange(200_000).repeat(3)
    copies = torch.arange(3).repeat_interleave(200_000)
    assert len(picture_keys(1, index, copies).unique()) == 600_000
