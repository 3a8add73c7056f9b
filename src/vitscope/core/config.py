"""The configuration layer: one decorator turns a class into a frozen, checked, YAML-able set of settings.

    @config
    class OptimConfig:
        '''How weights move.'''

        lr: float = 1e-3
        '''Learning rate at the top of the schedule.'''

Field types are checked strictly when an object is made, whoever makes it: Python, YAML or the command line
(`core.flags`). Rules of a class's own go into its `__post_init__`, which runs after the types are known to be
right.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, dataclass_transform

from vitscope.core.errors import ConfigError, expected
from vitscope.core.suggest import did_you_mean

C = TypeVar("C")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[C]) -> type[C]:
    """Make `cls` a frozen keyword-only dataclass whose fields are type-checked.

    Class attributes `synonyms` and `value_synonyms` (other people's word -> ours) feed the "you mean ..." of unknown
    keys and of unknown choices; `examples` (field -> a value) is what a flag that was left without one is told.
    """
    rules = getattr(cls, "__post_init__", None)  # its own, or those of the config it extends

    def __post_init__(self: Any) -> None:  # noqa: N807
        for field in dataclasses.fields(self):
            value = _checked(type(self), field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        if rules is not None:
            rules(self)

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    made = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    plain_init = made.__init__

    @functools.wraps(plain_init)
    def __init__(self: Any, *args: Any, **settings: Any) -> None:  # noqa: N807
        refuse_unknown_keys(type(self), settings)
        plain_init(self, *args, **settings)

    made.__init__ = __init__  # type: ignore[method-assign]
    return made


class OneOf:
    """What a field holds that may be one of several configs: extend it, name it as the field's type, and tell in
    `chosen` which config a mapping stands for. The configs themselves extend it too; what `tag` names is written in
    front of their fields, so that a file says by itself which one it is."""

    tag: ClassVar[str]

    @classmethod
    def chosen(cls, data: Mapping[str, Any], *, where: str | None = None) -> Any:
        raise NotImplementedError


def is_config(thing: object) -> bool:
    """True for a config class or one of its objects."""
    return dataclasses.is_dataclass(thing) and hasattr(thing, "__post_init__")


def field_names(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def field_types(cls: type) -> dict[str, Any]:
    """Field name -> resolved type."""
    return _hints(cls)


def updated(cfg: C, **changes: Any) -> C:
    """A copy with some fields changed; unknown names are refused with a did-you-mean."""
    refuse_unknown_keys(type(cfg), changes)
    return dataclasses.replace(cfg, **changes)  # type: ignore[type-var]


def to_dict(cfg: Any) -> dict[str, Any]:
    """Plain dict of every field (defaults too: a saved file keeps its meaning when defaults change)."""
    tag: str | None = getattr(cfg, "tag", None) if issubclass(type(cfg), OneOf) else None
    return ({} if tag is None else {tag: getattr(cfg, tag)}) | {
        field.name: _plain(getattr(cfg, field.name)) for field in dataclasses.fields(cfg)
    }


def from_dict(cls: type[C], data: object, *, where: str | None = None) -> C:
    """The inverse of `to_dict`. Unknown keys and wrong types are refused, with the key's full path."""
    if not isinstance(data, Mapping):
        raise ConfigError(expected(cls.__name__, "a mapping of settings", shortened(data)), where=where)
    refuse_unknown_keys(cls, data, where=where)
    hints = _hints(cls)
    settings: dict[str, Any] = {}
    for name, value in data.items():
        settings[name] = _read(hints[name], value, where=f"{where} > {name}" if where else name)
    missing = [f.name for f in dataclasses.fields(cls) if f.name not in settings and _required(f)]  # type: ignore[arg-type]
    if missing:
        raise ConfigError(f"{cls.__name__}: missing {', '.join(missing)}", where=where, fix=f"add `{missing[0]}: ...`")
    try:
        return cls(**settings)
    except ConfigError as error:
        error.where = error.where or where
        raise


def refuse_unknown_keys(cls: type, data: Mapping[Any, Any], *, where: str | None = None) -> None:
    names = field_names(cls)
    for key in data:
        if key not in names:
            near = did_you_mean(str(key), names, getattr(cls, "synonyms", None))
            fix = near or f"it has: {', '.join(names)}"
            raise ConfigError(f"{cls.__name__} has no setting '{key}'", where=where, fix=fix)


MOST_SHOWN = 200
"""Letters of a value in an error message."""


def require(condition: bool, subject: str, wanted: object, received: object, *, fix: str | None = None) -> None:
    """Refuse a setting: `require(depth > 0, "depth", "a positive integer", depth)`."""
    if not condition:
        shown = received if len(str(received)) <= MOST_SHOWN else shortened(received)
        raise ConfigError(expected(subject, wanted, shown), fix=fix)


def describe_type(hint: Any) -> str:
    """A type as a person would write it: `int | tuple[int, int]` -> 'int or (int, int)'."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(arg) for arg in args)
    if origin is typing.Literal:
        return ("one of " if len(args) > 1 else "") + ", ".join(repr(arg) for arg in args)
    if origin is tuple:
        return "(" + ", ".join("..." if arg is Ellipsis else describe_type(arg) for arg in args) + ")"
    if hint is type(None):
        return "nothing"
    return getattr(hint, "__name__", str(hint))


def _read(hint: Any, value: Any, *, where: str) -> Any:
    """A mapping becomes the config its field holds; so does each mapping in a `tuple[SomeConfig, ...]`."""
    nested = _nested_config(hint)
    if nested is not None and isinstance(value, Mapping):
        return nested.chosen(value, where=where) if _is_open(nested) else from_dict(nested, value, where=where)
    args: tuple[Any, ...] = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and args[-1:] == (Ellipsis,) and isinstance(value, list | tuple):
        return tuple(_read(args[0], item, where=f"{where}[{index}]") for index, item in enumerate(value))
    return value


def _checked(cls: type, name: str, value: Any) -> Any:
    from pydantic import ValidationError

    try:
        return _field_adapter(cls, name).validate_python(_tuples(value), strict=True)
    except ValidationError:
        hint = _hints(cls)[name]
        choices = [arg for arg in literal_choices(hint) if isinstance(arg, str)]
        raise ConfigError(
            expected(name, describe_type(hint), shortened(value)),
            fix=did_you_mean(value, choices, _value_synonyms(cls)) if isinstance(value, str) and choices else None,
        ) from None


@functools.cache
def _field_adapter(cls: type, name: str) -> Any:
    from pydantic import ConfigDict, InstanceOf, TypeAdapter

    hint = _hints(cls)[name]
    nested = _nested_config(hint)
    if nested is None:
        return TypeAdapter(hint, config=ConfigDict(strict=True))
    # A nested config has checked itself already: only its class matters here.
    instance: Any = InstanceOf[nested]  # type: ignore[valid-type]
    return TypeAdapter(instance | None if type(None) in typing.get_args(hint) else instance)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in field_names(cls)}


def _nested_config(hint: Any) -> Any:
    """The config class a field holds, if it holds one (possibly `| None`)."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    candidates: tuple[Any, ...] = typing.get_args(hint) if is_union else (hint,)
    found = [arg for arg in candidates if isinstance(arg, type) and (is_config(arg) or _is_open(arg))]
    return found[0] if len(found) == 1 else None


def _is_open(cls: type) -> bool:
    return issubclass(cls, OneOf) and not is_config(cls)


def literal_choices(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return tuple(choice for arg in typing.get_args(hint) for choice in literal_choices(arg))


def _value_synonyms(cls: type) -> dict[str, str] | None:
    return getattr(cls, "value_synonyms", None)


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _tuples(value: Any) -> Any:
    """Lists come from YAML and JSON; a frozen config holds tuples."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if is_config(value):
        return to_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def shortened(value: object) -> str:
    """A value as an error message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
