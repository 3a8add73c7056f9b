"""IDX files: names, bytes, damage; the real MNIST where it is there. torchvision's reader is the oracle."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import MNIST

from vitscope.core.environment import data_roots
from vitscope.core.errors import DataError
from vitscope.data.config import DataConfig
from vitscope.data.sources.idx import IdxFiles, read_idx

CONFIG = DataConfig(name="idx")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 4, 5), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def packed(content: bytes) -> bytes:
    """gzip without the time of day: what names a test must be the same in every process that collects it."""
    return gzip.compress(content, mtime=0)


def put(folder: Path, stem: str, pixels: np.ndarray, labels: np.ndarray, end: str = "", mark: str = "-") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pack = packed if end else bytes
    (folder / f"{stem}images{mark}idx3-ubyte{end}").write_bytes(pack(idx(pixels)))
    (folder / f"{stem}labels{mark}idx1-ubyte{end}").write_bytes(pack(idx(labels)))


def opened(path: Path) -> IdxFiles:
    return IdxFiles.open(path, CONFIG)


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
@pytest.mark.parametrize("mark", ["-", "."])
def test_pixels_and_labels_come_back(tmp_path: Path, end: str, below: str, mark: str) -> None:
    put(tmp_path / below, "t10k-", PIXELS[:3], LABELS[:3], end, mark)
    put(tmp_path / below, "train-", PIXELS, LABELS, end, mark)
    assert IdxFiles.looks_like(tmp_path)
    source = opened(tmp_path)
    assert source.class_names == ("0", "1", "2")
    assert source.labels.tolist() == [*LABELS, *LABELS[:3]]
    assert {part: numbers.tolist() for part, numbers in source.parts.items()} == {
        "train": [0, 1, 2, 3, 4, 5],
        "t10k": [6, 7, 8],
    }
    for index, pixels in enumerate([*PIXELS, *PIXELS[:3]]):
        assert np.array_equal(source.read(index), pixels)
        assert np.array_equal(np.asarray(source.picture(index, in_chans=1)), pixels)
    assert source.where(7) == f"t10k-images{mark}idx3-ubyte{end}, picture 1 (counted from 0)"
    assert source.notes == []


def test_without_a_part_it_is_a_pool(tmp_path: Path) -> None:
    put(tmp_path, "", PIXELS, LABELS)
    assert opened(tmp_path).parts == {}


def test_emnist_letters_start_at_one(tmp_path: Path) -> None:
    put(tmp_path, "emnist-letters-train-", PIXELS, LABELS + 1, ".gz")
    put(tmp_path, "emnist-letters-test-", PIXELS, LABELS + 1, ".gz")
    source = opened(tmp_path)
    assert source.class_names == ("1", "2", "3")
    assert source.labels.tolist() == [*LABELS, *LABELS]
    assert set(source.parts) == {"train", "test"}
    assert "swapped" in source.notes[0]
    assert "numbered 0 to 2" in source.notes[1]


def test_of_several_sets_one_is_asked_for_by_its_file(tmp_path: Path) -> None:
    put(tmp_path, "emnist-digits-train-", PIXELS, LABELS, ".gz")
    put(tmp_path, "emnist-letters-train-", PIXELS[::-1], LABELS[::-1], ".gz")
    with pytest.raises(DataError, match="several data sets in one folder: 'emnist-digits', 'emnist-letters'"):
        opened(tmp_path)
    file = tmp_path / "emnist-letters-train-images-idx3-ubyte.gz"
    assert IdxFiles.looks_like(file)
    assert np.array_equal(opened(file).read(0), PIXELS[-1])


def test_a_file_that_a_browser_unpacked_is_read_by_its_content(tmp_path: Path) -> None:
    put(tmp_path, "train-", PIXELS, LABELS)
    for kind in ("images-idx3", "labels-idx1"):
        (tmp_path / f"train-{kind}-ubyte").rename(tmp_path / f"train-{kind}-ubyte.gz")
    assert np.array_equal(opened(tmp_path).read(5), PIXELS[5])


GOOD = idx(PIXELS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no header"),
        (GOOD[:10], "no header"),
        (GOOD[:-1], "ends too early"),
        (GOOD + b"x", "more than the 120 bytes"),
        (b"\0\0\x08\x01" + GOOD[4:], "magic number: expected 00000803, received 00000801"),
        (b"\0\0\x0d\x03" + GOOD[4:], "magic number"),
        (GOOD[:4] + struct.pack(">3I", 2**32 - 1, 28, 28) + b"x", "ends too early"),
        (GOOD[:4] + struct.pack(">3I", 2, 2**31, 2**31), "pixels"),
        (packed(GOOD)[:-20], "ends too early"),
        (packed(GOOD[:-1]), "ends too early"),
        (packed(GOOD)[:-6] + b"abcdef", "cannot be read"),
        (packed(GOOD)[:12] + b"\xff" * 60, "cannot be read"),
        (packed(GOOD[:4] + struct.pack(">3I", 2**32 - 1, 28, 28)), "ends too early"),
        (b"<html>not found</html>", "magic number"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    put(tmp_path, "train-", PIXELS, LABELS)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(content)
    with pytest.raises(DataError, match=words) as refusal:
        opened(tmp_path)
    assert refusal.value.where == str(file)


def test_counts_must_agree(tmp_path: Path) -> None:
    put(tmp_path, "train-", PIXELS, LABELS[:-1])
    with pytest.raises(DataError, match="6 pictures but 5 labels"):
        opened(tmp_path)


def test_labels_must_be_there(tmp_path: Path) -> None:
    put(tmp_path, "train-", PIXELS, LABELS)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="pictures without labels"):
        opened(tmp_path)


def test_a_class_that_was_never_trained_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "train-", PIXELS, LABELS)
    put(tmp_path, "test-", PIXELS, LABELS + 1)
    with pytest.raises(DataError, match="without a picture in 'train': '3'"):
        opened(tmp_path)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(gzip.compress(GOOD + bytes(200 * 2**20), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="more than the 120 bytes"):
            read_idx(file, axes=3)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_copies_and_hashes(tmp_path: Path) -> None:
    put(tmp_path / "a", "train-", PIXELS, LABELS)
    source = opened(tmp_path / "a")
    copy = pickle.loads(pickle.dumps(source))
    assert np.array_equal(copy.read(3), PIXELS[3])
    assert copy.content_hash() == source.content_hash()
    put(tmp_path / "b", "train-", PIXELS, LABELS, ".gz")
    assert opened(tmp_path / "b").content_hash() == source.content_hash()  # packing changes no picture
    changed = PIXELS.copy()
    changed[5, 3, 4] ^= 1
    put(tmp_path / "c", "train-", changed, LABELS)
    put(tmp_path / "d", "train-", PIXELS, np.roll(LABELS, 1))
    assert len({opened(tmp_path / name).content_hash() for name in "acd"}) == 3


def test_looks_like_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "images.txt").write_text("x")
    assert not IdxFiles.looks_like(tmp_path)
    assert not IdxFiles.looks_like(tmp_path / "images.txt")
    assert not IdxFiles.looks_like(tmp_path / "nowhere")
    assert not IdxFiles.looks_like(Path("\0"))


@pytest.fixture(scope="module")
def real_mnist() -> Path:
    found = next((root / "mnist" for root in data_roots() if IdxFiles.looks_like(root / "mnist")), None)
    if found is None:
        pytest.skip("no mnist/ under $VITSCOPE_DATA or data/")
    return found


def test_the_real_mnist(real_mnist: Path, tmp_path: Path) -> None:
    source = opened(real_mnist)
    train, test = source.parts["train"], source.parts["t10k"]
    assert (len(train), len(test)) == (60_000, 10_000)
    assert source.class_names == tuple("0123456789")
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(source.labels[train]).tolist() == counts
    assert np.bincount(source.labels[test]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    unpacked = gzip.decompress((real_mnist / "train-images-idx3-ubyte.gz").read_bytes())
    assert hashlib.md5(unpacked).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    assert unpacked[16:] == source.blocks[0].tobytes()

    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for file in real_mnist.glob("*-ubyte.gz"):
        (raw / file.name.removesuffix(".gz")).write_bytes(gzip.decompress(file.read_bytes()))
    for part, block in ((True, 0), (False, 1)):
        oracle = MNIST(tmp_path, train=part)
        assert np.array_equal(oracle.data.numpy(), source.blocks[block])
        assert np.array_equal(oracle.targets.numpy(), source.labels[train if part else test])
    for index in (0, 59_999):
        assert np.array_equal(np.asarray(source.picture(index, in_chans=1)), np.asarray(MNIST(tmp_path)[index][0]))
