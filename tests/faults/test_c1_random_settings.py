"""C1: whatever settings and flags are given, the answer is a config that comes back from YAML as it went, or a refusal
with exit code 2 that names the nearest thing. Never a traceback."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vitscope.core.config import field_names, field_types, from_dict, literal_choices, to_dict
from vitscope.core.errors import EXIT_USAGE, ConfigError, UsageError, VitscopeError
from vitscope.core.flags import flag_names, parse_flags
from vitscope.core.yaml import from_yaml, to_yaml
from vitscope.data.config import (
    AugmentConfig,
    DataConfig,
    PreprocessConfig,
    ShapesConfig,
    SyntheticConfig,
    augmentation,
)
from vitscope.data.sources.builtin import open_builtin
from vitscope.models.config import CNNConfig, LSTMConfig, ResNetConfig, SwinConfig, ViTConfig

CONFIGS = [
    AugmentConfig,
    DataConfig,
    PreprocessConfig,
    ShapesConfig,
    SyntheticConfig,
    ViTConfig,
    SwinConfig,
    ResNetConfig,
    CNNConfig,
    LSTMConfig,
]
NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30),
    st.integers(-3, 70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 1e308, 5e-324, -0.0, math.inf, math.nan]),
)
ANYTHING = st.one_of(
    NUMBERS,
    st.booleans(),
    st.none(),
    st.text(max_size=12),
    st.lists(NUMBERS, max_size=4),
    st.dictionaries(st.text(max_size=4), NUMBERS, max_size=2),
)
ROUNDS = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@st.composite
def some_settings(draw: st.DrawFn) -> tuple[type, dict[str, Any]]:
    """A config class, and values for some of its fields: of the right kind, a choice, or anything at all."""
    cls = draw(st.sampled_from(CONFIGS))
    hints = field_types(cls)
    chosen = {}
    for name in draw(st.lists(st.sampled_from(field_names(cls)), max_size=4, unique=True)):
        choices = literal_choices(hints[name])
        kind = hints[name]
        fitting: dict[Any, st.SearchStrategy[Any]] = {
            int: st.integers(0, 64),
            float: st.floats(0, 1),
            bool: st.booleans(),
            str: st.text(min_size=1, max_size=8),
        }
        likely = st.sampled_from(choices) if choices else fitting.get(kind, ANYTHING)
        chosen[name] = draw(st.one_of(likely, likely, ANYTHING))
    return cls, chosen


@ROUNDS
@given(some_settings())
def test_settings_are_taken_and_come_back_or_are_refused(drawn: tuple[type, dict[str, Any]]) -> None:
    cls, chosen = drawn
    try:
        made = cls(**chosen)
    except ConfigError as error:
        assert error.exit_code == EXIT_USAGE
        assert any(name in str(error) for name in field_names(cls)) or ":" in str(error)
        return
    assert from_yaml(cls, to_yaml(made)) == made
    assert from_dict(cls, to_dict(made)) == made


def test_the_draw_above_reaches_both_answers() -> None:
    taken = refused = 0

    @settings(
        max_examples=150, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], deadline=None
    )
    @given(some_settings())
    def count(drawn: tuple[type, dict[str, Any]]) -> None:
        nonlocal taken, refused
        try:
            drawn[0](**drawn[1])
            taken += bool(drawn[1])
        except ConfigError:
            refused += 1

    count()
    assert taken > 5
    assert refused > 5


@ROUNDS
@given(cls=st.sampled_from(CONFIGS), place=st.integers(0, 60), letter=st.sampled_from("abcxyz_"), value=ANYTHING)
def test_an_unknown_key_is_refused_and_the_nearest_named(cls: type, place: int, letter: str, value: Any) -> None:
    names = field_names(cls)
    name = names[place % len(names)]
    wrong = name[: len(name) // 2] + letter + name[len(name) // 2 :]
    if wrong in names:
        return
    with pytest.raises(ConfigError) as caught:
        from_dict(cls, {wrong: value})
    assert wrong in str(caught.value)
    synonyms = getattr(cls, "synonyms", {})
    assert wrong in synonyms or len(name) < 6 or "mean '" in str(caught.value)


@ROUNDS
@given(
    cls=st.sampled_from([DataConfig, AugmentConfig, PreprocessConfig]),
    words=st.lists(
        st.one_of(
            st.sampled_from([f"--{flag}" for cls in (DataConfig, AugmentConfig) for flag in flag_names(cls())]),
            st.text(max_size=10).map(lambda text: "--" + text),
            st.text(max_size=10),
            NUMBERS.map(str),
        ),
        max_size=5,
    ),
)
def test_any_command_line_is_parsed_or_refused(cls: type, words: list[str]) -> None:
    if {"-h", "--help"} & {*words}:
        return
    try:
        made = parse_flags(cls(), words, prog="prog")
    except UsageError as error:
        assert error.exit_code == EXIT_USAGE
        assert str(error).strip()
    else:
        assert dataclasses.is_dataclass(made)


@ROUNDS
@given(st.sampled_from(["shapes", "synthetic", "digits"]), st.text(max_size=20))
def test_any_text_after_a_built_in_name(name: str, text: str) -> None:
    try:
        open_builtin(f"{name}:{text}")
    except VitscopeError as error:
        assert error.exit_code == EXIT_USAGE


@ROUNDS
@given(st.text(max_size=12))
def test_any_name_of_a_strength(name: str) -> None:
    try:
        assert isinstance(augmentation(name), AugmentConfig)
    except UsageError as error:
        assert name in str(error)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--split-sead", "1"], "--split-seed"),
        (["--split-seed", "-1"], "split_seed"),
        (["--split-seed", "1e400"], "whole number"),
        (["--split-seed", str(10**40)], "split_seed"),
        (["--limit", "many"], "whole number"),
        (["--augment", "stronk"], "strong"),
        (["--json=perhaps"], "switch"),
        (["extra", "words"], "extra"),
    ],
)
def test_the_command_refuses_with_2(args: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vitscope", "data", "digits", *args],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == EXIT_USAGE, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
