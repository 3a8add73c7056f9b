"""Strict YAML: what was saved is what is read, and a hostile file is an error, never an action."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vitscope.core.config import config
from vitscope.core.errors import ConfigError
from vitscope.core.yaml import from_yaml, load_yaml, parse_yaml, save_yaml, to_yaml


@config
class Part:
    """Nested."""

    depth: int = 1
    note: str | None = None


@config
class Whole:
    """Every kind of field a configuration has."""

    text: str = ""
    maybe: str | None = None
    number: float = 0.0
    count: int = 0
    flag: bool = False
    size: int | tuple[int, int] = 1
    betas: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    choice: Literal["no", "on", "1"] = "no"
    part: Part = Part()
    spare: Part | None = None
    parts: tuple[Part, ...] = ()


LOOK_ALIKES = [
    *("1", "-1", "010", "1e-3", "1.", ".5", "+.inf", ".nan", "NaN", "inf", "0x1f", "0o17", "1_000", "1:30"),
    *("true", "True", "yes", "no", "on", "off", "null", "Null", "~", "", " ", "2026-01-01", "=", "<<"),
    *(
        "- a",
        "a: b",
        "a #b",
        "#",
        "!x",
        "&a",
        "*a",
        "%",
        "@",
        "`",
        "|",
        ">",
        "---",
        "...",
        "'",
        '"',
        "{",
        "[",
    ),
    *(
        "\ufeff",
        "\x85",
        "a\x85b",
        "\u2028",
        "\u2029",
        "\n",
        "a\r\nb",
        "\t",
        "\x00",
        "\ud800",
        "\xa0",
        "\ufffe",
    ),
    *("中文", "😀", "x" * 200, "word " * 60, "a\n\n b", " a\n b "),
]
texts = st.one_of(st.sampled_from(LOOK_ALIKES), st.text(), st.from_regex(r"[-+]?[0-9._eE:]+", fullmatch=True))
integers = st.integers(min_value=-(2**70), max_value=2**70)
floats = st.floats(allow_nan=False)
parts = st.builds(Part, depth=integers, note=st.none() | texts)
wholes = st.builds(
    Whole,
    text=texts,
    maybe=st.none() | texts,
    number=floats,
    count=integers,
    flag=st.booleans(),
    size=integers | st.tuples(integers, integers),
    betas=st.lists(floats).map(tuple),
    words=st.lists(texts).map(tuple),
    choice=st.sampled_from(["no", "on", "1"]),
    part=parts,
    spare=st.none() | parts,
    parts=st.lists(parts).map(tuple),
)


@given(wholes)
def test_a_config_survives_yaml(cfg: Whole) -> None:
    assert from_yaml(Whole, to_yaml(cfg)) == cfg


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_text_that_looks_like_something_else_stays_text(text: str, tmp_path: Path) -> None:
    cfg = Whole(text=text, maybe=text, words=(text,))
    save_yaml(cfg, tmp_path / "a.yaml")
    assert load_yaml(Whole, tmp_path / "a.yaml") == cfg


def test_nan_survives() -> None:
    assert math.isnan(from_yaml(Whole, to_yaml(Whole(number=math.nan))).number)


plain_texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | plain_texts


@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(plain_texts, inner), max_leaves=8))
def test_json_is_yaml(data: object) -> None:
    assert parse_yaml(json.dumps(data)) == data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("010", 10),
        ("08", 8),
        ("+3", 3),
        ("no", "no"),
        ("on", "on"),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("True", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("[1, two, 3.0]", [1, "two", 3.0]),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    read = parse_yaml(text)
    assert read == value
    assert type(read) is type(value)


def test_an_empty_file_gives_the_defaults() -> None:
    assert from_yaml(Whole, "") == from_yaml(Whole, "# nothing\n") == Whole()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count: 1\ncount: 2", "the key 'count' is given twice"),
        ("part: {depth: 1, depth: 1}", "the key 'depth' is given twice"),
        ("1: x", "expected a name as key, received 1"),
        ("? [a]\n: b", "expected a name as key"),
        ("null: x", "expected a name as key, received None"),
        ("a: [1", "expected ',' or ']'"),
        ("a: b: c", "mapping values are not allowed"),
        ("--- a\n--- b", "expected a single document"),
        ("a: \x00", "special characters"),
        ("a: !!int abc", "expected int, received 'abc'"),
        ("a: !!int ''", "expected int, received ''"),
        ("a: !!float ''", "expected float, received ''"),
        ("a: !!bool maybe", "expected bool, received 'maybe'"),
        ("a: !!timestamp x", "could not determine a constructor"),
        ("a: !!set {x}", "could not determine a constructor"),
        ("!!map [1, 2]", "expected a mapping node"),
        ("!!map ab", "expected a mapping node"),
        ("!!str {a: b}", "expected a scalar node"),
        ("a: " + "9" * 5000, "Exceeds the limit"),
    ],
)
def test_bad_yaml_is_a_config_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_yaml(text, where="x.yaml")
    assert message in refusal.value.what
    assert refusal.value.where == "x.yaml"


def test_the_line_is_named() -> None:
    with pytest.raises(ConfigError, match="line 3, column 1"):
        parse_yaml("a: 1\nb: 2\na: 3\n")


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:pathlib.Path.touch",
        "!!python/object/apply:os.system",
        "!!python/object/new:os.system",
        "!!python/name:os.system",
        "!!python/module:os",
        "!!python/tuple",
        "!own",
    ],
)
def test_tags_execute_nothing(tag: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with pytest.raises(ConfigError, match="could not determine a constructor"):
        parse_yaml(f"a: {tag} ['touch {witness}']")
    assert not witness.exists()


@pytest.mark.parametrize("text", ["words: &a [*a]", "part: &a {note: *a}", "&a : *a", "text: &t x\nmaybe: *t", "*a"])
def test_aliases_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"an alias \(\*name\) is not read here"):
        from_yaml(Whole, text)


def test_a_yaml_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    begin = time.monotonic()
    with pytest.raises(ConfigError, match="an alias"):
        from_yaml(Whole, "\n".join(lines))
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a: " + "[" * 400 + "]" * 400, "{a: " * 300 + "1" + "}" * 300, "- " * 900 + "1"]
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nested deeper than 50 levels"):
        from_yaml(Whole, text)


def test_depth_is_counted_down_again() -> None:
    assert len(parse_yaml("\n".join(f"k{n}: [[[1]]]" for n in range(200)))) == 200


@given(st.text(alphabet="ab01 \n:-[]{}&*!|>'\"#,?%~.é\t", max_size=60))
@example("? ")
@example("!<")
@example("!!null x")
def test_any_text_gives_a_config_or_a_config_error(text: str) -> None:
    try:
        read = from_yaml(Whole, text)
    except ConfigError:
        return
    assert isinstance(read, Whole)


def test_unknown_keys_name_the_file_and_the_section(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("part: {detph: 3}")
    with pytest.raises(ConfigError, match="Part has no setting 'detph'") as refusal:
        load_yaml(Whole, path)
    assert refusal.value.where == f"{path} > part"
    assert refusal.value.fix == "did you mean 'depth'?"


def test_text_is_not_taken_for_a_number() -> None:
    with pytest.raises(ConfigError, match=r"number: expected float, received '0\.5'"):
        from_yaml(Whole, "number: '0.5'")
    with pytest.raises(ConfigError, match="text: expected str, received 1"):
        from_yaml(Whole, "text: 1")


@pytest.mark.parametrize("text", ["- a", "just text", "3"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Whole: expected a mapping of settings"):
        from_yaml(Whole, text)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"text: \xff")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "latin.yaml", "a\0b"):
        with pytest.raises(ConfigError, match="cannot read"):
            load_yaml(Whole, path)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfcount: 3\r\ntext: x\r\n")
    assert load_yaml(Whole, path) == Whole(count=3, text="x")


def test_field_order_is_kept() -> None:
    assert to_yaml(Part(depth=2)) == "depth: 2\nnote: null\n"
