"""The number of threads, for a while."""

from __future__ import annotations

import contextlib

import pytest
import torch

from vitscope.core.threads import using_threads


@pytest.mark.parametrize("count", [None, 2])
def test_threads_are_put_back(count: int | None) -> None:
    before = torch.get_num_threads()
    with contextlib.suppress(KeyError), using_threads(count):
        assert torch.get_num_threads() == (count or before)
        raise KeyError
    assert torch.get_num_threads() == before
