"""What the README and the docs tell people to type, typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from example_files import write_examples
from vitscope.cli.main import main
from vitscope.models.variants import list_models

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)
SHELLS = ("console", "bash", "sh", "shell")


def blocks(page: Path, *languages: str) -> list[str]:
    found = FENCE.finditer(page.read_text(encoding="utf-8")) if page.is_file() else ()
    return [
        "".join(line.removeprefix(block["indent"]) for line in block["body"].splitlines(keepends=True))
        for block in found
        if block["language"] in languages
    ]


def commands(page: Path) -> list[str]:
    """Lines that begin with `vitscope `, with or without a prompt, up to a pipe or a redirection."""
    lines = [line.strip().removeprefix("$ ") for block in blocks(page, *SHELLS) for line in block.splitlines()]
    typed = [re.split(r"\s[|>]|\s2>", line)[0] for line in lines if line.startswith("vitscope ")]
    return [shlex.join(shlex.split(line, comments=True)) for line in typed]


def trains(command: str) -> bool:
    """Whether it works on a run, and so on what the commands before it made."""
    verb, *words = shlex.split(command)[1:]
    return verb in ("train", "eval", "sparsify") or (
        verb in ("doctor", "models") and any(word.startswith("runs/") for word in words)
    )


def serves(command: str) -> bool:
    """Whether it would go on until it is told to stop: tests/serve/test_serve_docs.py runs these."""
    return shlex.split(command)[1] == "serve"


COMMANDS = sorted(
    {command for page in PAGES for command in commands(page) if not trains(command) and not serves(command)}
)
TRAINING_PAGES = [page for page in PAGES if any(map(trains, commands(page)))]
PYTHON_PAGES = [page for page in PAGES if blocks(page, "python")]


def test_the_readme_shows_commands_and_code() -> None:
    readme = ROOT / "README.md"
    assert commands(readme), "README.md has no `vitscope ...` line in a console or bash block"
    assert blocks(readme, "python"), "README.md has no python block"


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that draw nothing: of a run of an epoch, the pictures take most of the time."""
    monkeypatch.setattr("vitscope.train.finish._draw", lambda *_: None)


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.name)
@pytest.mark.usefixtures("no_plots")
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__readme__"}
    for number, block in enumerate(blocks(page, "python"), start=1):
        exec(compile(block, f"{page.name}, python block {number}", "exec"), names)


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files the pages speak of."""
    folder = tmp_path_factory.mktemp("examples")
    write_examples(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(
    command: str, examples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(examples)
    monkeypatch.delenv("VITSCOPE_DATA", raising=False)
    monkeypatch.setattr("vitscope.cli.bench_tables.LEAST_SECONDS", 0.01)
    verb, *words = shlex.split(command)[1:]
    quickly = {"bench": ["--rounds", "1"], "doctor": ["--quick", "--model.depth", "2"]}.get(verb, [])
    if verb == "bench" and words[0] in list_models() and "--model.depth" not in words:
        quickly += ["--model.depth", "1"]
    code = main([verb, *words, *quickly])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert out


@pytest.mark.parametrize("page", TRAINING_PAGES, ids=lambda page: page.name)
@pytest.mark.usefixtures("no_plots")
def test_training_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page's commands in its order, as a reader would type them; each run short, of a small model."""
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VITSCOPE_DATA", raising=False)
    for command in commands(page):
        if not trains(command):
            continue
        verb, *words = shlex.split(command)[1:]
        if verb == "train" and not {"--list", "--print-config", "--help"} & {*words}:
            words += ["--epochs", "1", *([] if "--model" in words else ["--model.depth", "1"])]
        if verb == "sparsify":  # two epochs: one before the cut, one after it
            words += ["--epochs", "2", "--timing", "none"]
        code = main([verb, *words])
        out, err = capsys.readouterr()
        assert code == 0, f"{command}\n{err}"
        assert out, command


def test_blocks_are_found_as_people_write_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n```console\n$ vitscope models | head -1\n86 models\nvitscope check > out.txt  # all\nmake demo\n```\n"
        "1. item\n   ```python\n   import vitscope\n     \n   ```\n```text\nvitscope no\n```\n"
        "```\nvitscope neither\n```\n```bash title=x\nvitscope a  'b c'  # why\n```\n"
    )
    assert commands(page) == ["vitscope models", "vitscope check", "vitscope a 'b c'"]
    assert [block.strip() for block in blocks(page, "python")] == ["import vitscope"]
