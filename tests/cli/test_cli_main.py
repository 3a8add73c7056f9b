"""The front door: help at once, three short lines for a mistake, the right exit code, no traceback unless asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vitscope import __version__
from vitscope.cli import check
from vitscope.cli import main as main_file
from vitscope.cli.main import VERBS, main
from vitscope.core.errors import DataError

HEAVY = {"torch", "torchvision", "tyro", "rich", "pydantic", "numpy", "matplotlib", "sklearn", "safetensors", "yaml"}


def test_help_imports_nothing_heavy(shell) -> None:
    """What makes help come at once: measured in imports, which do not depend on how busy the machine is."""
    done = shell("--help", options=("-X", "importtime"))
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "vitscope" in imported
    assert imported & HEAVY == set()
    for verb in VERBS:
        assert re.search(rf"^  {verb}  ", done.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_verb(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    out = capsys.readouterr().out
    assert all(f"  {verb}" in out and about in out for verb, about in VERBS.items())


@pytest.mark.parametrize("args", [["--version"], ["-V"]])
def test_version(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    assert capsys.readouterr().out == f"vitscope {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"usage: vitscope {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_file_with_run(verb: str) -> None:
    assert (Path(main_file.__file__).parent / f"{verb}.py").is_file()


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (
            ("modles",),
            ["error: unknown verb 'modles'", "where: vitscope", r"to do: did you mean 'models'\?"],
        ),
        (
            ("models", "vit_smal"),
            [
                "error: unknown model 'vit_smal'",
                r"where: \d+ models are registered",
                "to do: did you mean 'vit_small'.*",
            ],
        ),
        (
            ("check", "--jsno"),
            ["error: unknown flag '--jsno'", "where: vitscope check", "to do: did you mean '--json'.*"],
        ),
    ],
    ids=["verb", "model", "flag"],
)
def test_a_mistyped_word_is_three_short_lines_and_exit_2(shell, args: tuple[str, ...], lines: list[str]) -> None:
    done = shell(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    said = done.stderr.splitlines()
    assert len(said) == 3
    for line, pattern in zip(said, lines, strict=True):
        assert re.fullmatch(pattern, line)
        assert len(line) < 100


def test_debug_shows_the_traceback_and_keeps_the_exit_code(shell) -> None:
    done = shell("models", "vit_smal", "--debug")
    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert "to do: did you mean 'vit_small'" in done.stderr.splitlines()[-1]


def test_a_mistyped_flag_before_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hepl"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "to do: did you mean '--help'?"


def test_a_word_near_nothing_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qqqq"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"to do: verbs: {', '.join(VERBS)}"


@pytest.mark.parametrize("debug", [False, True])
def test_an_error_nobody_foresaw_is_one_line_of_its_own(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(args: list[str]) -> int:
        raise RuntimeError("too large\nframe #0: c10::Error\nframe #1: c10::Error")

    monkeypatch.setattr(check, "run", broken)
    assert main(["check", *(["--debug"] if debug else [])]) == 1
    said = capsys.readouterr().err
    assert ("Traceback" in said) is debug
    lines = ["error: RuntimeError: too large", "where: vitscope check", "to do: add --debug to see the traceback"]
    assert said.splitlines()[-3:] == lines
    assert debug or len(said.splitlines()) == 3


def test_an_error_decides_its_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def no_data(args: list[str]) -> int:
        raise DataError("no pictures", where="here", fix="add some")

    monkeypatch.setattr(check, "run", no_data)
    assert main(["check"]) == 3
    assert capsys.readouterr().err == "error: no pictures\nwhere: here\nto do: add some\n"


def test_ctrl_c_is_130_without_a_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(args: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", interrupted)
    assert main(["check"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("args", [("models", "vit_*"), ("check", "--help")], ids=["table", "help"])
def test_a_reader_that_has_seen_enough_is_no_failure(args: tuple[str, ...]) -> None:
    """`vitscope models | head -1`: here nobody reads at all, so that the first write fails."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vitscope", *args]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=env, timeout=120, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 0
