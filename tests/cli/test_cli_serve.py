"""`vitscope serve`: what it says when it cannot begin, and where it listens when it can."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest

from serving import Served, picture
from vitscope.cli.main import main

THREE_LINES = r"error: .+\nwhere: .+\nto do: .+\n"


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = main(["serve", *args])
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(THREE_LINES, err), err
    return code, err


def test_the_extra_is_named_where_it_is_missing(
    small_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, err = refused(capsys, str(small_model))
    assert code == 1
    assert "serving needs uvicorn" in err
    assert "pip install 'vitscope[serve]'" in err


def test_a_model_must_be_named_and_be_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert refused(capsys)[0] == 2
    code, err = refused(capsys, str(tmp_path / "nothing"), "--port", "0")
    assert (code, "does not exist" in err) == (2, True)


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = refused(capsys, str(tmp_path / "nothing"), "--port", str(port))
    assert code == 1
    assert f"port {port}" in err
    assert "--port 0" in err


def test_a_token_file_must_be_there(small_model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, err = refused(capsys, str(small_model), "--token-file", str(tmp_path / "token"))
    assert (code, "cannot be read" in err) == (2, True)


@pytest.mark.parametrize(("flag", "value"), [("--max-batch", "0"), ("--port", "70000"), ("--deadline-s", "0")])
def test_a_setting_that_cannot_be_is_named(capsys: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    assert main(["serve", "model", flag, value]) == 2
    assert flag.strip("-").replace("-", "_") in capsys.readouterr().err.replace("-", "_")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_it_says_where_it_listens_and_how_to_ask(small_model: Path, host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6 address of its own")
    with Served(small_model, ["--host", host]) as server:
        first, *lines = server.said.splitlines()
        assert first.startswith("small-model answers at http://")
        assert any("curl -F file=@picture.jpg" in line and f":{server.port}/predict" in line for line in lines)
        assert server.post("/predict", picture(0)).status == 200


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
