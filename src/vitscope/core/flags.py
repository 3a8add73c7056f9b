"""Command-line flags from a config: every field is a flag, nested fields are `--section.key`, docstrings are the help.

tyro does the parsing; refusals come out as our own errors (three short lines, did-you-mean) instead of its boxes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from vitscope.core.config import describe_type, field_names, field_types, is_config, literal_choices
from vitscope.core.errors import ConfigError, UsageError, expected
from vitscope.core.suggest import did_you_mean

C = TypeVar("C")


def parse_flags(default: C, args: Sequence[str], *, prog: str) -> C:
    """`default` with the fields that `args` names changed. Prints help and leaves with 0 on `--help`."""
    import tyro

    asks_for_help = any(arg in ("-h", "--help") for arg in args)
    if not asks_for_help:
        refuse_unknown_flags(default, args, prog=prog)
    said = io.StringIO()
    try:
        with contextlib.ExitStack() as stack:
            if not asks_for_help:
                stack.enter_context(contextlib.redirect_stdout(said))
                stack.enter_context(contextlib.redirect_stderr(said))
            return tyro.cli(type(default), args=list(args), default=default, prog=prog)
    except SystemExit as leaving:
        if not leaving.code:
            raise
        for cause in _causes(leaving):
            if isinstance(cause, ConfigError):
                raise ConfigError(cause.what, where=cause.where or prog, fix=cause.fix) from None
        raise _refusal(default, args, said.getvalue(), prog) from None


def flag_names(cfg: Any, prefix: str = "") -> Iterator[str]:
    """Every flag of a config, dotted and with hyphens, without the leading `--`."""
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        name = prefix + field.name.replace("_", "-")
        if is_config(value):
            yield from flag_names(value, f"{name}.")
        else:
            yield name
            if isinstance(value, bool):
                yield f"{prefix}no-{field.name.replace('_', '-')}"


def refuse_unknown_flags(cfg: Any, args: Sequence[str], *, prog: str) -> None:
    known = list(flag_names(cfg))
    for arg in args:
        if arg == "--":
            return
        if not re.match(r"--[A-Za-z]", arg):
            continue
        flag, equals, value = arg[2:].partition("=")
        flag = flag.replace("_", "-")
        if equals and _type_of_flag(cfg, flag) is bool:
            raise UsageError(
                expected(f"--{flag}", "nothing, it is a switch", repr(value)),
                where=prog,
                fix=f"'--{flag}' switches it on, '--no-{flag}' off",
            )
        if flag not in known:
            hint = did_you_mean(flag, known, dict(_flag_synonyms(cfg)))
            fix = re.sub(r"'([^']+)'", r"'--\1'", hint) if hint else f"`{prog} --help` shows all flags"
            raise UsageError(f"unknown flag '{arg.partition('=')[0]}'", where=prog, fix=fix)


def _flag_synonyms(cfg: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Other people's words, as flags. Keys are looked up with underscores."""
    for theirs, ours in getattr(cfg, "synonyms", {}).items():
        if ours in field_names(type(cfg)):
            flag = prefix + ours.replace("_", "-")
            yield prefix.replace("-", "_") + theirs, flag
            yield theirs, flag
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        if is_config(value):
            yield from _flag_synonyms(value, f"{prefix}{field.name.replace('_', '-')}.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors behind an error: tyro leaves by SystemExit and keeps what our config said in the chain."""
    behind = error.__cause__ or error.__context__
    while behind is not None:
        yield behind
        behind = behind.__cause__ or behind.__context__


def _refusal(default: Any, args: Sequence[str], box: str, prog: str) -> UsageError:
    """tyro's complaint in our words: which flag, what it takes, what it got."""
    message = _message(box)
    named = re.search(r"--[A-Za-z][\w.-]*", message)
    hint = _type_of_flag(default, named.group()) if named else None
    if named is None or hint is None:
        return UsageError(message, where=prog, fix=f"`{prog} --help` shows all flags")
    given = _given(args, named.group())
    choices = [choice for choice in literal_choices(hint) if isinstance(choice, str)]
    return UsageError(
        expected(named.group(), describe_type(hint), " ".join(map(repr, given)) if given else "nothing"),
        where=prog,
        fix=did_you_mean(given[0], choices) if given and choices else None,
    )


def _type_of_flag(cfg: Any, flag: str) -> Any:
    *sections, leaf = flag.removeprefix("--").replace("-", "_").split(".")
    for section in sections:
        cfg = getattr(cfg, section, None)
    return field_types(type(cfg)).get(leaf) if is_config(cfg) else None


def _given(args: Sequence[str], flag: str) -> list[str]:
    """The values that follow a flag, up to the next flag."""
    values: list[str] | None = None
    for arg in args:
        name, equals, value = arg.partition("=")
        if name.replace("_", "-") == flag.replace("_", "-"):
            values = [value] if equals else []
        elif values is not None and re.match(r"--[A-Za-z]", arg):
            break
        elif values is not None:
            values.append(arg)
    return values or []


def _message(box: str) -> str:
    """What stands in tyro's box between its title and the next rule (drawn in ASCII, as it is not on a terminal)."""
    sections = [" ".join(part.split()) for part in re.split(r"^\s*-+\s*$", box, flags=re.MULTILINE)]
    return (sections[1] if len(sections) > 1 else sections[0]) or "the command line cannot be understood"
