"""NumPy arrays: one .npz file, or a folder of .npy files, which stay on the disk until they are read.

Names as Keras (x_train, y_train, x_test, ...) and MedMNIST (train_images, train_labels, val_images, ...) use them, or
plain ones (images and labels, x and y, data and target: one pool); class_names may be beside. Pictures are (N, H, W),
(N, H, W, C) or (N, C, H, W) of any numbers; labels (N,), (N, 1) or one-hot (N, K). Pickled content is never loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from vitscope.core.errors import DataError, expected
from vitscope.data.config.data import DataConfig
from vitscope.data.decode import bad_image
from vitscope.data.sources.arrays import ArraySource, Block
from vitscope.data.splits import TRAIN, part_called

IMAGE_WORDS = ("x", "images", "image", "imgs", "data", "pixels")
LABEL_WORDS = ("y", "labels", "label", "targets", "target")
NAME_WORDS = ("class_names", "label_names", "classes")
CHANNELS = (1, 3, 4)
ZIP_START = b"PK"
LOOKED_AT_ONCE = 4096
"""Pictures whose range is taken at once: a memory-mapped array need not fit into memory."""
FIX = "expected arrays x_train and y_train (x_test, y_test), train_images and train_labels, or images and labels"


class _Scale(NamedTuple):
    """Values from `bottom` to `top` become 0 to 255."""

    bottom: float
    top: float


class NpzArrays(ArraySource):
    """Pictures and labels in arrays of their own."""

    kind = "NumPy arrays"

    def __init__(self, place: str, blocks: Sequence[Block], class_names: Sequence[str] | None = None) -> None:
        # One scale for all: each picture on its own scale would make the dark ones as bright as the rest.
        self._scale, notes = _scale([block.pixels for block in blocks])
        self._channels_first = [_channels_first(block, place) for block in blocks]
        super().__init__(place, blocks, class_names, notes)

    @classmethod
    def looks_like(cls, path: Path) -> bool:
        try:
            if path.is_dir():
                roles = {_role(file.stem)[1] for file in path.glob("*.npy")}
                return {"images", "labels"} <= roles
            if path.suffix.lower() != ".npz" or not path.is_file():
                return False
            with path.open("rb") as file:
                return file.read(2) == ZIP_START
        except (OSError, ValueError):
            return False

    @classmethod
    def open(cls, path: Path, config: DataConfig) -> Self:
        del config
        arrays, files = _load(Path(path))
        found: dict[tuple[str | None, str], str] = {}
        for key in arrays:
            part, role = _role(key)
            if role is not None and found.setdefault((part, role), key) != key:
                both = f"'{found[part, role]}' and '{key}' may both be the {role}"
                raise DataError(both, where=str(path), fix="remove one of them")
        blocks = []
        for part, key in ((part, key) for (part, role), key in found.items() if role == "images"):
            if (part, "labels") not in found:
                raise DataError(f"no labels for the array '{key}'", where=str(path), fix=FIX)
            labels = _labels(arrays[found[part, "labels"]], f"{path}: {found[part, 'labels']}")
            blocks.append(Block(files[key], part, arrays[key], labels))
        if not blocks:
            keys = ", ".join(map(repr, list(arrays)[:12])) or "none"
            raise DataError(f"no pictures found; the arrays are {keys}", where=str(path), fix=FIX)
        blocks.sort(key=lambda block: block.part is not None and part_called(block.part) != TRAIN)
        names = next((arrays[key] for key in arrays if key.lower() in NAME_WORDS), None)
        texts = None if names is None or names.dtype.kind not in "US" else [_text(name) for name in names.ravel()]
        return cls(str(path), blocks, texts)

    def read(self, index: int) -> np.ndarray:
        block, row = self._find(index)
        pixels = self.blocks[block][row]
        if self._channels_first[block]:
            pixels = pixels.transpose(1, 2, 0)
        return np.array(pixels) if self._scale is None else _as_bytes(pixels, self._scale)

    def __getstate__(self) -> dict[str, Any]:
        """Arrays on the disk are opened anew by whoever gets a copy, not copied."""
        mapped = [str(block.filename) if isinstance(block, np.memmap) else block for block in self.blocks]
        return self.__dict__ | {"blocks": mapped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.blocks = [
            np.load(block, mmap_mode="r", allow_pickle=False) if isinstance(block, str) else block
            for block in state["blocks"]
        ]


def _load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays that have a meaning, and what people call each of them."""
    try:
        if path.is_dir():
            found = {file.stem: file for file in sorted(path.glob("*.npy"))}
            arrays = {key: np.load(file, mmap_mode="r", allow_pickle=False) for key, file in found.items()}
            return arrays, {key: file.name for key, file in found.items()}
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:  # numpy leaves a damaged file open
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("one array is not enough: pictures and labels are needed")
            wanted = [key for key in file.files if _role(key)[1] is not None or key.lower() in NAME_WORDS]
            keys = wanted or file.files
            arrays = {key: file[key] if wanted else np.empty(0) for key in keys}
            return arrays, {key: f"{path.name}: {key}" for key in arrays}
    except Exception as error:  # a damaged archive raises whatever zipfile, zlib and numpy's parser raise
        pickled = "allow_pickle" in str(error)
        raise DataError(
            "it holds pickled objects, which are never loaded: they can run programs"
            if pickled
            else f"the arrays cannot be read: {bad_image(error).what}",
            where=str(path),
            fix="save plain arrays of numbers or texts (not dtype=object)" if pickled else FIX,
        ) from None


