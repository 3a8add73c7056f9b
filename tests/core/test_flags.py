"""Every setting is a flag, and whatever is typed, the answer is a config or a sentence about what was typed."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, ClassVar, Literal

import pytest
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st

from vitscope.core.config import config, field_names, require, to_dict
from vitscope.core.errors import EXIT_USAGE, ConfigError, UsageError
from vitscope.core.flags import flag_names, parse_flags
from vitscope.models.config import MAEConfig, ViTConfig


@config
class Inner:
    """A part."""

    synonyms: ClassVar[dict[str, str]] = {"hidden_size": "embed_dim"}

    embed_dim: int = 8
    """Numbers per token."""
    pool: Literal["cls", "mean"] = "cls"
    """What the head sees."""
    qkv_bias: bool = True
    """Whether there is a bias."""

    def __post_init__(self) -> None:
        require(self.embed_dim % 4 == 0, "embed_dim", "a multiple of 4", self.embed_dim, fix="nearest: 8")


@config
class Command:
    """What the command does."""

    name: Annotated[str | None, tyro.conf.Positional] = None
    """The thing."""
    batch: int = 1
    """Images in a batch."""
    rate: float = 0.5
    """How fast."""
    size: int | tuple[int, int] = 32
    """One side or two."""
    many: tuple[int, ...] = ()
    """Any number of numbers."""
    spare: int | None = None
    """A number or nothing."""
    limit: int = 89_478_485
    """A large number."""
    either: int | tuple[int, ...] = 3
    """One or many."""
    json: bool = False
    """Print JSON."""
    model: Inner = Inner()
    """The model."""


def parse(*args: str) -> Command:
    return parse_flags(Command(), args, prog="prog")


def refusal(*args: str) -> UsageError:
    with pytest.raises(UsageError) as refused:
        parse(*args)
    assert refused.value.exit_code == EXIT_USAGE == 2
    assert refused.value.where == "prog"
    assert refused.value.fix
    assert len(str(refused.value).splitlines()) == 3
    return refused.value


# --- what works -------------------------------------------------------------------------------------------------


def test_without_flags_the_default_comes_back() -> None:
    default = Command(batch=7, model=Inner(embed_dim=12))
    assert parse_flags(default, [], prog="prog") == default


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["--batch", "3"], Command(batch=3)),
        (["--batch=3"], Command(batch=3)),
        (["--rate", "1e-3"], Command(rate=1e-3)),
        (["--rate", "2"], Command(rate=2.0)),
        (["--size", "3"], Command(size=3)),
        (["--size", "3", "4"], Command(size=(3, 4))),
        (["--many", "1", "2", "3"], Command(many=(1, 2, 3))),
        (["--spare", "4"], Command(spare=4)),
        (["--spare", "None"], Command()),
        (["--json"], Command(json=True)),
        (["--no-json"], Command(json=False)),
        (["thing"], Command(name="thing")),
        (["--batch", "2", "thing"], Command(name="thing", batch=2)),
        (["--model.embed-dim", "16", "--model.pool", "mean"], Command(model=Inner(embed_dim=16, pool="mean"))),
        (["--model.embed_dim", "16"], Command(model=Inner(embed_dim=16))),
        (["--model.no-qkv-bias"], Command(model=Inner(qkv_bias=False))),
        (["--model.no_qkv_bias"], Command(model=Inner(qkv_bias=False))),
        (["--batch", "3", "--batch", "4"], Command(batch=4)),
    ],
)
def test_a_flag_changes_its_field_and_nothing_else(args: list[str], wanted: Command) -> None:
    assert parse(*args) == wanted


def test_flags_change_the_default_given_not_the_class_default() -> None:
    default = Command(rate=0.25, model=Inner(embed_dim=12, qkv_bias=False))
    parsed = parse_flags(default, ["--model.pool", "mean"], prog="prog")
    assert parsed == Command(rate=0.25, model=Inner(embed_dim=12, qkv_bias=False, pool="mean"))


def test_every_field_is_a_flag_and_positionals_are_not() -> None:
    assert set(flag_names(Command())) == {
        *("batch", "rate", "size", "many", "spare", "limit", "either", "json", "no-json"),
        *("model.embed-dim", "model.pool", "model.qkv-bias", "model.no-qkv-bias"),
    }


@pytest.mark.parametrize("cfg", [ViTConfig(), MAEConfig()], ids=["vit", "mae"])
def test_every_field_of_a_model_is_a_flag_that_takes_its_own_value(cfg: Any) -> None:
    def flags(part: dict[str, Any], prefix: str = "") -> list[str]:
        words: list[str] = []
        for name, value in part.items():
            flag = prefix + name.replace("_", "-")
            if isinstance(value, dict):
                words += flags(value, f"{flag}.")
            elif isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--{flag.rpartition('.')[0]}.no-{name.replace('_', '-')}")
            else:
                words += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
        return [word.replace("--.", "--") for word in words]

    typed = flags(to_dict(cfg))
    assert len(typed) > len(field_names(type(cfg)))
    assert parse_flags(cfg, typed, prog="prog") == cfg


# --- help -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_comes_from_the_docstrings_and_leaves_with_0(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        parse(flag)
    assert leaving.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("What the command does.", "How fast.", "--model.embed-dim", "Numbers per token.", "cls,mean"):
        assert words in text


def test_help_shows_the_places_that_are_already_filled(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    plain = capsys.readouterr().out
    with pytest.raises(SystemExit):
        parse("thing", "--batch", "3", "--help")
    assert capsys.readouterr().out == plain


def test_help_wins_over_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        parse("--bacth", "3", "--help")
    assert leaving.value.code == 0
    assert "--batch" in capsys.readouterr().out


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "fix"),
    [
        ("--bacth", "did you mean '--batch'?"),
        ("--BATCH", "did you mean '--batch'?"),
        ("--model.embed-dmi", "did you mean '--model.embed-dim'?"),
        ("--model.embed_dmi", "did you mean '--model.embed-dim'?"),
        ("--pool", "did you mean '--model.pool'?"),
        ("--modle.pool", "did you mean '--model.pool'?"),
        ("--model.hidden-size", "you mean '--model.embed-dim'"),
        ("--model.hidden_size=3", "you mean '--model.embed-dim'"),
        ("--hidden-size", "you mean '--model.embed-dim'"),
        ("--zzzzzz", "`prog --help` shows all flags"),
        ("--name", "`prog --help` shows all flags"),
    ],
)
def test_an_unknown_flag_gets_a_hint(flag: str, fix: str) -> None:
    error = refusal(flag, "3")
    assert error.what == f"unknown flag '{flag.partition('=')[0]}'"
    assert error.fix == fix


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--batch", "x"], "--batch: expected a whole number, received 'x'"),
        (["--batch", "1.5"], "--batch: expected a whole number, received '1.5'"),
        (["--batch="], "--batch: expected a whole number, received ''"),
        (["--batch"], "--batch: expected a whole number, received nothing"),
        (["--batch", "--json"], "--batch: expected a whole number, received nothing"),
        (["--rate", "fast"], "--rate: expected a number, received 'fast'"),
        (["--size", "1", "2", "3"], "--size: expected a whole number or 2 whole numbers, received '1' '2' '3'"),
        (["--many", "1", "x"], "--many: expected one or more whole numbers, received '1' 'x'"),
        (["--either", "x"], "--either: expected one or more whole numbers, received 'x'"),
        (["--spare", "x"], "--spare: expected a whole number, received 'x'"),
        (["--model.pool", "clss"], "--model.pool: expected one of 'cls', 'mean', received 'clss'"),
        (["--model.pool"], "--model.pool: expected one of 'cls', 'mean', received nothing"),
        (["--json=yes"], "--json: expected nothing, it is a switch, received 'yes'"),
        (["thing", "--json", "yes"], "--json: expected nothing, it is a switch, received 'yes'"),
        (["--no-json=1"], "--no-json: expected nothing, it is a switch, received '1'"),
        (["thing", "other"], "prog: expected no more, received 'other'"),
        (["-x"], "unknown flag '-x'"),
        (["---json"], "unknown flag '---json'"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_wanted(args: list[str], what: str) -> None:
    assert refusal(*args).what == what


@pytest.mark.parametrize("flag", ["batch", "rate", "size", "many", "spare", "limit", "either"])
def test_a_number_that_is_none_gets_an_example_that_would_do(flag: str) -> None:
    fix = refusal(f"--{flag}", "x").fix or ""
    typed = re.fullmatch(rf"`(--{flag} [\d. ]+)`, for example", fix)
    assert typed is not None, fix
    parse(*typed.group(1).split())


def test_a_wrong_choice_gets_a_did_you_mean() -> None:
    assert refusal("--model.pool", "maen").fix == "did you mean 'mean'?"


def test_a_switch_says_how_it_is_switched_off() -> None:
    fix = "'--model.qkv-bias' switches it on, '--model.no-qkv-bias' off"
    assert refusal("--model.qkv-bias=False").fix == fix
    assert refusal("thing", "--model.qkv-bias", "False").fix == fix


def test_a_rule_of_a_nested_config_keeps_its_words_and_its_fix() -> None:
    with pytest.raises(ConfigError) as refused:
        parse("--model.embed-dim", "7")
    assert refused.value.what == "embed_dim: expected a multiple of 4, received 7"
    assert refused.value.fix == "nearest: 8"
    assert refused.value.where == "prog"


@pytest.mark.parametrize(
    ("box", "what"),
    [
        ("no such thing here", "no such thing here"),
        ("Oh no\n-----\nsomething is\n  wrong\n-----\nsee help\n", "something is wrong"),
        ("Oh no\n-----\n--unheard-of is odd\n", "--unheard-of is odd"),
        ("", "the command line cannot be understood"),
    ],
)
def test_words_of_another_tyro_still_make_a_refusal(box: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its box is read as text: where the wording is new, it is passed on."""

    def leaves(*args: Any, **settings: Any) -> None:
        sys.stderr.write(box)
        raise SystemExit(2)

    monkeypatch.setattr(tyro, "cli", leaves)
    error = refusal("--batch", "3")
    assert error.what == what
    assert error.fix == "`prog --help` shows all flags"


