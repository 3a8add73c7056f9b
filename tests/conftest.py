"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or fills the user's cache; programs that tests start inherit it."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("VITSCOPE_CACHE")
    os.environ["VITSCOPE_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["VITSCOPE_CACHE"]
    else:
        os.environ["VITSCOPE_CACHE"] = before
