"""What a weights file may be before it is opened, and how large what it says may be: a file can say anything."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitscope.core.errors import VitscopeError

Shape = tuple[int, ...]

MOST_HEADER_BYTES = 25_000_000
"""Of a safetensors header or an index of shards: a model of 10,000 tensors needs about 1 MB."""
MOST_NAME = 500
LARGEST_SIDE = 2**40
"""Of one axis of a tensor."""
MOST_INFLATION = 16
"""How many times its own size a compressed file may become; weights are nearly random and hardly compress."""
ROOM = 64_000_000
"""What any file may take in bytes besides: an array of zeros compresses a thousandfold and is no bomb."""
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
POINTER = b"version https://git-lfs"


def unreadable(path: Path, reason: object, fix: str = "copy or download the file again") -> VitscopeError:
    return VitscopeError(f"cannot read the weights: {reason}", where=str(path), fix=fix)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:300] or type(error).__name__


def beginning_of(path: Path) -> bytes:
    """The first bytes, of what can be a file of weights at all."""
    try:
        if path.is_dir():
            raise unreadable(path, "a folder, not a file", fix="give the file in it, or a folder with a config.json")
        if path.exists() and not path.is_file():
            raise unreadable(path, "not a plain file", fix="give a weights file")
        with path.open("rb") as file:
            beginning = file.read(256)
    except (OSError, ValueError) as error:
        raise unreadable(path, getattr(error, "strerror", None) or error) from None
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
            raise unreadable(path, what, fix="give a .safetensors, .pth, .bin or .npz file of weights")
    return beginning


def cut_off(path: Path) -> str:
    """In words, how much of a safetensors file is not there; empty where that cannot be told."""
    try:
        found = path.stat().st_size
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        told = 8 + header
        if header <= MOST_HEADER_BYTES and found >= told:
            entries, begin = safetensors_header(path)
            told = begin + max(entry["data_offsets"][1] for entry in entries.values())
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return ""
    return f"cut off: the header says {told:,} bytes, the file has {found:,}" if found < told < 2**40 else ""


def refuse_names(path: Path, names: Iterable[object]) -> None:
    """Names are shown to people, so they must be short and hold nothing that steers a terminal."""
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
            shown = repr(name)[:60]
            raise unreadable(path, f"nothing in it can be called {shown}", fix="this is not a file of weights")


def refuse_shape(path: Path, name: str, shape: Iterable[object]) -> None:
    for side in shape:
        if not isinstance(side, int) or not 0 <= side <= LARGEST_SIDE:
            raise unreadable(path, f"{name} cannot have a side of {side}")


def read_small_json(path: Path, content: bytes | None = None) -> Any:
    """JSON of a bounded size in which no key stands twice. Raises ValueError or OSError."""
    if content is None:
        if path.stat().st_size > MOST_HEADER_BYTES:
            raise ValueError(f"larger than {MOST_HEADER_BYTES:,} bytes")
        content = path.read_bytes()
    try:
        return json.loads(content, object_pairs_hook=_without_twins)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """Name -> dtype, shape and place of each tensor, and where the first begins. Raises ValueError or OSError."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > MOST_HEADER_BYTES:
            raise ValueError(f"a header of {size:,} bytes")
        header = read_small_json(path, file.read(size))
    if not isinstance(header, dict):
        raise ValueError("its header is no list of tensors")
    header.pop("__metadata__", None)
    return header, 8 + size


def refuse_inflation(path: Path, archive: zipfile.ZipFile) -> None:
    """Entries that become far larger than the file, or one piece of it used again and again."""
    names = archive.namelist()
    if len(set(names)) < len(names):
        raise unreadable(path, "an entry stands in it twice")
    inflated, most = sum(entry.file_size for entry in archive.infolist()), most_bytes(path)
    if inflated > most:
        raise unreadable(path, f"it would become {inflated:,} bytes, from {path.stat().st_size:,}")


def most_bytes(path: Path) -> int:
    return MOST_INFLATION * path.stat().st_size + ROOM


def refuse_odd_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors without numbers of their own, or with more of them than the file can hold."""
    refuse_names(path, tensors)
    total = 0
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
            raise unreadable(path, f"{name} is not a plain tensor", fix="save it dense and not quantised")
        total += math.prod(tensor.shape) * tensor.dtype.itemsize
    if total > most_bytes(path):
        raise unreadable(path, f"its tensors would be {total:,} bytes, from {path.stat().st_size:,}")