def test_long_values_are_cut() -> None:
    assert len(str(refusal("--batch", "9" * 10_000 + "x"))) < 300
    assert len(str(refusal("--" + "x" * 10_000))) < 300


def test_nothing_is_printed_when_refusing(capsys: pytest.CaptureFixture[str]) -> None:
    refusal("--batch", "x")
    assert capsys.readouterr() == ("", "")


# --- C1: whatever is typed --------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ["", "None", "True", "x", "-1", "1e400", "nan", "cls", "mean", "é", "\n", "--", "-", "0x10", "1,2"]
    ),
    st.just(""),
    st.text(max_size=6),
    st.integers(min_value=10**18, max_value=10**40).map(str),
)


def commands(known: list[str]) -> st.SearchStrategy[list[str]]:
    flags = st.one_of(
        st.sampled_from([f"--{name}" for name in known]),
        st.sampled_from([f"--{name.replace('-', '_')}" for name in known]),
        st.sampled_from(known).map(lambda name: f"--{name[:-1]}"),
        st.text(max_size=8).map(lambda text: f"--{text}"),
    )
    word = st.one_of(
        st.tuples(flags),
        st.tuples(flags, VALUES),
        st.tuples(flags, VALUES, VALUES),
        st.builds(lambda flag, value: (f"{flag}={value}",), flags, VALUES),
        st.tuples(VALUES),
    )
    words = st.lists(word, max_size=4).map(lambda parts: [word for part in parts for word in part])
    return words.filter(lambda words: not {"-h", "--help"} & set(words))


