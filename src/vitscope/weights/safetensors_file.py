"""safetensors: a header of JSON, then the numbers. The header is checked in full before memory is taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vitscope.weights.bounds import (
    DTYPES,
    MOST_HEADER_BYTES,
    OTHER_TYPE,
    Shape,
    first_line,
    refuse_many,
    refuse_names,
    refuse_shape,
    small_json,
    unreadable,
)
from vitscope.weights.opened import OpenFile

FIELDS = {"dtype", "shape", "data_offsets"}


def read_safetensors(opened: OpenFile) -> tuple[dict[str, Shape], Callable[[str], Tensor]]:
    """The shapes of its tensors, and what reads one."""
    path = opened.path
    try:
        header, begin = _header(opened)
        refuse_many(path, len(header))
        refuse_names(path, header)
        _refuse_fields(header)
    except (OSError, ValueError) as error:
        raise unreadable(path, _cut_off(opened) or first_line(error)) from None
    for name, entry in header.items():
        refuse_shape(path, name, entry["shape"])
        if entry["dtype"] not in DTYPES:
            kind = repr(entry["dtype"][:20])
            raise unreadable(path, f"{name} is of type {kind}, which no model here has", fix=OTHER_TYPE)
    try:
        _refuse_places(header, opened.size - begin)
    except ValueError as error:
        raise unreadable(path, _cut_off(opened) or first_line(error)) from None

    def read(name: str) -> Tensor:
        # Not mapped: a mapped file counts twice while it is copied, and what happens to it would happen to the model.
        entry = header[name]
        tensor = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]], device="cpu")
        first, last = entry["data_offsets"]
        if last > first:
            room = tensor.reshape(-1).view(torch.uint8).numpy()
            if not opened.read_into(begin + first, room.data):  # it was longer when its header was checked
                opened.refuse_change()
                raise unreadable(path, f"it ends within {name}")
        return tensor

    return {name: tuple(entry["shape"]) for name, entry in header.items()}, read


def _header(opened: OpenFile) -> tuple[dict[str, Any], int]:
    """Name -> dtype, shape and place of each tensor, and where the first begins. Raises ValueError or OSError."""
    size = int.from_bytes(opened.read_at(0, 8), "little")
    if size > MOST_HEADER_BYTES:
        raise ValueError(f"a header of {size:,} bytes")
    header = small_json(opened.read_at(8, size))
    if not isinstance(header, dict):
        raise ValueError("its header is no list of tensors")
    header.pop("__metadata__", None)
    return header, 8 + size


def _refuse_fields(header: dict[str, Any]) -> None:
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != FIELDS:
            raise ValueError(f"its header does not say the type, shape and place of {name}")
        places = entry["data_offsets"]
        kinds = isinstance(entry["dtype"], str), isinstance(entry["shape"], list), isinstance(places, list)
        if not all(kinds) or len(places) != 2 or not all(type(place) is int for place in places):
            raise ValueError(f"its header does not say the type, shape and place of {name}")


def _refuse_places(header: dict[str, Any], room: int) -> None:
    """Tensors must lie one after another from the first byte to the last, each in as many as it needs."""
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        needed = math.prod(entry["shape"]) * DTYPES[entry["dtype"]].itemsize
        if first != end or last - first != needed:
            raise ValueError(
                f"{name} lies at {first:,} to {last:,} by the header, and should at {end:,} to {end + needed:,}"
            )
        end = last
    if end != room:
        raise ValueError(f"its tensors have {end:,} bytes, and it holds {room:,}")


def _cut_off(opened: OpenFile) -> str:
    """In words, how much of the file is not there; empty where that cannot be told."""
    try:
        told = 8 + int.from_bytes(opened.read_at(0, 8), "little")
        if told <= MOST_HEADER_BYTES and opened.size >= told:
            entries, begin = _header(opened)
            told = begin + max(entry["data_offsets"][1] for entry in entries.values())
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return ""
    found = opened.size
    return f"cut off: the header says {told:,} bytes, the file has {found:,}" if found < told < 2**40 else ""
