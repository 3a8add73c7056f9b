"""Errors of three lines, each kind with its exit code."""

import pickle

import pytest

from vitscope.core.errors import (
    ConfigError,
    DataError,
    DivergedError,
    InputError,
    UsageError,
    VitscopeError,
    expected,
)
from vitscope.weights.read import MisfitError


def test_three_lines() -> None:
    error = VitscopeError("it broke", where="a.yaml", fix="mend it")
    assert str(error) == "it broke\nwhere: a.yaml\nto do: mend it"


def test_what_is_not_known_is_left_out() -> None:
    assert str(VitscopeError("it broke")) == "it broke"
    assert str(VitscopeError("it broke", fix="mend it")) == "it broke\nto do: mend it"


@pytest.mark.parametrize(
    ("advice", "in_python", "typed"),
    [
        ("choose a new place, or pass overwrite=True (--overwrite)", "pass overwrite=True", "pass --overwrite"),
        ("name its model: config= (--model), 'a'", "name its model: config=, 'a'", "name its model: --model, 'a'"),
        ("prove=False (--no-proof) goes on", "prove=False goes on", "--no-proof goes on"),
        ("lower the learning rate (--lr)", "lower the learning rate (--lr)", "lower the learning rate (--lr)"),
    ],
)
def test_arguments_are_told_in_python_and_flags_on_the_command_line(advice: str, in_python: str, typed: str) -> None:
    error = VitscopeError("it broke", where="x=1 (--x)", fix=advice)
    assert str(error).startswith("it broke\nwhere: x=1 (--x)\nto do: ")
    assert str(error).endswith(in_python)
    assert error.for_command_line().endswith(typed)


@pytest.mark.parametrize(
    ("kind", "code", "also"),
    [
        (VitscopeError, 1, Exception),
        (UsageError, 2, VitscopeError),
        (ConfigError, 2, ValueError),
        (InputError, 1, ValueError),
        (DataError, 3, VitscopeError),
        (DivergedError, 4, VitscopeError),
    ],
)
def test_exit_codes(kind: type[VitscopeError], code: int, also: type[Exception]) -> None:
    assert kind("x").exit_code == code
    assert issubclass(kind, also)


def test_an_error_crosses_processes_whole() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("it broke", where="here", fix="mend it")))
    assert type(error) is ConfigError
    assert str(error) == "it broke\nwhere: here\nto do: mend it"


def test_the_sentence_of_refusals() -> None:
    assert expected("depth", "a positive integer", -1) == "depth: expected a positive integer, received -1"


def test_every_kind_of_error_travels_between_processes() -> None:
    """Also one that is made from more than words."""
    error = MisfitError("too few", where="file", fix="another", is_known=True)
    error.was_said = True
    for one in (error, DataError("bad", where="here", fix="mend it"), ConfigError("worse")):
        back = pickle.loads(pickle.dumps(one))
        assert (type(back), vars(back), str(back)) == (type(one), vars(one), str(one))
