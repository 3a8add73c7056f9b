"""M2: no compiler works: not for `torch.compile`, and not for the attention kernels of a GPU, which ask for one in
every launch. Augmentation and steps go on plainly, and it is said.

The first is played by a program of its own (this file, run as a script): what torch has compiled it keeps for the whole
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults.faulty_runs import differing, final, no_pictures, rows_of, settings
from vitscope.models import layers
from vitscope.models.layers import short_attention
from vitscope.train.config import TrainConfig
from vitscope.train.fit import fit


def config(launch: str) -> TrainConfig:
    """The device loader varies its pictures, so that there is something to compile in it."""
    augment = {"crop": "padded", "padding": 1}
    return settings(augment=augment, precision={"launch": launch}, loop={"epochs": 1})


def main() -> None:
    with no_pictures():
        run = fit(config("compiled"), out=sys.argv[1], quiet=True)
    print(json.dumps({"state": run.state}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiler")


@pytest.fixture(scope="module")
def played(place: Path) -> dict[str, Any]:
    broken = place / "broken"
    broken.write_text("#!/bin/sh\necho 'no compiler today' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = subprocess.run(
        [sys.executable, __file__, str(place / "run")],
        env={
            **os.environ,
            "CXX": str(broken),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(place / "cache"),  # nothing that was compiled before
            "PYTHONPATH": str(Path(__file__).parent.parent),
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_training_goes_on_plainly_and_says_why(played: dict[str, Any], place: Path) -> None:
    assert played["state"] == "finished"
    log = (place / "run" / "train.log").read_text()
    assert log.count("augmentation cannot be compiled here (") == 1
    assert "): it goes on plainly" in log
    assert log.count("launch 'compiled' does not work here (") == 1
    assert "going on with 'eager'" in log
    assert [row["step"] for row in rows_of(place / "run")] == [1, 2, 3, 4]


def test_it_ends_as_if_compiling_had_never_been_asked_for(played: dict[str, Any], place: Path) -> None:
    """No batch is lost or drawn twice by the attempts."""
    with no_pictures():
        fit(config("eager"), out=place / "eager", quiet=True)
    plain, tried = rows_of(place / "eager"), rows_of(place / "run")
    assert [row["train/loss"] for row in tried] == pytest.approx([row["train/loss"] for row in plain], rel=1e-5)
    first, second = final(place / "eager"), final(place / "run")
    for name in differing(first, second):  # another process may have other kernels
        assert (first[name].double() - second[name].double()).abs().max() < 1e-5, name


def test_attention_goes_on_without_kernels_of_ours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with Triton, but without gcc."""

    def kernel(*given: Any) -> Any:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable")

    with no_pictures():
        fit(config("eager"), out=place / "usual", quiet=True)
        monkeypatch.setattr(layers, "short_kernels", SimpleNamespace(forward=kernel, backward=kernel), raising=False)
        monkeypatch.setattr(short_attention, "can_take", lambda qkv, heads: True)
        monkeypatch.setattr(short_attention.PROOF, "why_not", {})
        run = fit(config("eager"), out=place / "no kernels", quiet=True)
    assert run.state == "finished"
    log = (place / "no kernels" / "train.log").read_text()
    assert log.count("our kernels do not run here (RuntimeError: Failed to find C compiler.") == 1
    assert differing(final(place / "usual"), final(place / "no kernels")) == []


if __name__ == "__main__":
    main()
