"""What a weights file may be before it is opened, and how large what it says may be: a file can say anything."""

from __future__ import annotations

import json
import math
import pickletools
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitscope.core.dtypes import type_name
from vitscope.core.errors import VitscopeError
from vitscope.weights.opened import OpenFile

Shape = tuple[int, ...]

MOST_HEADER_BYTES = 25_000_000
"""Of a safetensors header or an index of shards: a model of 10,000 tensors needs about 1 MB."""
MOST_SHARDS = 500
"""All are open at the same time, and a process may have about a thousand files open."""
MOST_TENSORS = 50_000
"""The deepest model that can be built here has 20,000."""
MOST_ENTRIES = 4 * MOST_TENSORS
"""In an archive: beside the weights, a checkpoint may hold a running mean and two moments of each."""
MOST_NAME = 500
MOST_WORDS = 100_000
"""Bytes of a text that are looked through for a program."""
LARGEST_SIDE = 2**40
"""Of one axis of a tensor."""
MOST_INFLATION = 16
"""How many times its own size a compressed file may become; weights are nearly random and hardly compress."""
ROOM = 64_000_000
"""What any file may take in bytes besides: an array of zeros compresses a thousandfold and is no bomb."""
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""safetensors' names of the types a model here may have."""
OTHER_TYPE = "save them as float32, float16 or bfloat16 where they come from; if the file is damaged, fetch it again"
PAGE = re.compile(rb"\s*<(!doctype|html|\?xml|head|body)", re.IGNORECASE)
OTHER_FILES = {
    b"\xff\xd8\xff": "a JPEG picture",
    b"\x89PNG": "a PNG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"\x93NUMPY": "a single NumPy array (.npy), without a name",
    b"GGUF": "a GGUF file, in which weights lie quantised",
    b"\x89HDF": "an HDF5 file, as Keras writes",
    b"\x1f\x8b": "a gzip archive, which must be unpacked first",
}
"""How files begin that are no weights that can be read here, and what they are."""
ONNX = re.compile(rb"\x08[\x01-\x40][\x12\x1a\x22\x28\x32\x3a\x42]")
"""Protocol buffers have no mark of their own: this is ONNX's version, and then another field of its model."""
POINTER = b"version https://git-lfs"
WEIGHTS_WANTED = "give a .safetensors, .pth, .bin or .npz file of weights"
EXPORTED = "give the weights it was exported from: a .safetensors, .pth, .bin or .npz file"


def unreadable(path: Path, reason: object, fix: str = "copy or download the file again") -> VitscopeError:
    return VitscopeError(f"cannot read the weights: {reason}", where=str(path), fix=fix)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:300] or type(error).__name__


def open_file(path: Path) -> OpenFile:
    """A plain file, opened."""
    try:
        if path.is_dir():
            raise unreadable(path, "a folder, not a file", fix="give the file in it, or a folder with a config.json")
        if path.exists() and not path.is_file():
            raise unreadable(path, "not a plain file", fix="give a weights file")
        return OpenFile(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, getattr(error, "strerror", None) or error) from None


def beginning_of(opened: OpenFile) -> bytes:
    """The first bytes, of what can be a file of weights at all."""
    path = opened.path
    try:
        beginning = opened.read_at(0, 256)
    except OSError as error:
        raise unreadable(path, error.strerror or error) from None
    if not beginning:
        raise unreadable(path, "an empty file")
    if beginning.startswith(POINTER):
        raise unreadable(
            path,
            "a pointer of git-lfs, which stands for the file and is not it",
            fix="fetch the file itself: `git lfs pull` where the repository is, or download it from its page",
        )
    if PAGE.match(beginning):
        raise unreadable(
            path,
            "a web page, not weights: the download was answered with an error or a page to sign in on",
            fix="open the address in a browser to see what it says, then download the file again",
        )
    for start, what in OTHER_FILES.items():
        if beginning.startswith(start):
            raise unreadable(path, what, fix=WEIGHTS_WANTED)
    if ONNX.match(beginning) and beginning[8:9] != b"{":  # safetensors begins with a number, which may be any
        raise unreadable(path, "an ONNX file, a graph to be run", fix=EXPORTED)
    text = _text_of(beginning)
    if text is not None and not _would_run(opened):
        words = f": it begins with {text!r}" if text else ""
        raise unreadable(path, f"a text file, not weights{words}", fix=WEIGHTS_WANTED)
    return beginning


