"""The ledger: every step's numbers, in order, once, whenever the host looks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vitscope.core.errors import VitscopeError
from vitscope.train.ledger import Ledger

CPU = torch.device("cpu")
GO, HELD = torch.zeros(()), torch.ones(())


def numbers(value: float) -> dict[str, Tensor]:
    return {"train/loss": torch.tensor(value), "train/skipped": torch.tensor(value < 0)}


def test_rows_come_in_order_and_once() -> None:
    ledger = Ledger(CPU, 4)
    assert ledger.read() == []
    for value in (1.0, -2.0, 3.0):
        ledger.enter(numbers(value), GO)
    assert ledger.read() == [
        {"train/loss": 1.0, "train/skipped": 0.0},
        {"train/loss": -2.0, "train/skipped": 1.0},
        {"train/loss": 3.0, "train/skipped": 0.0},
    ]
    assert ledger.read() == []
    ledger.enter(numbers(4.0), GO)
    assert [row["train/loss"] for row in ledger.read()] == [4.0]


def test_a_held_step_is_never_read() -> None:
    ledger = Ledger(CPU, 2)
    ledger.enter(numbers(9.0), HELD)
    assert ledger.read() == []
    ledger.enter(numbers(1.0), GO)
    ledger.enter(numbers(9.0), HELD)
    ledger.enter(numbers(2.0), GO)
    ledger.enter(numbers(9.0), HELD)  # the table is full, and keeps what it has
    assert [row["train/loss"] for row in ledger.read()] == [1.0, 2.0]


def test_what_is_not_finite_and_what_is_large_comes_through() -> None:
    ledger = Ledger(CPU, 3)
    for value in (math.nan, math.inf, 1e38):
        ledger.enter({"train/loss": torch.tensor([value])}, GO)  # a number may have any shape of one element
    first, *others = (row["train/loss"] for row in ledger.read())
    assert math.isnan(first)
    assert others == [math.inf, pytest.approx(1e38)]


def test_what_a_hook_changes_later_is_not_seen() -> None:
    ledger, loss = Ledger(CPU, 1), torch.tensor(1.0, requires_grad=True)
    ledger.enter({"train/loss": loss}, GO)
    loss.data.fill_(7.0)
    assert ledger.read() == [{"train/loss": 1.0}]


def test_more_steps_than_rows_are_not_kept() -> None:
    """Never outside the table: on a GPU that would be a device assert."""
    ledger = Ledger(CPU, 2)
    for value in (1.0, 2.0, 3.0):
        ledger.enter(numbers(value), GO)
    assert [row["train/loss"] for row in ledger.read()] == [1.0, 2.0]


def test_clearing_forgets_what_was_not_read() -> None:
    ledger = Ledger(CPU, 2)
    ledger.enter(numbers(1.0), GO)
    ledger.clear()
    assert ledger.read() == []
    ledger.enter(numbers(2.0), GO)
    assert [row["train/loss"] for row in ledger.read()] == [2.0]


@pytest.mark.parametrize(
    "others", [{}, {"train/loss": torch.tensor(1.0)}, {**numbers(1.0), "probe": torch.tensor(1.0)}]
)
def test_other_numbers_than_at_the_first_step_are_refused(others: dict[str, Tensor]) -> None:
    ledger = Ledger(CPU, 4)
    ledger.enter(numbers(1.0), GO)
    with pytest.raises(VitscopeError, match=r"train/loss, train/skipped") as caught:
        ledger.enter(others, GO)
    assert "state.scalars" in str(caught.value.fix)


class NoReading(TorchDispatchMode):
    """The host may not look at a tensor."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise AssertionError(f"{func} waits for the device")
        return func(*args, **(kwargs or {}))


def test_entering_does_not_wait_for_the_device() -> None:
    ledger = Ledger(CPU, 2)
    with NoReading():
        ledger.enter(numbers(1.0), GO)
        ledger.enter(numbers(1.0), HELD)
        with pytest.raises(AssertionError, match="waits"):
            ledger.read()
