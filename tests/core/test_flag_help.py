"""Help reads as a person would write it, and names every flag with the value it has."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Annotated, Any, Literal

import pytest
import tyro

from vitscope.core import flag_help
from vitscope.core.config import config
from vitscope.core.flags import flag_names, parse_flags


@config
class Inner:
    """A part whose text is long enough to stand on
    2 lines of its source.
    """

    width: int = 8
    """Numbers per token."""
    bias: bool = True
    """Whether there is a bias."""


@config
class Parent:
    kept: int = 1
    """Said by the parent."""
    changed: int = 2
    """Said by the parent, wrongly."""
    bare: int = 3
    """Said once."""


@config
class Command(Parent):
    """What the command does, told at such length that
    `prog` needs a second line for it.

    --spare and the rest are told below, as are --model.width and --model.no-bias and --many and --some.
    """

    changed: int = 4
    """Said by the child."""
    bare: int = 5
    place: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="PLACE")] = None
    """Where it is."""
    source: Annotated[str | None, tyro.conf.arg(aliases=("--from",))] = None
    """Where to begin: a name, or what
    `prog list` shows, or
    2 of them."""
    spare: int | None = None
    """A number or nothing."""
    limit: float | None = 0.5
    """Set, and could be nothing."""
    size: int | tuple[int, int] | None = None
    """One side or two."""
    sides: int | tuple[int, int] = (3, 4)
    """Two sides."""
    many: tuple[int, ...] = ()
    """Any number of numbers."""
    some: tuple[int, ...] = (1, 2)
    """Some numbers."""
    kind: Literal["none", "all"] | None = None
    """Which."""
    pool: Literal["cls", "mean"] = "cls"
    """What the head sees."""
    warmup: str = "10 %"
    """How long."""
    zero: int = 0
    """How many."""
    json: bool = False
    """Print JSON."""
    proof: bool = True
    """Compare."""
    model: Inner = Inner()


class Screen(io.StringIO):
    """What stdout is to help: its encoding, and whether it is a terminal."""

    encoding = "utf-8"
    is_terminal = False

    def isatty(self) -> bool:
        return self.is_terminal


def shown(
    default: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    width: int = 80,
    encoding: str = "utf-8",
    is_terminal: bool = False,
) -> str:
    screen = Screen()
    screen.encoding, screen.is_terminal = encoding, is_terminal
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stdout(screen), pytest.raises(SystemExit) as leaving:
        parse_flags(default, ["--help"], prog="prog")
    assert leaving.value.code == 0
    return screen.getvalue()


def flowing(page: str) -> str:
    """Without frames and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", page).split())


