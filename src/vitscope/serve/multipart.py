"""The parts of a multipart/form-data body (RFC 7578), where they lie: nothing is copied.

The body is in memory and its length is limited already, so that there is no state to keep between pieces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vitscope.serve.refusal import Refusal

HEAD_BYTES = 8192
"""The longest head of a part."""
PARAMETER = re.compile(r';\s*([\w*]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')


@dataclass(frozen=True)
class Part:
    """One field of a form."""

    name: str
    filename: str | None
    """None for a field that is no file."""
    content: memoryview


def parts_of(body: bytes | bytearray, boundary: str, *, most: int) -> list[Part]:
    """In their order; refused where there are more than `most`, or where the end is missing."""
    line = b"--" + boundary.encode("latin-1", "replace")
    place = 0 if body.startswith(line) else body.find(b"\r\n" + line) + 2
    if place == 1:
        raise _damaged("its first boundary is missing")
    view, found = memoryview(body), []
    while True:
        place += len(line)
        if body[place : place + 2] == b"--":
            return found
        start = body.find(b"\r\n", place)
        if start < 0 or body[place:start].strip(b" \t"):
            raise _damaged("a boundary is followed by something else")
        end_of_head = body.find(b"\r\n\r\n", start, start + HEAD_BYTES)
        if end_of_head < 0:
            raise _damaged("the head of a part has no end")
        begin = end_of_head + 4
        end = body.find(b"\r\n" + line, begin)
        if end < 0:
            raise _damaged("its end is missing")
        name, filename = _names(bytes(body[start:end_of_head]).decode("utf-8", "replace"))
        found.append(Part(name, filename, view[begin:end]))
        if len(found) > most:
            raise Refusal(413, f"a form of more than {most} parts", fix="send fewer pictures at a time")
        place = end + 2


def boundary_of(content_type: str) -> str:
    """From `multipart/form-data; boundary=...`."""
    for key, value in PARAMETER.findall(content_type):
        if key.lower() == "boundary" and value.strip('"'):
            return value.strip('"')
    raise _damaged("its Content-Type names no boundary")


def _names(head: str) -> tuple[str, str | None]:
    """Of the field, and of the file if it is one."""
    for line in head.split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            told = {word.lower(): _unquoted(text) for word, text in PARAMETER.findall(value)}
            return told.get("name", ""), told.get("filename")
    raise _damaged("a part has no Content-Disposition")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _damaged(what: str) -> Refusal:
    return Refusal(400, f"the form cannot be read: {what}", fix="curl -F file=@picture.jpg makes a right one")
