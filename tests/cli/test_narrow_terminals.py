"""Tables in a terminal of any width: columns may go, numbers are never cut."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from vitscope.cli import console as console_file
from vitscope.cli.console import print_table
from vitscope.cli.main import main
from vitscope.models.accounting.account import Account
from vitscope.models.accounting.parts import fold_parts
from vitscope.models.variants import list_models, model_config

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def shown(width: int, args: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of this width would show."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    assert main(args) == 0
    return COLOURS.sub("", capsys.readouterr().out)


def numbers_of_vit_base() -> set[str]:
    account = Account(model_config("vit_base_patch16_224"))
    counts = {account.parameters, account.macs}
    for part in fold_parts(account.parts):
        counts |= {part.weights, part.biases, part.parameters * part.times, part.macs * part.times}
    return {f"{count:,}" for count in counts - {0}}


def numbers_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w,.])\d[\d,]*(?![\w,.])", text))


@pytest.mark.parametrize("width", [200, 120, 80, 60, 20])
def test_every_number_of_vit_base_is_whole(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shown(width, ["models", "vit_base_patch16_224"], capsys, monkeypatch)
    assert {"1,769,472", "86,567,656"} <= numbers_of_vit_base() <= numbers_in(table)
    assert "…" not in table
    if width >= 80:
        assert max(map(len, table.splitlines())) <= width


@pytest.mark.parametrize("width", [120, 80, 60, 20])
def test_the_list_keeps_names_and_parameters(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shown(width, ["models", "*patch16*"], capsys, monkeypatch)
    lines = [line.split() for line in table.splitlines()]
    for name in list_models("*patch16*"):
        (line,) = [line for line in lines if line and line[0] == name]
        assert f"{Account(model_config(name)).parameters:,}" in line
    assert "…" not in table
    if width >= 60:
        assert max(map(len, table.splitlines())) <= width


@pytest.mark.parametrize(
    "args",
    [
        ["models", "vit_tiny", "--trace"],
        ["models", "swin_tiny_patch4_window7_224", "--trace"],
        ["models", "--advise", "--memory-gb", "24", "--img-size", "224"],
        ["check"],
    ],
    ids=["trace", "swin", "advice", "check"],
)
@pytest.mark.parametrize("width", [80, 60])
def test_nothing_is_cut(
    args: list[str], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shown(width, args, capsys, monkeypatch)
    assert "…" not in table
    if width == 80:
        assert max(map(len, table.splitlines())) <= width


def test_columns_go_in_the_order_given(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def heads(width: int) -> list[str]:
        monkeypatch.setattr(console_file, "WIDTH_OF_A_FILE", width)
        rows = [("one", "1,000", "some words", "[bold]22[/bold]")]
        print_table(
            ("name", "count", "about", "more"), rows, numbers=("count",), wraps={"about": 5}, drop=("about", "more")
        )
        lines = capsys.readouterr().out.splitlines()
        assert "1,000" in lines[1]
        return lines[0].split()

    assert heads(100) == ["name", "count", "about", "more"]
    assert heads(24) == ["name", "count", "about", "more"]  # `about` wraps
    assert heads(23) == ["name", "count", "more"]
    assert heads(16) == ["name", "count"]
    assert heads(3) == ["name", "count"]  # longer than the terminal, not cut


def test_a_real_terminal_of_80_columns() -> None:
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "vitscope", "models", "vit_base_patch16_224"]
    env |= {"OMP_NUM_THREADS": "1", "TERM": "xterm"}
    with subprocess.Popen(command, stdin=writing, stdout=writing, stderr=subprocess.PIPE, env=env) as process:
        os.close(writing)
        said = b""
        while True:
            try:
                more = os.read(reading, 65536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            said += more
    os.close(reading)
    assert process.returncode == 0
    table = COLOURS.sub("", said.decode())
    assert numbers_of_vit_base() <= numbers_in(table)
    assert max(map(len, table.splitlines())) <= 80