@pytest.mark.parametrize(
    "told",
    [
        "PLACE Where it is. ╰",
        "--spare INT A number or nothing. --limit",
        "--limit FLOAT Set, and could be nothing. (default: 0.5) --size",
        "--size INT|INT INT One side or two. --sides",
        "--sides INT|INT INT Two sides. (default: 3 4) --many",
        "--many INT ... Any number of numbers. --some",
        "--some INT ... Some numbers. (default: 1 2) --kind",
        "--kind {none,all} Which. --pool",
        "--pool {cls,mean} What the head sees. (default: cls) --warmup",
        "--warmup STR How long. (default: '10 %') --zero",
        "--zero INT How many. (default: 0) --json",
        "--json, --no-json Print JSON. --proof",
        "--proof, --no-proof Compare. (default: on) ╰",
        "--model.width INT Numbers per token. (default: 8) --model.bias",
        "--model.bias, --model.no-bias Whether there is a bias. (default: on) ╰",
        "--kept INT Said by the parent. (default: 1) --changed INT Said by the child. (default: 4)",
        "--bare INT Said once. (default: 5)",
    ],
)
def test_a_flag_is_told_with_what_it_takes_and_what_it_has(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told in " ".join(re.sub("[│─]", " ", shown(Command(), monkeypatch)).split())


def test_the_values_are_those_of_the_object_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Command(spare=7, limit=None, json=True, proof=False, place="here", model=Inner(width=12))
    text = flowing(shown(given, monkeypatch))
    for told in (
        *("A number or nothing. (default: 7)", "Set, and could be nothing. --size", "Print JSON. (default: on)"),
        *("Compare. model options", "Where it is. (default: here)", "Numbers per token. (default: 12)"),
    ):
        assert told in text


@pytest.mark.parametrize("width", [50, 80, 130, 250])
def test_every_flag_is_named_and_none_is_not(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown(Command(), monkeypatch, width=width)
    assert {f"--{name}" for name in flag_names(Command())} | {"--from"} <= set(re.findall(r"--[a-z][\w.-]*", page))
    assert "None" not in page
    assert "default: )" not in page


def test_sentences_go_on_over_the_lines_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown(Command(), monkeypatch, width=130)
    for sentence in (
        "Where to begin: a name, or what `prog list` shows, or 2 of them.",
        "A part whose text is long enough to stand on 2 lines of its source.",
    ):
        assert sentence in page
    assert page.splitlines()[1:6] == [
        "",
        "What the command does, told at such length that `prog` needs a second line for it.",
        "",
        "--spare and the rest are told below, as are --model.width and --model.no-bias and --many and --some.",
        "",
    ]


def test_the_field_tells_of_a_section_before_its_class_does(monkeypatch: pytest.MonkeyPatch) -> None:
    @config
    class Outer:
        """Outside."""

        model: Inner = Inner()
        """Told by the field."""

    page = shown(Outer(), monkeypatch)
    assert "Told by the field." in page
    assert "A part whose" not in page


@pytest.mark.parametrize("width", range(44, 100))
def test_it_fits_the_terminal_and_has_no_empty_rows(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every width some text fills its line to the end, with no place for the note that it does not have."""
    page = shown(Command(), monkeypatch, width=width)
    rows = page.splitlines()
    assert max(map(len, rows)) <= width
    assert "and the rest are told below, as are --model.width and --model.no-bias and --many" in " ".join(page.split())
    assert not [row for row in rows if row and not row.strip("│ ")]
    assert flag_help.NO_NOTE not in page


@pytest.mark.parametrize("width", range(44, 100, 5))
def test_a_terminal_shows_the_same_in_colours(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = shown(Command(), monkeypatch, width=width, is_terminal=True)
    plain = shown(Command(), monkeypatch, width=width)
    assert "\x1b[" in coloured
    assert flag_help.COLOURS.sub("", coloured) == plain


def test_where_only_ascii_can_be_shown_frames_are_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in range(44, 100):
        page = shown(Command(), monkeypatch, width=width, encoding="ascii")
        assert page.isascii()
        assert len([row for row in page.splitlines() if row and not row.strip()]) == 3  # one below each box


def test_what_has_no_docstrings_still_has_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    @config
    class Silent:
        spare: int | None = None
        inner: Inner = Inner()

    cls = type("Made", (), {"__annotations__": {"silent": Silent, "count": int}, "silent": Silent(), "count": 3})
    page = shown(config(cls)(), monkeypatch)
    assert page.splitlines()[:2] == ["usage: prog [-h] [OPTIONS]", ""]
    assert page.splitlines()[2].startswith("╭─ options")
    for told in ("--count INT (default: 3)", "--silent.spare INT", "--silent.inner.width INT"):
        assert told in flowing(page)
    assert "None" not in page
    assert "Made(" not in page
    assert "Silent(" not in page


def test_a_section_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    @config
    class Open:
        """Open."""

        inner: Inner | None = None
        """A part or nothing."""
        count: int = 3
        """How many."""

    assert "--count INT How many. (default: 3)" in flowing(shown(Open(), monkeypatch))


def test_where_help_cannot_be_drawn_the_command_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves(*args: Any, **settings: Any) -> None:
        raise SystemExit(2)

    monkeypatch.setattr(tyro, "cli", leaves)
    with pytest.raises(SystemExit) as leaving:
        parse_flags(Command(), ["--help"], prog="prog")
    assert leaving.value.code == 2


def test_help_leaves_parsing_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    shown(Command(), monkeypatch)
    typed = ["--spare", "None", "--size", "3", "4", "--source", "there", "--no-proof", "--model.width", "9", "here"]
    wanted = Command(size=(3, 4), source="there", proof=False, model=Inner(width=9), place="here")
    assert parse_flags(Command(), typed, prog="prog") == wanted


@pytest.mark.parametrize(
    ("hint", "wanted"),
    [
        (str, "STR"),
        (int | None, "INT"),
        (bool | None, "{True,False}"),
        (Literal["a", "b"] | None, "{a,b}"),
        (Literal[1, 2], "{1,2}"),
        (tuple[float, float, float], "FLOAT FLOAT FLOAT"),
        (tuple[str, ...] | None, "STR ..."),
        (int | tuple[int, ...] | None, "INT|INT ..."),
        (int | Literal["auto"], "INT|{auto}"),
    ],
)
def test_what_to_type_after_a_flag(hint: Any, wanted: str) -> None:
    assert flag_help.metavar(hint) == wanted
