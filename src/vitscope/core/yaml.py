"""Strict YAML for configurations, both ways.

Follows YAML 1.2 where PyYAML follows 1.1: `1e-3` is a number, `no` and `2026-01-01` are text, `010` is ten.
A key given twice is refused, and so is an alias. Only plain data is ever built: a `!!python/object` tag is an
error, nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from vitscope.core.config import from_dict, to_dict
from vitscope.core.errors import ConfigError
from vitscope.core.files import write_atomically

C = TypeVar("C")


# No configuration comes near it; without a limit a hostile file reaches Python's own.
_DEEPEST = 50


class _Loader(yaml.SafeLoader):
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # Aliases are what a YAML bomb and a list that contains itself are made of.
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise _refusal("an alias (*name) is not read here: write the value out", mark)
        if self._depth == _DEEPEST:
            raise _refusal(f"nested deeper than {_DEEPEST} levels", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refusal(f"expected a name as key, received {key!r}", key_node.start_mark)
            if key in seen:
                raise _refusal(f"the key '{key}' is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # PyYAML writes these line ends as they are and reads "\x85" back as "\n"; double quotes escape them.
        style = '"' if any(end in data for end in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _refusal(what: str, mark: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, what, mark)


def _scalar(kind: str, pattern: str, build: Callable[[str], Any]) -> Callable[[_Loader, Any], Any]:
    """A reader of one kind of scalar. PyYAML's own crash on `!!int ''` and take 010 for eight."""

    def construct(loader: _Loader, node: Any) -> Any:
        text = str(loader.construct_scalar(node))
        if not re.fullmatch(pattern, text):
            raise _refusal(f"expected {kind}, received '{text}'", node.start_mark)
        return build(text)

    return construct


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


# YAML 1.2 core schema: kind -> (pattern, first characters, meaning). The dumper has the same rules, so that
# what looks like a number is quoted when it is text.
_SCALARS: dict[str, tuple[str, list[str], Callable[[str], Any]]] = {
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF"), lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+", list("-+0123456789"), int),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
        _float,
    ),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""], lambda _: None),
}
_TAG = "tag:yaml.org,2002:"
_Loader.yaml_constructors = {
    tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (f"{_TAG}str", f"{_TAG}seq", f"{_TAG}map", None)
}
_Loader.yaml_implicit_resolvers = {}
_Dumper.yaml_implicit_resolvers = {}
for _kind, (_pattern, _first, _build) in _SCALARS.items():
    _Loader.add_constructor(_TAG + _kind, _scalar(_kind, _pattern, _build))
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})\\Z"), _first)


def parse_yaml(text: str, *, where: str | None = None) -> Any:
    """Plain data from YAML text."""
    loader = None
    try:
        loader = _Loader(text)
        loader.name = where or "the text"
        return loader.get_single_data()
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        fix = "correct the file at the place named"
        raise ConfigError(f"not valid YAML: {what}", where=where, fix=fix) from None
    finally:
        if loader is not None:
            loader.dispose()


def to_yaml(cfg: Any) -> str:
    """Every field of a config, as YAML."""
    return yaml.dump(to_dict(cfg), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def from_yaml(cls: type[C], text: str, *, where: str | None = None) -> C:
    """A config from YAML text; an empty text gives the defaults."""
    data = parse_yaml(text, where=where)
    return from_dict(cls, {} if data is None else data, where=where)


def load_yaml(cls: type[C], path: str | Path) -> C:
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}", fix="give the path of a YAML file") from None
    return from_yaml(cls, text, where=str(path))


def save_yaml(cfg: Any, path: str | Path) -> None:
    write_atomically(Path(path), to_yaml(cfg).encode())
