"""What a loader gives: images and labels of a batch, in the forms that are understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from vitscope.core.errors import InputError, expected
from vitscope.doctor.patient import Pair

IMAGES = ("pixel_values", "images", "image", "x")
LABELS = ("labels", "label", "targets", "y")
"""Keys of a batch that is a dict; the first that is there."""
SHAPES = "images (B, C, H, W) or (B, H, W)"


def as_pair(batch: Any) -> Pair:
    """Images and labels: of a pair, of the first two of more (a named tuple too), or of a dict with the usual names."""
    images, labels = _two(batch)
    if isinstance(images, Tensor) and isinstance(labels, Tensor):
        return images, labels
    raise InputError(
        expected("a batch", "(images, labels), or a dict with pixel_values and labels", _told(batch)),
        where="the loader",
        fix="wrap the loader in a generator class that gives pairs of tensors",
    )


def with_channels(images: Tensor) -> Tensor:
    """To look at: (B, C, H, W), one channel where there is none, as in (B, H, W). The model is given what came."""
    return images[:, None] if images.ndim == 3 else images


def refuse_dataset(loader: Any, name: str) -> None:
    """Which gives one picture at a time, with a label that is a single number or word."""
    if not (hasattr(loader, "__getitem__") and hasattr(loader, "__len__")) or isinstance(loader, IterableDataset):
        return
    _, label = _two(next(iter(loader), None))
    if isinstance(label, (int, float, str)) or (isinstance(label, Tensor) and label.ndim == 0):
        raise InputError(
            expected(name, "batches of (images, labels)", f"a {type(loader).__name__} of single pictures, a Dataset"),
            fix="give a DataLoader: DataLoader(dataset, batch_size=64, shuffle=True)",
        )


def refuse_other_shapes(images: Tensor, labels: Tensor) -> None:
    """Of the first batch: everything else would fail on them."""
    if images.ndim >= 3:
        return
    is_turned = labels.ndim >= 3
    raise InputError(
        expected("the first of the pair", SHAPES, f"shape {tuple(images.shape)}"),
        where="the loader",
        fix="give (images, labels), not (labels, images)"
        if is_turned
        else "only pictures are examined: give them with their sides, and let the model flatten them",
    )


def _two(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, Mapping):
        return tuple(next((batch[key] for key in keys if key in batch), None) for keys in (IMAGES, LABELS))  # pyright: ignore[reportReturnType]
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return batch[0], batch[1]
    return None, None


def _told(batch: Any) -> str:
    """Its kind, and what is in it."""
    name = type(batch).__name__
    if isinstance(batch, Mapping):
        return f"{name} with {', '.join(f'{key} ({type(one).__name__})' for key, one in batch.items())}"
    if isinstance(batch, (tuple, list)):
        return f"{name} of ({', '.join(type(one).__name__ for one in batch[:4])}{', ...' if len(batch) > 4 else ''})"
    return name
