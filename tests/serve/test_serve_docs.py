"""What the pages tell people to type about serving, typed: the servers start, and curl is answered."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_files import write_examples
from serving import LIMIT_S, Served
from test_readme import PAGES, ROOT, SHELLS, blocks, commands, serves

ADDRESS = "http://127.0.0.1:8000"
COMMANDS = sorted({command for page in PAGES for command in commands(page) if serves(command)})
CURLS = [
    line
    for block in blocks(ROOT / "docs" / "serve.md", *SHELLS)
    for line in block.splitlines()
    if line.startswith("curl ")
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    write_examples(folder)
    (folder / "token").write_text("a-token-that-is-long-enough")
    shutil.copytree(folder / "my-model", folder / "runs" / "first" / "model")
    return folder


@pytest.fixture(scope="module")
def server(files: Path) -> Iterator[Served]:
    with Served(files / "my-model") as started:
        yield started


@pytest.mark.parametrize("command", COMMANDS)
def test_the_servers_start(command: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    _, _, model, *flags = shlex.split(command)
    with Served(Path(model), flags) as started:
        assert started.get("/healthz").status == 200


@pytest.mark.parametrize("line", CURLS)
def test_curl_is_answered(line: str, server: Served, files: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    words = shlex.split(line.replace(ADDRESS, f"http://127.0.0.1:{server.port}"))
    done = subprocess.run([*words, "--fail", "--silent"], cwd=files, capture_output=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done
    assert done.stdout or (files / "overlay.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_shows_a_way_for_each_address() -> None:
    assert len(COMMANDS) >= 3
    shown = " ".join(CURLS)
    assert [path for path in ("/predict", "/features", "/explain", "/metrics") if path not in shown] == []
