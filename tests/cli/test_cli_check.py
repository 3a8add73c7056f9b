"""`vitscope check`: what this machine has, and how to get what it lacks."""

from __future__ import annotations

import copy
import json
import platform
from importlib.metadata import version
from typing import Any

import pytest

from vitscope import __version__
from vitscope.cli import check
from vitscope.cli.main import main
from vitscope.core.environment import describe_environment


def test_check_as_json_in_a_process_of_its_own(shell) -> None:
    done = shell("check", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["vitscope"] == __version__
    assert told["python"]["version"] == platform.python_version()
    assert told["torch"]["version"] == version("torch")
    assert told["packages"]["torch"]["fits"] is True
    assert {"tune", "serve", "export", "quant", "dev"} <= set(told["extras"])
    assert told["memory"]["total_bytes"] > 0
    assert told["disk"]["free_bytes"] > 0


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """This machine's own description, to be changed before it is shown."""
    described = copy.deepcopy(describe_environment())
    monkeypatch.setattr(check, "describe_environment", lambda: described)
    return described


def test_the_table_says_what_there_is(environment: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    for words in (
        f"vitscope    {__version__}",
        platform.python_version(),
        version("torch"),
        "core packages  all there",
    ):
        assert words in out


def test_a_missing_extra_says_how_to_install_it(
    environment: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    environment["extras"] = {
        "tune": {
            "packages": {"optuna": {"version": None, "needs": ">=4.0", "fits": False}},
            "install": "pip install 'vitscope[tune]'",
        }
    }
    assert main(["check"]) == 0
    assert "tune   optuna missing  pip install 'vitscope[tune]'" in capsys.readouterr().out


def test_an_old_core_package_is_exit_1(environment: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    environment["packages"]["rich"] = {"version": "1.0", "needs": ">=13.7", "fits": False}
    assert main(["check"]) == 1
    out = capsys.readouterr().out
    assert "core packages  rich 1.0 (needs >=13.7)" in out
    assert "pip install --upgrade vitscope" in out


def test_a_broken_torch_is_exit_1_and_still_a_table(
    environment: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    environment["torch"] = {"version": "2.11", "torchvision": None, "error": "OSError: [no] libcudart", "warnings": []}
    assert main(["check"]) == 1
    assert "cannot be imported: OSError: [no] libcudart" in capsys.readouterr().out


def test_gpus_and_unreadable_sizes(environment: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    device = {"name": "NVIDIA H200", "free_bytes": None, "total_bytes": 150_000_000_000, "bf16": True}
    environment["torch"]["devices"] = [device]
    environment["torch"]["warnings"] = ["the [old] driver"]
    environment["memory"] = {"total_bytes": None, "available_bytes": None}
    environment["disk"] = {"path": None, "free_bytes": None, "error": "gone"}
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H200, unknown free of 150.0 GB, bf16 yes" in out
    assert "unknown free of unknown" in out
    assert "warning: the [old] driver" in out


def test_check_takes_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "all"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: vitscope check: expected no more, received 'all'"