def _role(key: str) -> tuple[str | None, str | None]:
    """Part and meaning of an array's name: 'x_valid' -> ('valid', 'images'), 'labels' -> (None, 'labels')."""
    words = key.lower().split("_")
    parts = [word for word in words if part_called(word)]
    rest = [word for word in words if not part_called(word)]
    if len(parts) > 1 or len(rest) != 1:
        return None, None
    role = "images" if rest[0] in IMAGE_WORDS else "labels" if rest[0] in LABEL_WORDS else None
    return (parts[0] if parts else None), role


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _labels(values: np.ndarray, where: str) -> np.ndarray:
    """(N,) whole numbers or texts, from (N,), (N, 1) or one-hot (N, K)."""
    if values.dtype.kind not in "biufUS":
        raise DataError(expected("labels", "numbers or texts", str(values.dtype)), where=where)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2 and values.dtype.kind not in "US":
        one_hot = ((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all()
        if not one_hot:
            raise DataError(
                "several labels per picture", where=where, fix="give one class per picture: (N,), or one-hot (N, K)"
            )
        values = values.argmax(axis=1)
    if values.ndim != 1:
        raise DataError(expected("labels", "(N,), (N, 1) or one-hot (N, K)", values.shape), where=where)
    if values.dtype.kind == "f" and not (np.isfinite(values).all() and (values == np.rint(values)).all()):
        raise DataError("labels that are no whole numbers", where=where, fix="number the classes from 0")
    return np.array(values) if values.dtype.kind in "US" else values.astype(np.int64)


def _channels_first(block: Block, place: str) -> bool:
    """(N, C, H, W)? Where both ends could be channels, the last one is: most arrays are stored so."""
    shape = block.pixels.shape
    if block.pixels.dtype.kind in "biuf":
        if len(shape) == 3 or (len(shape) == 4 and shape[3] in CHANNELS):
            return False
        if len(shape) == 4 and shape[1] in CHANNELS:
            return True
    raise DataError(
        expected("pictures", "numbers (N, H, W), (N, H, W, C) or (N, C, H, W) with 1, 3 or 4 channels", shape)
        + f" of {block.pixels.dtype}",
        where=f"{place}: {block.name}",
        fix="reshape flat rows to their height and width before saving",
    )


def _scale(arrays: Sequence[np.ndarray]) -> tuple[_Scale | None, list[str]]:
    """What becomes 0 and 255, from the types and the range of all pictures; None for bytes."""
    kinds: Mapping[str, np.ndarray] = {str(array.dtype): array for array in arrays}
    if set(kinds) == {"uint8"} or not all(array.dtype.kind in "biuf" for array in arrays):
        return None, []
    if "uint8" in kinds and any(array.dtype.kind == "f" for array in arrays):
        raise DataError(
            f"parts of different types: {', '.join(sorted(kinds))}",
            where="the pictures' arrays",
            fix="store all parts as uint8, or all as float: their scales cannot be told apart",
        )
    if set(kinds) == {"bool"}:
        return _Scale(0, 1), []
    low, high = _range(arrays)
    whole = all(array.dtype.kind in "biu" for array in arrays)
    tops = [255, 65535] if whole else [1, 255, 65535]
    if low >= 0 and high <= tops[-1]:
        scale = _Scale(0, next(top for top in tops if high <= top))
    elif not whole and low >= -1 and high <= 1:
        scale = _Scale(-1, 1)
    else:
        scale = _Scale(low, high if high > low else low + 1)
    return scale, [f"{' and '.join(kinds)} values: {scale.bottom:g} to {scale.top:g} scaled to 0 to 255"]


def _range(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    """Least and greatest finite value: a picture that is not finite fails when it is read, not all others with it."""
    lows, highs = [0.0], [0.0]
    for array in arrays:
        for start in range(0, len(array), LOOKED_AT_ONCE):
            chunk = np.asarray(array[start : start + LOOKED_AT_ONCE])
            finite = chunk[np.isfinite(chunk)] if chunk.dtype.kind == "f" else chunk
            if finite.size:
                lows.append(float(finite.min()))
                highs.append(float(finite.max()))
    return min(lows[1:] or lows), max(highs[1:] or highs)


def _as_bytes(pixels: np.ndarray, scale: _Scale) -> np.ndarray:
    wide = pixels.astype(np.float64)
    if not np.isfinite(wide).all():
        raise ValueError(f"{pixels.dtype} values that are not finite")
    return np.rint((wide - scale.bottom) * (255.0 / (scale.top - scale.bottom))).astype(np.uint8)