def answer(default: Any, args: list[str]) -> Any:
    """The config, or the refusal; any other error is the test's."""
    try:
        return parse_flags(default, args, prog="prog")
    except UsageError as error:
        return error


@settings(max_examples=150)
@given(args=commands(list(flag_names(Command()))))
def test_anything_typed_gives_a_config_or_a_usage_error(args: list[str]) -> None:
    got = answer(Command(), args)
    if isinstance(got, Command):
        assert parse_flags(got, [], prog="prog") == got
    else:
        assert got.where
        assert got.fix
        assert len(str(got).splitlines()) == 3


@settings(max_examples=60)
@given(args=commands(list(flag_names(ViTConfig()))))
def test_anything_typed_for_a_vit_gives_a_config_or_a_usage_error(args: list[str]) -> None:
    got = answer(ViTConfig(), args)
    if isinstance(got, ViTConfig):
        assert got.num_tokens > 0
    else:
        assert got.where == "prog"
        assert got.fix


@config
class Unlimited:
    """Forgets to limit a number."""

    count: int = 1

    def __post_init__(self) -> None:
        (0,) * self.count


def test_a_number_no_machine_can_hold_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="a number is too large"):
        parse_flags(Unlimited(), ["--count", "9" * 30], prog="prog")


@pytest.mark.parametrize("flag", ["depth", "embed-dim", "num-heads", "img-size", "num-classes", "mlp-dim", "head-dim"])
@pytest.mark.parametrize("number", ["1" + "0" * 12, "9" * 40, "-" + "9" * 40])
def test_a_huge_number_is_refused_at_once(flag: str, number: str) -> None:
    with pytest.raises(UsageError):
        parse_flags(ViTConfig(), [f"--{flag}", number], prog="prog")
