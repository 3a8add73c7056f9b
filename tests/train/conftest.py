"""What the tests of training share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from vitscope.train import finish, setup
from vitscope.train.evaluate import Evaluation


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that draw nothing: pictures take most of the time of a run of a few steps."""
    monkeypatch.setattr(finish, "_draw", lambda *_: None)


@pytest.fixture
def accuracies(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[float]], None]:
    """Let the validation pictures give these accuracies, one an evaluation; losses are 1 - accuracy."""

    def use(values: Sequence[float]) -> None:
        rest = iter(values)

        def scripted(*_: Any, batch: int, **__: Any) -> Evaluation:
            value = next(rest)
            return Evaluation(1 - value, value, None, 24, torch.zeros(4, 4, dtype=torch.int64), [], batch)

        monkeypatch.setattr(setup, "evaluate", scripted)

    return use
