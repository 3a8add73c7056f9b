"""NumPy arrays: names, axes, ranges, labels; what is pickled stays shut."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitscope.core.errors import DataError
from vitscope.data.config import DataConfig
from vitscope.data.decode import BadImageError
from vitscope.data.sources.npz import NpzArrays

CONFIG = DataConfig(name="arrays")
RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (6, 8, 7, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (6, 8, 7), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0])


def opened(folder: Path, compressed: bool = True, **arrays: Any) -> NpzArrays:
    file = folder / "set.npz"
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    assert NpzArrays.looks_like(file)
    return NpzArrays.open(file, CONFIG)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ("x_train y_train x_test y_test x_val y_val", ["train", "test", "val"]),
        ("train_images train_labels val_images val_labels test_images test_labels", ["train", "val", "test"]),
        ("x_test y_test x_train y_train x_valid y_valid", ["test", "train", "valid"]),
    ],
)
def test_keras_and_medmnist_names(tmp_path: Path, names: str, parts: list[str], compressed: bool) -> None:
    keys = names.split()
    arrays: dict[str, np.ndarray] = {}
    for number, part in enumerate(parts):
        arrays |= {keys[2 * number]: np.roll(COLOUR, number, 0), keys[2 * number + 1]: np.roll(LABELS, number)[:, None]}
        assert part in keys[2 * number]
    source = opened(tmp_path, compressed, **arrays)
    assert source.class_names == ("0", "1", "2")
    assert set(source.parts) == set(parts)
    for number, part in enumerate(parts):
        for row, index in enumerate(source.parts[part]):
            assert np.array_equal(source.read(index), np.roll(COLOUR, number, 0)[row])
            assert source.labels[index] == np.roll(LABELS, number)[row]
    assert source.parts["train"][0] == 0
    assert source.notes == []


@pytest.mark.parametrize(
    "names", [("images", "labels"), ("x", "y"), ("X", "y"), ("data", "target"), ("Data", "Labels")]
)
def test_a_pool(tmp_path: Path, names: tuple[str, str]) -> None:
    source = opened(tmp_path, **{names[0]: GREY, names[1]: LABELS}, other=np.zeros(3))
    assert source.parts == {}
    assert source.labels.tolist() == LABELS.tolist()
    assert all(np.array_equal(source.read(n), GREY[n]) for n in range(6))
    assert source.where(4) == f"set.npz: {names[0]}, picture 4 (counted from 0)"


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (GREY, GREY),
        (GREY[..., None], GREY[..., None]),
        (GREY[:, None], GREY[..., None]),
        (COLOUR, COLOUR),
        (COLOUR.transpose(0, 3, 1, 2), COLOUR),
        (COLOUR[:, :3], COLOUR[:, :3]),  # (N, 3, W, 3): could be both, the last axis counts
        (GREY > 99, (GREY > 99) * np.uint8(255)),
        (GREY.astype(np.int64), GREY),
        (GREY.astype(np.uint16) * 257, GREY),
        (GREY.astype(np.float32) / 255, GREY),
        (GREY.astype(np.float64), GREY),
        (GREY.astype(np.float64) / 127.5 - 1, GREY),
        (GREY.astype(">f4") / 255, GREY),
    ],
)
def test_axes_and_ranges(tmp_path: Path, stored: np.ndarray, shown: np.ndarray) -> None:
    source = opened(tmp_path, x=stored, y=LABELS)
    for index in range(6):
        read = source.read(index)
        assert read.dtype == np.uint8
        assert np.array_equal(read, shown[index]), index
        source.picture(index)


def test_one_scale_for_all_keeps_dark_pictures_dark(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 4), dtype=np.float32)
    pixels[0], pixels[1] = 0.5, 200.0
    source = opened(tmp_path, x_train=pixels[1:], y_train=[0], x_test=pixels[:1], y_test=[0])
    assert source.read(0).max() == 200
    assert source.read(1).max() == 0  # rint(0.5) is 0; on its own scale it would be 128
    assert source.notes == ["float32 values: 0 to 255 scaled to 0 to 255"]


def test_any_other_range_is_stretched_once(tmp_path: Path) -> None:
    pixels = np.linspace(-300, 700, 2 * 16).reshape(2, 4, 4)
    source = opened(tmp_path, x=pixels, y=[0, 1])
    both = np.concatenate([source.read(0), source.read(1)])
    assert np.array_equal(both, np.rint(np.linspace(0, 255, 32)).reshape(8, 4))


def test_a_picture_that_is_not_finite_fails_alone(tmp_path: Path) -> None:
    pixels = np.full((2, 4, 4), 0.5)
    pixels[1, 0, 0] = np.nan
    source = opened(tmp_path, x=pixels, y=[0, 1])
    assert source.read(0).max() == 128
    with pytest.raises(BadImageError, match="not finite") as refusal:
        source.picture(1)
    assert "picture 1" in (refusal.value.where or "")


@pytest.mark.parametrize(
    ("labels", "numbers", "names"),
    [
        (np.eye(3)[LABELS], LABELS, ("0", "1", "2")),
        (LABELS.astype(np.float32), LABELS, ("0", "1", "2")),
        (LABELS + 5, LABELS, ("5", "6", "7")),
        (np.array(list("abccba")), LABELS, ("a", "b", "c")),
        (np.array([b"a", b"b", b"c", b"c", b"b", b"a"]), LABELS, ("a", "b", "c")),
        (LABELS > 0, LABELS > 0, ("0", "1")),
        (LABELS.astype(np.uint8)[:, None], LABELS, ("0", "1", "2")),
    ],
)
def test_labels(tmp_path: Path, labels: np.ndarray, numbers: np.ndarray, names: tuple[str, ...]) -> None:
    source = opened(tmp_path, x=GREY, y=labels)
    assert source.labels.tolist() == numbers.astype(int).tolist()
    assert source.class_names == names


def test_class_names(tmp_path: Path) -> None:
    source = opened(tmp_path, x=GREY, y=LABELS, class_names=np.array(["cat", "dog", "owl", "yak"]))
    assert source.class_names == ("cat", "dog", "owl", "yak")
    with pytest.raises(DataError, match="label: expected 0 to 1, received 2"):
        opened(tmp_path, x=GREY, y=LABELS, class_names=np.array(["cat", "dog"]))
    with pytest.raises(DataError, match="label: expected 0 to 1, received 2"):
        opened(tmp_path, x_train=GREY, y_train=LABELS, x_test=GREY, y_test=LABELS, class_names=["cat", "dog"])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": GREY, "y": LABELS[:5]}, "6 pictures but 5 labels"),
        ({"x": GREY}, "no labels for the array 'x'"),
        ({"x_train": GREY, "y_train": LABELS, "x_test": GREY}, "no labels for the array 'x_test'"),
        ({"arr_0": GREY, "arr_1": LABELS}, "no pictures found; the arrays are 'arr_0', 'arr_1'"),
        ({"y": LABELS}, "no pictures found"),
        ({"x": GREY, "images": GREY, "y": LABELS}, "'x' and 'images' may both be the images"),
        ({"x": GREY.reshape(6, -1), "y": LABELS}, "pictures: expected"),
        ({"x": COLOUR[..., :2], "y": LABELS}, "pictures: expected"),
        ({"x": GREY + 0j, "y": LABELS}, "complex128"),
        ({"x": GREY, "y": np.ones((6, 14))}, "several labels per picture"),
        ({"x": GREY, "y": LABELS + 0.5}, "no whole numbers"),
        ({"x": GREY, "y": np.zeros((6, 2, 2))}, r"labels: expected \(N,\)"),
        ({"x": GREY[:0], "y": LABELS[:0]}, "no pictures found"),
        ({"x_train": GREY, "y_train": LABELS * 0, "x_val": GREY, "y_val": LABELS}, "without a picture in 'train'"),
    ],
)
def test_refusals(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(DataError, match=words):
        opened(tmp_path, **arrays)


class Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "sprung")] * 6, dtype=object)
    with pytest.raises(DataError, match="pickled objects, which are never loaded"):
        opened(tmp_path, x=GREY, y=trap)
    (tmp_path / "set.npz").write_bytes(pickle.dumps(trap))
    with pytest.raises(DataError):
        NpzArrays.open(tmp_path / "set.npz", CONFIG)
    assert not (tmp_path / "sprung").exists()
    np.load(tmp_path / "set.npz", allow_pickle=True)
    assert (tmp_path / "sprung").exists()  # the trap works where it is let


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    opened(tmp_path, x=GREY, y=LABELS)
    file = tmp_path / "set.npz"
    whole = file.read_bytes()
    for content in (whole[:-30], whole[:100], b"", b"PK", whole[:60] + b"\0" * 60 + whole[120:]):
        file.write_bytes(content)
        with pytest.raises(DataError) as refusal:
            NpzArrays.open(file, CONFIG)
        assert refusal.value.where == str(file)


def test_a_folder_of_npy_files_stays_on_the_disk(tmp_path: Path) -> None:
    large = RNG.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", large)
    np.save(tmp_path / "labels.npy", np.arange(200) % 4)
    np.save(tmp_path / "class_names.npy", np.array(list("abcd")))
    assert NpzArrays.looks_like(tmp_path)
    source = NpzArrays.open(tmp_path, CONFIG)
    assert isinstance(source.blocks[0], np.memmap)
    packed = pickle.dumps(source)
    assert len(packed) < large.nbytes / 20
    copy = pickle.loads(packed)
    assert all(np.array_equal(copy.read(n), large[n]) for n in range(200))
    assert not isinstance(copy.read(0), np.memmap)
    assert (copy.class_names, copy.where(7)) == (("a", "b", "c", "d"), "images.npy, picture 7 (counted from 0)")
    assert copy.content_hash() == source.content_hash()
    np.savez(tmp_path / "same.npz", images=large, labels=np.arange(200) % 4)
    assert NpzArrays.open(tmp_path / "same.npz", CONFIG).content_hash() == source.content_hash()


def test_the_hash_follows_pixels_labels_and_type(tmp_path: Path) -> None:
    changed = GREY.copy()
    changed[5, 7, 6] ^= 1
    sets = [(GREY, LABELS), (changed, LABELS), (GREY, LABELS[[1, 0, *range(2, 6)]]), (GREY.astype(np.int32), LABELS)]
    assert len({opened(tmp_path, x=x, y=y).content_hash() for x, y in sets}) == 4


def test_looks_like_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("no zip")
    np.save(tmp_path / "images.npy", GREY)
    for path in (tmp_path, tmp_path / "a.npz", tmp_path / "images.npy", tmp_path / "no.npz", Path("\0.npz")):
        assert not NpzArrays.looks_like(path)
