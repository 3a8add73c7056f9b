"""`--help` of every verb: each flag there is, told in whole sentences, without a word about what is not set."""

from __future__ import annotations

import re
from typing import Any

import pytest

from vitscope.cli.main import VERBS, main
from vitscope.core import flag_help
from vitscope.core.flags import flag_names

PAGES = [[verb] for verb in VERBS] + [
    ["train", "digits_vit"],
    ["train", "digits_vit", "--model", "swin_tiny_patch4_window7_224"],
    ["models", "vit_small"],
    ["models", "mae_vit_base_patch16"],
]


def shown(args: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*args, "--help"]) == 0
    return capsys.readouterr().out


def flowing(page: str) -> str:
    """Without frames and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]|-{3,}", " ", page).split())


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("args", PAGES, ids=" ".join)
def test_help_names_every_flag_and_says_nothing_of_none(
    args: list[str], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    draw = flag_help.leave_with_help

    def listening(default: Any, *, prog: str) -> None:
        asked.append(default)
        draw(default, prog=prog)

    monkeypatch.setattr(flag_help, "leave_with_help", listening)
    page = shown(args, capsys, monkeypatch, width)
    (default,) = asked
    assert {f"--{name}" for name in flag_names(default)} <= set(re.findall(r"--[a-z][\w.-]*", page))
    assert "None" not in page
    assert "default: False" not in page
    assert max(map(len, page.splitlines())) <= width


@pytest.mark.parametrize(
    ("args", "sentences"),
    [
        (
            ["predict"],
            [
                "`flip` also mirrored (2 looks), `crops` also at the four corners (5), both 10.",
                "It takes as many times as long",
                "leave `flip` out where left and right matter",
            ],
        ),
        (
            ["convert"],
            [
                "SOURCE Where the weights are. OUT Where to write. options",
                "--to {vitscope,timm,huggingface} Whose format to write. (default: vitscope)",
                "--model STR Which model a bare file is for: a name (`vitscope models` lists them), whose classes the "
                "file counts, or a model folder. --img-size INT|INT INT Another picture size",
                "where they differ nothing is written. (default: on) --overwrite Replace an older",
            ],
        ),
        (
            ["train"],
            [
                "[RECIPE_OR_YAML] A recipe",
                "--from STR, --init-from STR Start training from this model, with its weights and",
            ],
        ),
        (["eval"], ["--batch-size INT Pictures at once. (default: 256)"]),
        (
            ["train", "digits_vit"],
            [
                "optim options How weights move. --optim.name {adamw,adam,sgd,muon}",
                "and 1e-4 for `adam` and `sgd`, where it is added to the gradient. --optim.betas FLOAT FLOAT How long "
                "Adam and AdamW remember gradients, and their squares. (default: 0.9 0.999)",
                "'0 steps' for none. (default: '10 %')",
                "--loop.threads INT CPU threads for arithmetic;",
                "and beside other work far quicker. (default: 1)",
            ],
        ),
    ],
    ids=lambda given: " ".join(given) if len(given) < 3 else "",
)
def test_help_reads_as_it_was_written(
    args: list[str], sentences: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = flowing(shown(args, capsys, monkeypatch))
    for sentence in sentences:
        assert sentence in page


def test_a_line_ends_where_the_terminal_does_not_where_the_source_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shown(["convert"], capsys, monkeypatch, width=200)
    assert "(`vitscope models` lists them), whose classes the file counts, or a model folder. " in page
    assert "where they are installed; where they differ nothing is written. (default: on)" in page


def test_what_a_verb_does_is_wrapped_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = (shown(["convert"], capsys, monkeypatch, width) for width in (60, 100))
    narrow, wide = (page.partition("positional arguments")[0].rstrip(" ╭─") for page in pages)
    assert narrow.split() == wide.split()
    assert 50 < max(map(len, narrow.splitlines())) <= 60
    assert 90 < max(map(len, wide.splitlines())) <= 100
