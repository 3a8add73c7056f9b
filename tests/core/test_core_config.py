"""The configuration layer: checked when made, strict when read, nothing lost on the way."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest

from vitscope.core.config import (
    OneOf,
    config,
    describe_type,
    field_names,
    from_dict,
    is_config,
    require,
    to_dict,
    updated,
)
from vitscope.core.errors import ConfigError, UsageError


@config
class Inner:
    """A part."""

    synonyms = {"hidden_size": "width"}  # noqa: RUF012

    width: int = 4
    kind: Literal["linear", "sqrt"] = "linear"

    def __post_init__(self) -> None:
        require(self.width > 0, "width", "a positive integer", self.width)


@config
class Outer:
    """A whole."""

    rate: float = 0.5
    size: int | tuple[int, int] = 32
    inner: Inner = Inner()
    spare: Inner | None = None
    stages: tuple[Inner, ...] = ()
    table: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


@config
class Needy:
    """A class with a setting that has no default."""

    name: str
    depth: int = 1


@config
class Wider(Inner):
    """Extends another without rules of its own."""

    extra: int = 1


def test_fields_are_frozen_and_keyword_only() -> None:
    made = Inner(width=8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.width = 9  # type: ignore[misc]
    with pytest.raises(TypeError):
        Inner(8)  # type: ignore[misc]
    assert made.width == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": "0.5"}, "rate: expected float, received '0.5'"),
        ({"rate": True}, "rate: expected float, received True"),
        ({"size": True}, "size: expected int or (int, int), received True"),
        ({"size": 1.5}, "size: expected int or (int, int), received 1.5"),
        ({"size": (1, 2, 3)}, "size: expected int or (int, int), received (1, 2, 3)"),
        ({"rate": None}, "rate: expected float, received None"),
        ({"inner": 3}, "inner: expected Inner, received 3"),
        ({"inner": Needy(name="x")}, "inner: expected Inner"),
        ({"spare": "x"}, "spare: expected Inner or nothing, received 'x'"),
        ({"stages": (1,)}, "stages: expected (Inner, ...), received (1,)"),
    ],
)
def test_wrong_types_are_refused_when_made_and_when_read(settings: dict[str, object], message: str) -> None:
    for make in (lambda: Outer(**settings), lambda: from_dict(Outer, settings)):  # type: ignore[arg-type]
        with pytest.raises(ConfigError) as refusal:
            make()
        assert refusal.value.what.startswith(message)


def test_an_int_becomes_the_float_its_field_holds() -> None:
    assert isinstance(Outer(rate=1).rate, float)
    assert type(Outer(rate=np.float64(0.25)).rate) is float


def test_lists_become_tuples_so_that_a_config_can_be_a_key() -> None:
    assert Outer(size=[3, 4]).size == (3, 4)  # type: ignore[arg-type]
    assert hash(Inner(width=2)) == hash(Inner(width=2))


def test_unknown_settings_get_a_did_you_mean() -> None:
    for make in (
        lambda: Inner(widht=3),  # type: ignore[call-arg]
        lambda: from_dict(Inner, {"widht": 3}),
        lambda: updated(Inner(), widht=3),
    ):
        with pytest.raises(ConfigError, match="Inner has no setting 'widht'") as refusal:
            make()
        assert refusal.value.fix == "did you mean 'width'?"


def test_other_peoples_words_are_translated() -> None:
    with pytest.raises(ConfigError) as refusal:
        from_dict(Inner, {"hidden_size": 3})
    assert refusal.value.fix == "you mean 'width'"


def test_a_word_near_nothing_lists_the_settings() -> None:
    with pytest.raises(ConfigError) as refusal:
        from_dict(Inner, {"zzz": 3})
    assert refusal.value.fix == "it has: width, kind"


def test_a_wrong_choice_gets_a_did_you_mean() -> None:
    with pytest.raises(ConfigError, match="kind: expected one of 'linear', 'sqrt', received 'lienar'") as refusal:
        Inner(kind="lienar")  # type: ignore[arg-type]
    assert refusal.value.fix == "did you mean 'linear'?"


def test_rules_run_after_the_types_and_also_in_a_class_that_extends() -> None:
    with pytest.raises(ConfigError, match="width: expected a positive integer, received 0"):
        Inner(width=0)
    with pytest.raises(ConfigError, match="width: expected int, received 'x'"):
        Inner(width="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="width: expected a positive integer, received -1"):
        Wider(width=-1)
    with pytest.raises(ConfigError, match="extra: expected int"):
        Wider(extra="x")  # type: ignore[arg-type]


def test_the_full_path_of_a_bad_key_is_named() -> None:
    with pytest.raises(ConfigError) as refusal:
        from_dict(Outer, {"inner": {"width": "x"}}, where="a.yaml")
    assert refusal.value.where == "a.yaml > inner"
    with pytest.raises(ConfigError) as refusal:
        from_dict(Outer, {"stages": [{}, {"widht": 1}]})
    assert refusal.value.where == "stages[1]"


def test_missing_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="Needy: missing name") as refusal:
        from_dict(Needy, {"depth": 2})
    assert refusal.value.fix == "add `name: ...`"


@pytest.mark.parametrize("data", [None, 3, "x", ["a"]])
def test_only_a_mapping_is_a_config(data: object) -> None:
    with pytest.raises(ConfigError, match="Needy: expected a mapping of settings"):
        from_dict(Needy, data)


def test_to_dict_and_from_dict_are_inverse() -> None:
    cfg = Outer(
        size=(3, 4),
        inner=Inner(width=9),
        spare=Inner(kind="sqrt"),
        stages=(Inner(), Wider(width=7)),
        table={"a": (1, 2)},
    )
    plain = to_dict(updated(cfg, stages=(Inner(width=7),)))
    assert plain["stages"] == [{"width": 7, "kind": "linear"}]
    assert from_dict(Outer, plain) == updated(cfg, stages=(Inner(width=7),))


def test_to_dict_writes_defaults_too() -> None:
    assert to_dict(Inner()) == {"width": 4, "kind": "linear"}


def test_updated_checks_and_leaves_the_original() -> None:
    cfg = Inner(width=2)
    assert updated(cfg, width=5) == Inner(width=5)
    assert cfg.width == 2
    with pytest.raises(ConfigError):
        updated(cfg, width=-5)


def test_configs_copy_and_pickle() -> None:
    cfg = Outer(inner=Inner(width=3))
    assert pickle.loads(pickle.dumps(cfg)) == cfg
    assert copy.deepcopy(cfg) == cfg


def test_signature_and_names_survive_the_decorator() -> None:
    assert list(inspect.signature(Inner).parameters) == ["width", "kind"] == field_names(Inner)
    assert is_config(Inner)
    assert is_config(Inner())
    assert not is_config(3)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(ConfigError) as refusal:
        Inner(width="x" * 10_000)  # type: ignore[arg-type]
    assert len(str(refusal.value)) < 200


def test_types_read_as_a_person_would_write_them() -> None:
    assert describe_type(int | tuple[int, int]) == "int or (int, int)"
    assert describe_type(tuple[int, ...] | None) == "(int, ...) or nothing"
    assert describe_type(Literal["a"]) == "'a'"
    assert issubclass(ConfigError, UsageError)


class Shape(OneOf):
    """A field that holds one of several configs."""

    @classmethod
    def chosen(cls, data: Mapping[str, Any], *, where: str | None = None) -> Shape:
        settings = dict(data)
        kind = settings.pop("kind", "circle")
        if kind not in ("circle", "square"):
            raise ConfigError(f"kind: expected circle or square, received {kind!r}", where=where)
        return from_dict(Circle if kind == "circle" else Square, settings, where=where)


@config
class Circle(Shape):
    """Round."""

    radius: float = 1.0


@config
class Square(Shape):
    """Not round."""

    side: int = 2

    def __post_init__(self) -> None:
        require(self.side > 0, "side", "a positive integer", self.side)


@config
class Drawing:
    """What holds one of them, or perhaps none."""

    shape: Shape = Circle()
    spare: Shape | None = None


def test_one_of_several_configs_is_chosen_by_what_is_read() -> None:
    read = from_dict(Drawing, {"shape": {"kind": "square", "side": 5}})
    assert read == Drawing(shape=Square(side=5))
    assert type(read.shape) is Square
    assert from_dict(Drawing, {"spare": {"radius": 2}}).spare == Circle(radius=2.0)
    assert from_dict(Drawing, {"spare": None}).spare is None
    assert from_dict(Drawing, {}).shape == Circle()


def test_any_of_the_several_can_be_given_and_nothing_else() -> None:
    assert updated(Drawing(), shape=Square()).shape == Square()
    assert to_dict(Drawing(shape=Square(side=3))) == {"shape": {"side": 3}, "spare": None}
    for wrong in (Inner(), 3, {"side": 3}, None):
        with pytest.raises(ConfigError, match="shape: expected"):
            Drawing(shape=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "said", "where"),
    [
        ({"kind": "star"}, "kind: expected circle or square, received 'star'", "here > shape"),
        ({"kind": "square", "sid": 3}, "Square has no setting 'sid'", "here > shape"),
        ({"kind": "square", "side": 0}, "side: expected a positive integer, received 0", "here > shape"),
        ({"kind": "circle", "side": 3}, "Circle has no setting 'side'", "here > shape"),
    ],
)
def test_the_chosen_one_is_checked_at_its_place(data: dict[str, object], said: str, where: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        from_dict(Drawing, {"shape": data}, where="here")
    assert error.value.where == where


def test_whoever_forgets_to_choose_is_told() -> None:
    with pytest.raises(NotImplementedError):
        OneOf.chosen({})
