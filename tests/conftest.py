"""What all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from serving import Served

# Hardly anything that is imported or collected becomes garbage; looking for it among a million objects takes a quarter
# of that time.
gc.disable()


def pytest_collection_finish() -> None:
    """What stands now stays to the end: no search for garbage walks through it again. Else each takes half a second,
    and what measures memory asks for many."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Else Triton complains at the end of what was never taken apart."""
    gc.unfreeze()


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


@pytest.fixture(scope="session", autouse=True)
def one_process_compiles() -> Iterator[None]:
    """torch.compile starts a pool of processes, each of which imports torch: seconds, for what is compiled here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
        yield


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that servers are started with."""
    from serving import write_model

    return write_model(tmp_path_factory.mktemp("serving") / "small-model")


@pytest.fixture(scope="session")
def server(small_model: Path) -> Iterator[Served]:
    """One server for all tests that leave it as it was."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    from serving import Served

    with Served(small_model, ["--max-batch", "16"]) as started:
        yield started
