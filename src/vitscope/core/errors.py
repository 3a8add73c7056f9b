"""Errors a person can act on: what happened, where, and what to do. Each kind has its exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DATA = 3
EXIT_DIVERGED = 4
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

_EITHER = re.compile(r"(\w+=\w*) \((--[a-z][a-z-]*)\)")
"""An advice that names both an argument and its flag: `overwrite=True (--overwrite)`. A reader is told one of them."""


class VitscopeError(Exception):
    """Something a user can understand and mend. The command line prints it without a traceback."""

    exit_code = EXIT_FAILED
    was_said = False
    """Whether another process of the run says it, so that a person reads it once."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __reduce__(self) -> tuple[Any, ...]:
        """It travels between processes, whatever its kind is made from."""
        return _as_it_was, (type(self), self.__dict__)

    def __str__(self) -> str:
        """For whoever calls Python."""
        return self._told(r"\1")

    def for_command_line(self) -> str:
        """For whoever types commands: flags instead of arguments."""
        return self._told(r"\2")

    def _told(self, spelling: str) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"where: {self.where}")
        if self.fix:
            lines.append(f"to do: {_EITHER.sub(spelling, self.fix)}")
        return "\n".join(lines)


def _as_it_was(kind: type[VitscopeError], facts: dict[str, Any]) -> VitscopeError:
    error = kind.__new__(kind, facts["what"])
    error.__dict__.update(facts)
    return error


class UsageError(VitscopeError):
    """The command line cannot be understood."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError, ValueError):
    """A setting has a value it cannot have."""


class InputError(VitscopeError, ValueError):
    """A tensor handed to a model has the wrong shape or kind."""


class DataError(VitscopeError):
    """The pictures or labels are not usable."""

    exit_code = EXIT_DATA


class DivergedError(VitscopeError):
    """Training went to infinity and could not be saved."""

    exit_code = EXIT_DIVERGED


@contextmanager
def said_by_first(rank: int) -> Iterator[None]:
    """Around what processes that have met find alike: only the first says what is wrong."""
    try:
        yield
    except VitscopeError as error:
        error.was_said = rank > 0
        raise


def expected(subject: str, wanted: object, received: object) -> str:
    """The one sentence all refusals use.

    >>> expected("depth", "a positive integer", -1)
    'depth: expected a positive integer, received -1'
    """
    return f"{subject}: expected {wanted}, received {received}"
