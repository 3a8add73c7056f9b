"""What OpenAPI is told of the addresses that take pictures: they read their bodies themselves, counting bytes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

DESCRIPTION = "Asks a Vision Transformer about pictures. Errors are `{error, fix}`; 503 comes with Retry-After."


class Refused(BaseModel):
    """What is wrong, and what to do about it."""

    error: str
    fix: str


class Guessed(BaseModel):
    label: str
    index: int
    probability: float


class Predicted(BaseModel):
    """One picture's classes, the likeliest first; or `error`, `fix` and `status`."""

    path: str | None = Field(description="the file's name, as it was sent")
    label: str | None = None
    index: int | None = None
    confidence: float | None = None
    top_k: list[Guessed] | None = None
    error: str | None = None
    fix: str | None = None
    status: int | None = None


class Predictions(BaseModel):
    predictions: list[Predicted]


class Vector(BaseModel):
    path: str | None
    vector: list[float] | None = None
    error: str | None = None
    fix: str | None = None
    status: int | None = None


class Vectors(BaseModel):
    features: list[Vector]
    kind: str


_FILE = {"type": "string", "format": "binary"}
_BASE64 = {"type": "string", "format": "byte", "description": "base64, or a data: URL"}
_NAMED = {"type": "object", "properties": {"name": {"type": "string"}, "data": _BASE64}, "required": ["data"]}
_REFUSALS = {
    400: "not a picture, or not understood",
    401: "a token is needed",
    403: "from another site's page, or for another host",
    408: "the upload took too long",
    413: "too many bytes, pixels or pictures",
    415: "a kind that is not read",
    500: "the model failed",
    503: "busy: try again after the seconds in Retry-After",
}


def _body(*, several: bool, settings: dict[str, Any]) -> dict[str, Any]:
    form: dict[str, Any] = {"file": {"type": "array", "items": _FILE} if several else _FILE, **settings}
    told: dict[str, Any] = {"image": _BASE64, **settings}
    if several:
        told["images"] = {"type": "array", "items": {"anyOf": [_BASE64, _NAMED]}}
    content = {
        "multipart/form-data": {"schema": {"type": "object", "properties": form, "required": ["file"]}},
        "application/json": {"schema": {"type": "object", "properties": told}},
        "image/*": {"schema": _FILE},
    }
    return {"requestBody": {"required": True, "content": content}}


def _responses(ok: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    refused: dict[int | str, dict[str, Any]] = {
        status: {"model": Refused, "description": about} for status, about in _REFUSALS.items()
    }
    return {200: ok, **refused}


_TOP_K = {"top_k": {"type": "integer", "minimum": 1}}
_WISHES = {
    "method": {"type": "string"},
    "layer": {"type": "integer"},
    "head": {"type": "integer"},
    "target": {"type": "string"},
}
PREDICTIONS: dict[str, Any] = {
    "responses": _responses({"model": Predictions}),
    "openapi_extra": _body(several=True, settings=_TOP_K),
}
FEATURES: dict[str, Any] = {
    "responses": _responses({"model": Vectors}),
    "openapi_extra": _body(several=True, settings={}),
}
EXPLAINED: dict[str, Any] = {
    "responses": _responses({"content": {"image/png": {"schema": _FILE}}, "description": "the picture, drawn over"}),
    "openapi_extra": _body(several=False, settings=_WISHES),
}
