"""What was typed as other tools take it is answered with what this flag takes; a flag without its value, with one."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest

from vitscope.core.config import config
from vitscope.core.errors import UsageError
from vitscope.core.flag_words import as_flags_take_it, wanted
from vitscope.core.flags import flag_names, parse_flags
from vitscope.core.switch import Switch


@config
class Command:
    """What the command does."""

    examples: ClassVar[dict[str, str]] = {"fix": "better.yaml"}

    fix: str | None = None
    """A file to write."""
    place: str | None = None
    """Anywhere."""
    device: str = "auto"
    """Where."""
    kind: Literal["one", "two"] = "one"
    """Which."""
    json: Switch = False
    """Print JSON."""
    bias: bool = True
    """A setting."""


def refusal(*args: str) -> UsageError:
    with pytest.raises(UsageError) as refused:
        parse_flags(Command(), args, prog="prog")
    return refused.value


@pytest.mark.parametrize(
    ("hint", "given", "meant"),
    [
        (tuple[float, ...] | None, ["0.5,0.5,0.5"], "0.5 0.5 0.5"),
        (tuple[float, ...] | None, ["[0.5,0.5,0.5]"], "0.5 0.5 0.5"),
        (tuple[float, ...], ["(0.5,", "0.5,", ".5)"], "0.5 0.5 .5"),
        (tuple[float, float, float], ["0.8,0.1,1e-1"], "0.8 0.1 1e-1"),
        (int | tuple[int, int], ["64,64"], "64 64"),
        (int | tuple[int, int], ["224,224"], "224 224"),  # no number with its thousands apart
        (int | tuple[int, int], ["[64]"], "64"),
        (float | None, ["0,001"], "0.001"),
        (int, ["1,000"], "1000"),
        (int, ["1,5"], None),
        (tuple[float, float, float], ["0.8,0.2"], None),
        (tuple[int, int], ["6.4,6.4"], None),
        (float, ["a,b"], None),
        (float, ["abc"], None),
        (float, [], None),
    ],
)
def test_lists_and_commas_as_the_flag_takes_them(hint: object, given: list[str], meant: str | None) -> None:
    assert as_flags_take_it(hint, given) == meant


@pytest.mark.parametrize(
    ("flag", "fix"),
    [
        ("--fix", "`--fix better.yaml`, for example"),
        ("--device", "`--device auto`, for example"),
        ("--place", "`prog --help` shows all flags"),
    ],
)
def test_a_flag_without_its_value_gets_an_example(flag: str, fix: str) -> None:
    error = refusal(flag)
    assert (error.what, error.fix) == (f"{flag}: expected a value, received nothing", fix)


def test_a_switch_of_a_command_has_no_negative_form_and_a_setting_has() -> None:
    assert list(flag_names(Command())) == ["fix", "place", "device", "kind", "json", "bias", "no-bias"]
    assert parse_flags(Command(), ["--json", "--no-bias"], prog="prog") == Command(json=True, bias=False)
    assert refusal("--no-json").what == "unknown flag '--no-json'"
    assert refusal("--json=1").fix == "'--json' alone switches it on"
    assert refusal("--json", "yes").fix == "'--json' alone switches it on"
    assert refusal("--bias=1").fix == "'--bias' switches it on, '--no-bias' off"


def test_help_shows_no_negative_form_of_a_switch(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_flags(Command(), ["--help"], prog="prog")
    out = capsys.readouterr().out
    assert "--json " in out
    assert "--no-json" not in out
    assert "--no-bias" in out


def test_words_to_choose_from_are_typed_with_blanks() -> None:
    several = tuple[Literal["flip", "crops"], ...]
    assert wanted(several) == "one or more of 'flip', 'crops'"
    assert as_flags_take_it(several, ["flip,crops"], ["flip", "crops"]) == "flip crops"
    assert as_flags_take_it(several, ["flip,corps"], ["flip", "crops"]) is None
    assert as_flags_take_it(Literal["flip", "crops"], ["flip,crops"], ["flip", "crops"]) is None, "it takes one"
