"""What `--help` shows of a config, as a person would write it: whole sentences, and nothing about what is not set.

tyro draws it. By its own rules a flag that may be left out reads `{None}|STR ... (default: None)`, and a docstring
keeps the line breaks of its source file. So for help alone each field gets its words from here. Nothing is parsed by
them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import itertools
import re
import shutil
import sys
import textwrap
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from vitscope.core.config import field_names, is_config

if TYPE_CHECKING:
    from tyro.constructors import StructConstructorSpec, StructTypeInfo

# Stands where tyro wants a note and there is none to give. Without it, the space before the note would be a line of
# its own under a text that fills its line.
NO_NOTE = "\N{ZERO WIDTH SPACE}"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FRAME = "│ "  # what tyro draws beside the text of a box, where stdout takes more than ASCII


def leave_with_help(default: Any, *, prog: str) -> NoReturn:
    """Print every flag of a config with its meaning and its value in `default`, and leave with 0."""
    import tyro

    rules = tyro.constructors.ConstructorRegistry()
    rules.struct_rule(_in_our_words)
    drawn = _Page()
    with contextlib.redirect_stdout(drawn):
        try:
            tyro.cli(type(default), args=["--help"], default=default, prog=prog, description="", registry=rules)
        except SystemExit as leaving:
            if leaving.code:
                raise
    usage, _, flags = _without_empty_rows(drawn.getvalue()).partition("\n\n")
    # tyro would leave each paragraph on one line, however long.
    width = shutil.get_terminal_size().columns
    about = [textwrap.fill(part, width, break_on_hyphens=False) for part in _about(default)]
    sys.stdout.write("\n\n".join([usage, *about, flags]))
    raise SystemExit(0)


def metavar(hint: Any) -> str:
    """What to type after a flag: `int | tuple[int, int] | None` -> 'INT|INT INT'."""
    if hint is bool:
        return "{True,False}"
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return "|".join(metavar(arg) for arg in args if arg is not type(None))
    if origin is typing.Literal:
        return "{" + ",".join(map(str, args)) + "}"
    if origin is tuple:
        return " ".join("..." if arg is Ellipsis else metavar(arg) for arg in args)
    return getattr(hint, "__name__", str(hint)).upper()


class _Page(io.StringIO):
    """Text for stdout: drawn with the frames and colours that stdout can show."""

    encoding = ""  # that of a StringIO cannot be set

    def __init__(self) -> None:
        super().__init__()
        self.shown_by = sys.stdout
        self.encoding = self.shown_by.encoding

    def isatty(self) -> bool:
        return self.shown_by.isatty()


def _in_our_words(info: StructTypeInfo) -> StructConstructorSpec | None:
    """tyro's rule for a config: the same fields, types and markers, told by `metavar`, `_note` and the docstrings."""
    import tyro

    cls, default = info.type, info.default
    if not is_config(cls) or not isinstance(default, cls):
        return None
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: list[tyro.constructors.StructFieldSpec] = []
    for name in field_names(cls):
        value, hint, text = getattr(default, name), hints[name], _field_docs(cls).get(name)
        if is_config(value):
            text = text or "\n\n".join(_about(value))
        else:
            hint = _worded(hint, value)
        fields.append(tyro.constructors.StructFieldSpec(name=name, type=hint, default=value, helptext=text))
    return tyro.constructors.StructConstructorSpec(instantiate=cls, fields=tuple(fields))


def _worded(hint: Any, value: Any) -> Any:
    """A field's type with what its flag shows. What the field itself asks for comes last, and so wins."""
    import tyro

    kind, *asked = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    shown = tyro.conf.arg(metavar=None if kind is bool else metavar(kind), help_behavior_hint=_note(value))
    return Annotated[(kind, shown, *asked)]


def _note(value: Any) -> str | None:
    """What follows the text of a flag. None: tyro's own `(default: ...)`."""
    if value is True:
        return "(default: on)"
    return NO_NOTE if value is None or value is False or value == () else None


def _about(cfg: Any) -> list[str]:
    """The paragraphs of a config's docstring; none where it has only what `dataclass` puts in its place."""
    doc = inspect.getdoc(type(cfg)) or ""
    return [] if doc.startswith(f"{type(cfg).__name__}(") else _paragraphs(doc)


@functools.cache
def _field_docs(cls: type) -> dict[str, str]:
    """Field -> the string that stands below it in the source, its own class's before those it extends."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        except (OSError, TypeError):  # no source to read: made on the fly, or by Python itself
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, below in itertools.pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = "\n\n".join(_paragraphs(text))
    return docs


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()) if part]


def _without_empty_rows(page: str) -> str:
    """Without the rows that hold nothing but the place of a note."""
    rows = page.splitlines(keepends=True)
    kept = (row for row in rows if NO_NOTE not in row or COLOURS.sub("", row).strip(FRAME + NO_NOTE + "\n"))
    return "".join(kept).replace(NO_NOTE, " ")
