"""Which of the packages vitscope names are installed, read from its own metadata: there is no second list."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any


def describe_packages() -> tuple[dict[str, Any], dict[str, Any]]:
    """The packages vitscope needs, and its extras.

    A package is `{"version": "4.1" or None, "needs": ">=4.0", "fits": True}`; an extra is
    `{"packages": {...}, "install": None or the command that completes it}`.
    """
    needed: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for requirement in _requirements():
        name, needs, extra = _parsed(requirement)
        version = version_of(name)
        package = {"version": version, "needs": needs, "fits": version is not None and _fits(version, needs)}
        if extra is None:
            needed[name] = package
        else:
            extras.setdefault(extra, {"packages": {}})["packages"][name] = package
    for extra, contents in extras.items():
        complete = all(package["fits"] for package in contents["packages"].values())
        contents["install"] = None if complete else f"pip install 'vitscope[{extra}]'"
    return needed, extras


def version_of(package: str) -> str | None:
    """The installed version, without importing the package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> list[str]:
    try:
        return metadata.requires("vitscope") or []
    except metadata.PackageNotFoundError:  # run from a source folder that was never installed
        return []


def _parsed(requirement: str) -> tuple[str, str, str | None]:
    """`optuna>=4.0; extra == 'tune'` -> ('optuna', '>=4.0', 'tune'). pip does not promise `packaging`."""
    text, _, marker = requirement.partition(";")
    name, needs = re.fullmatch(r"\s*([\w.-]+)\s*(?:\[.*?\])?\s*\(?(.*?)\)?\s*", text).groups()  # type: ignore[union-attr]
    extra = re.search(r"""extra\s*==\s*['"]([\w.-]+)['"]""", marker)
    return name, needs, extra[1] if extra else None


def _fits(version: str, needs: str) -> bool:
    """Only `>=` is judged, by its numbers: it is all our own metadata uses."""
    return all(_release(version) >= _release(least) for least in re.findall(r">=\s*([\d.]+)", needs))


def _release(version: str) -> tuple[int, ...]:
    """Numbers of a version without its zeros at the end: 2.15.0+cpu -> (2, 15)."""
    numbers = [int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number]  # type: ignore[index]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
