"""Strict YAML for configurations, both ways.

Follows YAML 1.2 where PyYAML follows 1.1: `1e-3` is a number, `no` and `2026-01-01` are text. A key given twice is
refused. Only plain data is ever built (`safe_load`): a `!!python/object` tag is an error, nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from vitscope.core.config import from_dict, to_dict
from vitscope.core.errors import ConfigError
from vitscope.core.files import write_atomically

C = TypeVar("C")


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"expected a name as key, received {key!r}", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


# YAML 1.2 core schema. The dumper has the same rules, so that what looks like a number is quoted when it is text.
_RESOLVERS = {
    "tag:yaml.org,2002:bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "tag:yaml.org,2002:int": (r"^[-+]?[0-9]+$", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
    "tag:yaml.org,2002:null": (r"^(?:~|null|Null|NULL|)$", "~nN\0"),
}
for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _tag, (_pattern, _first) in _RESOLVERS.items():
        _class.add_implicit_resolver(_tag, re.compile(_pattern), [*_first.replace("\0", ""), *([""] if "\0" in _first else [])])


def parse_yaml(text: str, *, where: str | None = None) -> Any:
    """Plain data from YAML text."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"not valid YAML: {what}", where=where, fix="correct the file at the place named") from None


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
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", fix="give the path of a YAML file") from None
    return from_yaml(cls, text, where=str(path))


def save_yaml(cfg: Any, path: str | Path) -> None:
    write_atomically(Path(path), to_yaml(cfg).encode())
