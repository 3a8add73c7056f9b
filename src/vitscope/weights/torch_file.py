"""torch's own files (.pth, .pt, .bin). Tensors alone are taken from them, and nothing is run that they hold."""

from __future__ import annotations

import argparse
import io
import pickle
import re
import tarfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vitscope.core.errors import VitscopeError
from vitscope.weights.bounds import WEIGHTS_WANTED, Shape, first_line, refuse_odd_tensors, unreadable
from vitscope.weights.opened import OpenFile
from vitscope.weights.torch_outline import Outline, outline_of

HELD_WITHIN = (
    "state_dict_ema",
    "model_ema",
    "ema_state_dict",
    "ema",
    "teacher",
    "state_dict",
    "model_state_dict",
    "model",
    "student",
    "module",
)
"""Where trainers keep the weights inside a checkpoint, the ones to prefer first."""
DEEPEST = 8
PICKLE = b"\x80"
"""How a pickle of torch's begins that is not in an archive."""


def read_torch(opened: OpenFile, *, zipped: bool) -> tuple[dict[str, Shape], Callable[[str], Tensor], tuple[str, ...]]:
    """The shapes of its weights, what reads one, and where in the checkpoint they were."""
    outline = outline_of(opened) if zipped else None
    opened.file.seek(0)
    if not zipped and tarfile.is_tarfile(opened.file):  # torch would unpack it into a folder
        raise unreadable(opened.path, "a tar archive", fix="unpack it, and give the weights file in it")
    weights, remarks = _found_within(_content(opened, outline), opened)
    if outline is not None and not all(_says_place(tensor) for tensor in weights.values()):
        outline = None  # a torch that does not tell where numbers lie, or tensors that have none
        weights, remarks = _found_within(_content(opened, None), opened)
    refuse_odd_tensors(opened, weights, hollow=outline is not None)

    def read(name: str) -> Tensor:
        if outline is None:
            return weights[name].detach().clone().contiguous()
        return _numbers(opened, name, weights[name], outline)

    return {name: tuple(tensor.shape) for name, tensor in weights.items()}, read, remarks


def _content(opened: OpenFile, outline: Outline | None) -> Any:
    """What the file holds; by its outline, tensors without numbers: what a checkpoint holds besides the weights is
    never read."""
    opened.file.seek(0)
    file, device = (opened.file, "cpu") if outline is None else (io.BytesIO(outline.archive), "meta")
    try:
        # A namespace of arguments lies in most trainers' checkpoints. It is made, not called.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")  # of what is refused below, torch only warns
            return torch.load(file, map_location=device, weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        if outline is None and opened.read_at(0, 1) != PICKLE and "Unsupported operand" in str(error):
            raise unreadable(opened.path, "it begins as no file of weights does", fix=WEIGHTS_WANTED) from None
        raise VitscopeError(
            f"the file holds more than tensors, and was refused: {_what_else(error)}",
            where=str(opened.path),
            fix="nothing in it was run; ask for a .safetensors file, or save only its state_dict where it comes from",
        ) from None
    except Exception as error:  # a damaged pickle raises whatever its damage leads to
        raise unreadable(opened.path, first_line(error)) from None


def _place(tensor: Tensor) -> int | None:
    return getattr(tensor.untyped_storage(), "_checkpoint_offset", None)


def _says_place(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested and _place(tensor) is not None


def _numbers(opened: OpenFile, name: str, hollow: Tensor, outline: Outline) -> Tensor:
    """The tensor with its numbers, in memory of its own; it may be a part of what is stored, in any order."""
    if not hollow.numel():
        return torch.empty(hollow.shape, dtype=hollow.dtype, device="cpu")
    size = hollow.dtype.itemsize
    storage, length = outline.places.get(_place(hollow) or 0, (0, 0))
    last = sum((side - 1) * step for side, step in zip(hollow.shape, hollow.stride(), strict=True))
    first = int(hollow.storage_offset()) * size
    if first + (last + 1) * size > length:
        raise unreadable(opened.path, f"{name} reaches beyond what is stored of it")
    whole = torch.empty(last + 1, dtype=hollow.dtype, device="cpu")
    if not opened.read_into(storage + first, whole.view(torch.uint8).numpy().data):
        opened.refuse_change()
        raise unreadable(opened.path, f"it ends within {name}")
    return whole.as_strided(hollow.shape, hollow.stride()).contiguous()


def _what_else(error: pickle.UnpicklingError) -> str:
    """What torch refused, without its advice on how to let it run all the same."""
    text = str(error)
    found = re.search(r"GLOBAL (\S+)", text) or re.search(r"WeightsUnpickler error:\s*(.+)", text)
    told = "it cannot be read as tensors alone" if found is None else found[1]
    return "".join(letter for letter in told if letter.isprintable())[:200]


def _holds_tensors(content: Any, deepest: int = DEEPEST) -> bool:
    """Whether weights are there, at any depth: a trainer that keeps no running mean may leave an empty place for it."""
    if not isinstance(content, Mapping) or not deepest:
        return False
    if any(isinstance(value, Tensor) and value.ndim > 1 for value in content.values()):  # not a decay or a count alone
        return True
    return any(_holds_tensors(content.get(key), deepest - 1) for key in HELD_WITHIN)


def _found_within(content: Any, opened: OpenFile) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors of a checkpoint, however deep its trainer put them, and where that was."""
    way: list[str] = []
    passed: list[str] = []
    hollow: list[str] = []
    while isinstance(content, Mapping) and len(way) < DEEPEST:  # a checkpoint may hold itself
        holding = [key for key in HELD_WITHIN if _holds_tensors(content.get(key))]
        if not holding:
            break
        preferred = HELD_WITHIN[: HELD_WITHIN.index(holding[0])]
        hollow += [key for key in preferred if isinstance(content.get(key), Mapping) and content[key]]
        way.append(holding[0])
        passed += holding[1:]
        content = content[holding[0]]
    tensors = {}
    if isinstance(content, Mapping):
        tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors or not all(isinstance(name, str) for name in tensors):
        raise VitscopeError(
            "the file holds no weights: no tensors by name were found",
            where=str(opened.path),
            fix=f"give a state_dict, or a checkpoint that holds one as {', '.join(HELD_WITHIN)}",
        )
    instead = f", not its {' or '.join(repr(key) for key in passed)}" if passed else ""
    remarks = [f"of the checkpoint, its '{'.'.join(way)}'{instead}"] if way else []
    remarks += [f"its '{key}' would be preferred, and no weights were found in it" for key in hollow]
    return tensors, tuple(remarks)
