"""Seeds repeat, derived seeds are stable everywhere, and a borrowed generator comes back unchanged."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitscope.core.errors import ConfigError
from vitscope.core.seed import derive_seed, preserved_rng, seed_everything


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


@pytest.fixture(autouse=True)
def _leave_no_trace():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1])
def test_a_seed_repeats_every_generator(seed: int) -> None:
    seed_everything(seed)
    first = draws()
    other = draws()
    seed_everything(seed)
    assert draws() == first
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_the_seed_is_torchs_and_numpys_own() -> None:
    seed_everything(7)
    ours = draws()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert draws() == ours


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "1", True, None])
def test_a_bad_seed_is_refused(seed: object) -> None:
    with pytest.raises(ConfigError, match="seed: expected an integer from 0"):
        seed_everything(seed)  # type: ignore[arg-type]


def test_derived_seeds_are_pinned() -> None:
    """They decide every augmentation: if one changes, no old run can be repeated."""
    assert derive_seed() == 8238016292129134938
    assert derive_seed(0, "augment", 3) == 5912309392772341688
    assert derive_seed(-1, 2**80, "中文") == 5853189787270340208


def test_derived_seeds_do_not_depend_on_the_process() -> None:
    code = "from vitscope.core.seed import derive_seed; print(derive_seed(3, 'epoch', 12))"
    for salt in ("0", "1", "77"):
        made = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(made.stdout) == derive_seed(3, "epoch", 12)


parts = st.lists(st.integers() | st.text(max_size=5), max_size=4).map(tuple)


@given(parts, parts)
def test_different_parts_give_different_seeds_of_63_bits(a: tuple[int | str, ...], b: tuple[int | str, ...]) -> None:
    assert 0 <= derive_seed(*a) < 2**63
    assert (derive_seed(*a) == derive_seed(*b)) == (a == b)


def test_kind_order_and_boundaries_count() -> None:
    assert len({derive_seed(*p) for p in [(1,), ("1",), (1, 2), (2, 1), (12,), ("ab", "c"), ("a", "bc")]}) == 7
    seeds = {derive_seed(0, epoch, index) for epoch in range(20) for index in range(500)}
    assert len(seeds) == 10_000


def test_derived_seeds_fill_all_their_bits() -> None:
    seeds = [derive_seed(0, index) for index in range(2000)]
    for bit in range(63):
        assert 850 < sum(seed >> bit & 1 for seed in seeds) < 1150


@pytest.mark.parametrize("part", [1.5, None, b"x", (1,)])
def test_other_parts_are_refused(part: object) -> None:
    with pytest.raises(ConfigError, match="a part of a seed: expected an integer or text"):
        derive_seed(0, part)  # type: ignore[arg-type]


def test_generators_come_back_after_draws_and_seeds() -> None:
    seed_everything(5)
    draws()
    with preserved_rng():
        expected = draws()
    with preserved_rng():
        seed_everything(99)
        [draws() for _ in range(3)]
    assert draws() == expected


def test_generators_come_back_after_an_error() -> None:
    seed_everything(5)
    with preserved_rng():
        expected = draws()

    def fail() -> None:
        with preserved_rng():
            seed_everything(1)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert draws() == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpus_generator_comes_back() -> None:
    seed_everything(5)
    torch.rand((), device="cuda")
    with preserved_rng():
        expected = torch.rand(3, device="cuda")
        torch.cuda.manual_seed_all(1)
    assert torch.equal(torch.rand(3, device="cuda"), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_first_used_inside_starts_from_its_seed_afterwards() -> None:
    code = """if True:
        import sys, torch
        from vitscope.core.seed import preserved_rng, seed_everything
        seed_everything(5)
        if sys.argv[1] == "inside":
            with preserved_rng():
                torch.rand(3, device="cuda")
        print(torch.rand(3, device="cuda").tolist(), torch.rand(3).tolist())
    """
    plain, inside = (
        subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True, check=True).stdout
        for word in ("plain", "inside")
    )
    assert plain == inside
