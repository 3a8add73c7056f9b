"""What a request brings: pictures as a form, as JSON with base64, or as one file's bytes; and settings beside them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vitscope.core.errors import expected
from vitscope.serve.multipart import boundary_of, parts_of
from vitscope.serve.refusal import Refusal

FIELDS = 16
"""Fields of a form beside its pictures."""
FIELD_BYTES = 1000
NAME_LENGTH = 255
SEND_ONE = "curl -F file=@picture.jpg sends a picture"
JSON_READ = '{"image": "<base64>"} is read, or "images" with a list'
KINDS = "multipart/form-data, application/json, or image/* for the bytes of one picture"


@dataclass(frozen=True)
class Upload:
    """One encoded picture."""

    name: str | None
    """As the client calls it; only ever told back."""
    content: bytes | memoryview


@dataclass(frozen=True)
class Asked:
    """The pictures of a request and its settings, as texts."""

    pictures: list[Upload]
    settings: dict[str, str]


def read_upload(content_type: str, body: bytearray, *, most: int) -> Asked:
    """`most` pictures at a time."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        asked = _of_form(content_type, body, most)
    elif kind == "application/json":
        asked = _of_json(body)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        asked = Asked([Upload(None, memoryview(body))], {})
    else:
        raise Refusal(415, expected("Content-Type", KINDS, repr(content_type[:80])), fix=SEND_ONE)
    if not asked.pictures:
        raise Refusal(400, "no picture in the request", fix=SEND_ONE)
    if len(asked.pictures) > most:
        raise Refusal(
            413, expected("pictures", f"up to {most} in one request", len(asked.pictures)), fix="send fewer at a time"
        )
    return asked


def _of_form(content_type: str, body: bytearray, most: int) -> Asked:
    pictures, settings = [], {}
    for part in parts_of(body, boundary_of(content_type), most=most + FIELDS):
        if part.filename is not None:
            pictures.append(Upload(_name(part.filename), part.content))
        elif len(part.content) > FIELD_BYTES:
            raise Refusal(400, f"the field '{part.name[:80]}' is too long", fix="give a picture a file name")
        else:
            settings[part.name] = bytes(part.content).decode("utf-8", "replace")
    return Asked(pictures, settings)


def _of_json(body: bytearray) -> Asked:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not JSON", fix=JSON_READ) from None
    if not isinstance(told, dict):
        raise Refusal(400, expected("JSON", "an object", type(told).__name__), fix=JSON_READ)
    given = told.get("images", [told["image"]] if "image" in told else [])
    if not isinstance(given, list):
        raise Refusal(400, expected("images", "a list", type(given).__name__), fix=JSON_READ)
    settings = {key: str(value) for key, value in told.items() if key not in ("image", "images") and value is not None}
    return Asked(list(_pictures(given)), settings)


def _pictures(given: list[Any]) -> Iterator[Upload]:
    """Texts, or `{"name": ..., "data": ...}`."""
    for place, one in enumerate(given):
        name, data = (one.get("name"), one.get("data")) if isinstance(one, dict) else (None, one)
        if not isinstance(data, str) or not isinstance(name, str | None):
            wanted = 'base64, or {"name": ..., "data": base64}'
            raise Refusal(400, expected(f"picture {place}", wanted, type(data).__name__), fix=JSON_READ)
        if data.startswith("data:"):  # as a browser writes it
            data = data.partition(",")[2]
        try:
            yield Upload(_name(name), base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError):
            raise Refusal(400, f"picture {place} is not base64", fix="`base64 -w0 picture.jpg` writes it") from None


def _name(told: str | None) -> str | None:
    """What can be told back: JSON may hold halves of characters, which no answer can."""
    return told[:NAME_LENGTH].encode("utf-8", "replace").decode() if told else None
