"""Picture files whose names end otherwise than their content says. They are read by their content all the same, here;
other programs go by the name."""

from __future__ import annotations

from pathlib import PurePath

from PIL import Image

SAME = {"MPO": "JPEG", "DIB": "BMP"}
"""Formats that are another's with something added or left out, and bear its endings."""


def misnamed(where: str, content: str) -> list[str]:
    """A remark, where `where` ends as picture files do and tells another format than that of the `content`."""
    ending = PurePath(where).suffix.lower()
    named = Image.registered_extensions().get(ending)
    if named is None or not content or _kind(named) == _kind(content):
        return []
    return [f"misnamed: the file is {content}, its name ends in {ending}"]


def _kind(name: str) -> str:
    return SAME.get(name, name)