def _text_of(beginning: bytes) -> str | None:
    """The first words, where there are only words: every file of weights has bytes early on that no text has."""
    for cut in range(4):  # a letter of several bytes may be cut off at the end
        try:
            text = beginning[: len(beginning) - cut].decode()
        except UnicodeDecodeError:
            continue
        readable = all(letter.isprintable() or letter.isspace() for letter in text)
        return " ".join(text.split())[:60] if readable else None
    return None


def _would_run(opened: OpenFile) -> bool:
    """Whether the words are a program: the oldest pickles are text. Who reads pickles tells what it would have run."""
    try:
        steps = [step.name for step, _, _ in pickletools.genops(opened.read_at(0, MOST_WORDS))]
    except Exception:  # words that are no program raise whatever they lead to
        return False
    return "GLOBAL" in steps or "INST" in steps


def refuse_names(path: Path, names: Iterable[object]) -> None:
    """Names are shown to people, so they must be short and hold nothing that steers a terminal."""
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
            shown = repr(name)[:60]
            raise unreadable(path, f"nothing in it can be called {shown}", fix="this is not a file of weights")


def refuse_many(path: Path, count: int, most: int = MOST_TENSORS) -> None:
    """Before each of them is looked at."""
    if count > most:
        raise unreadable(
            path, f"it holds {count:,} tensors, and {most:,} are the most that are read", fix="is it a file of weights?"
        )


def refuse_shape(path: Path, name: str, shape: Iterable[object]) -> None:
    for side in shape:
        if not isinstance(side, int) or not 0 <= side <= LARGEST_SIDE:
            raise unreadable(path, f"{name} cannot have a side of {side}")


def small_json(content: bytes) -> Any:
    """JSON of a bounded size in which no key stands twice. Raises ValueError."""
    if len(content) > MOST_HEADER_BYTES:
        raise ValueError(f"larger than {MOST_HEADER_BYTES:,} bytes")
    try:
        return json.loads(content, object_pairs_hook=_without_twins)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def refuse_inflation(opened: OpenFile, archive: zipfile.ZipFile) -> None:
    """Entries that become far larger than the file, or one piece of it used again and again."""
    names = archive.namelist()
    refuse_many(opened.path, len(names), MOST_ENTRIES)
    if len(set(names)) < len(names):
        raise unreadable(opened.path, "an entry stands in it twice")
    inflated = sum(entry.file_size for entry in archive.infolist())
    if inflated > most_bytes(opened):
        raise unreadable(opened.path, f"it would become {inflated:,} bytes, from {opened.size:,}")


def most_bytes(opened: OpenFile) -> int:
    return MOST_INFLATION * opened.size + ROOM


def refuse_odd_tensors(opened: OpenFile, tensors: Mapping[str, Tensor], *, hollow: bool) -> None:
    """Tensors without numbers of their own, or with more of them than the file can hold. Where they are `hollow`,
    their numbers are still in the file."""
    path = opened.path
    refuse_many(path, len(tensors))
    refuse_names(path, tensors)
    total = 0
    for name, tensor in tensors.items():
        odd = tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided
        if odd or (tensor.is_meta and not hollow):
            raise unreadable(path, f"{name} is not a plain tensor", fix="save it dense and not quantised")
        if tensor.dtype not in DTYPES.values():  # numbers of 8 bits mean little without the scales kept beside them
            kind = type_name(tensor.dtype)
            raise unreadable(path, f"{name} is of type {kind}, which no model here has", fix=OTHER_TYPE)
        total += math.prod(tensor.shape) * tensor.dtype.itemsize
    if total > most_bytes(opened):
        raise unreadable(path, f"its tensors would be {total:,} bytes, from {opened.size:,}")
