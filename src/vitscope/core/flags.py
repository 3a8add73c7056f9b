"""Command-line flags from a config: every field is a flag, nested fields are `--section.key`, docstrings are the help.

tyro does the parsing; refusals come out as our own errors (three short lines, did-you-mean) instead of its boxes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import re
import typing
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from vitscope.core.config import field_names, field_types, is_config, literal_choices, shortened
from vitscope.core.errors import ConfigError, UsageError, expected
from vitscope.core.flag_words import as_flags_take_it, example, wanted
from vitscope.core.suggest import did_you_mean, nearest

C = TypeVar("C")


def parse_flags(default: C, args: Sequence[str], *, prog: str) -> C:
    """`default` with the fields that `args` names changed. Prints help and leaves with 0 on `--help`."""
    if any(arg in ("-h", "--help") for arg in args):
        from vitscope.core.flag_help import leave_with_help

        leave_with_help(default, prog=prog)
    import tyro

    refuse_unknown_flags(default, args, prog=prog)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return tyro.cli(type(default), args=list(args), default=default, prog=prog)
    except SystemExit as leaving:
        if not leaving.code:
            raise
        for cause in _causes(leaving):
            if isinstance(cause, ConfigError):
                raise ConfigError(cause.what, where=cause.where or prog, fix=cause.fix or _see_help(prog)) from None
        raise _refusal(default, args, said.getvalue(), prog) from None
    except (OverflowError, MemoryError) as error:
        raise UsageError(f"a number is too large: {error}", where=prog, fix=_see_help(prog)) from None


def flag_names(cfg: Any, prefix: str = "") -> Iterator[str]:
    """Every flag of a config, dotted and with hyphens, without the leading `--`."""
    positionals, switches = _positionals(type(cfg)), _switches(type(cfg))
    for field in dataclasses.fields(cfg):
        if field.name in positionals:
            continue
        value = getattr(cfg, field.name)
        name = prefix + field.name.replace("_", "-")
        if is_config(value):
            yield from flag_names(value, f"{name}.")
        else:
            yield name
            if isinstance(value, bool) and field.name not in switches:
                yield f"{prefix}no-{field.name.replace('_', '-')}"


def refuse_unknown_flags(cfg: Any, args: Sequence[str], *, prog: str) -> None:
    known = list(flag_names(cfg))
    for arg in args:
        if arg == "--":
            return
        if re.match(r"-[A-Za-z]", arg) and arg[1:].partition("=")[0].replace("_", "-") in known:
            raise UsageError(f"unknown flag {shortened(arg)}", where=prog, fix=f"did you mean '-{arg}'?")
        if not re.match(r"--[A-Za-z]", arg):
            continue
        flag, equals, value = arg[2:].partition("=")
        flag = flag.replace("_", "-")
        if equals and flag in known and _is_switch(cfg, flag):
            raise _switch_with_a_value(cfg, flag, value, prog)
        if flag not in known:
            fix = _near_flags(flag, known, dict(_flag_synonyms(cfg))) or _see_help(prog)
            raise UsageError(f"unknown flag {shortened(arg.partition('=')[0])}", where=prog, fix=fix)


def _near_flags(flag: str, known: list[str], synonyms: dict[str, str]) -> str | None:
    """The likely flag. Compared without its section, which would make all of `--model...` look alike."""
    ours = synonyms.get(flag.replace("-", "_"))
    if ours in known:
        return f"you mean '--{ours}'"
    section, dot, leaf = flag.rpartition(".")
    here = {name.removeprefix(section + dot): name for name in known if name.startswith(section + dot)}
    near = [name for name in known if name.endswith(f".{leaf}")] or [here[name] for name in nearest(leaf, here)]
    near = near or nearest(flag, known)
    return "did you mean " + " or ".join(f"'--{name}'" for name in near) + "?" if near else None


def _switch_with_a_value(cfg: Any, flag: str, value: str, prog: str) -> UsageError:
    section, dot, leaf = flag.removeprefix("--").replace("_", "-").rpartition(".")
    leaf = leaf.removeprefix("no-")
    on, off = f"{section}{dot}{leaf}", f"{section}{dot}no-{leaf}"
    return UsageError(
        expected(f"--{flag.removeprefix('--')}", "nothing, it is a switch", shortened(value)),
        where=prog,
        fix=f"'--{on}' switches it on, '--{off}' off" if off in flag_names(cfg) else f"'--{on}' alone switches it on",
    )


def _is_switch(cfg: Any, flag: str) -> bool:
    section, dot, leaf = flag.removeprefix("--").replace("_", "-").rpartition(".")
    return bool in (_type_of_flag(cfg, flag), _type_of_flag(cfg, f"{section}{dot}{leaf.removeprefix('no-')}"))


def _see_help(prog: str) -> str:
    return f"`{prog} --help` shows all flags"


def _positionals(cls: type) -> set[str]:
    """Fields that are given by their place, without a flag."""
    import tyro

    return _marked(cls, tyro.conf.Positional)


def _switches(cls: type) -> set[str]:
    """Fields of the kind `Switch`."""
    import tyro

    return _marked(cls, tyro.conf.FlagCreatePairsOff)


def _marked(cls: type, marker: Any) -> set[str]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name for name, hint in hints.items() if marker in getattr(hint, "__metadata__", ())}


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
    if message.startswith("Unrecognized"):
        return _left_over(default, args, message.partition(": ")[2], prog)
    named = re.search(r"--[A-Za-z][\w.-]*(/--[A-Za-z][\w.-]*)*", message)
    flags = named.group().split("/") if named else []  # more than one where a flag has several names
    name = next((flag for flag in flags if _type_of_flag(default, flag) is not None), None)
    if name is None:
        return UsageError(message, where=prog, fix=_see_help(prog))
    hint, flag = _type_of_flag(default, name), flags[0]
    given = next(filter(None, (_given(args, one) for one in flags)), [])
    choices = [choice for choice in literal_choices(hint) if isinstance(choice, str)]
    near = did_you_mean(given[0], choices) if given and choices else None
    meant = as_flags_take_it(hint, given, choices)
    if meant is not None:
        near = f"`{flag} {meant}`"
    held, field = _holder(default, name)
    shown = getattr(held, "examples", {}).get(field) or example(hint, getattr(held, field, None))
    return UsageError(
        expected(flag, wanted(hint), " ".join(map(shortened, given[:9])) if given else "nothing"),
        where=prog,
        fix=near or (f"`{flag} {shown}`, for example" if shown else _see_help(prog)),
    )


def _left_over(default: Any, args: Sequence[str], words: str, prog: str) -> UsageError:
    """Words nothing asked for: most often the value of a switch, which takes none."""
    for flag, word in itertools.pairwise(args):
        if flag.startswith("--") and _is_switch(default, flag) and words.startswith(word):
            return _switch_with_a_value(default, flag, word, prog)
    what = "unknown flag " + shortened(words) if words.startswith("-") else expected(prog, "no more", shortened(words))
    return UsageError(what, where=prog, fix=_see_help(prog))


def _type_of_flag(cfg: Any, flag: str) -> Any:
    held, leaf = _holder(cfg, flag)
    return field_types(type(held)).get(leaf) if is_config(held) else None


def _holder(cfg: Any, flag: str) -> tuple[Any, str]:
    """The section a flag names, if there is one, and its field."""
    *sections, leaf = flag.removeprefix("--").replace("-", "_").split(".")
    for section in sections:
        cfg = getattr(cfg, section, None)
    return cfg, leaf


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
