"""CIFAR in its four published forms, unpacked and in archives; pickles that want to run something are refused."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, CIFAR100

from vitscope.core.errors import DataError
from vitscope.data.config import DataConfig
from vitscope.data.sources.cifar import CifarFiles, unpickle

CONFIG = DataConfig(name="cifar")
RNG = np.random.default_rng(0)
BATCH = 12
TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
HUNDRED = [f"fine{number}" for number in range(100)]


def batch(classes: int, count: int = BATCH) -> tuple[np.ndarray, list[int]]:
    return RNG.integers(0, 256, (count, 3072), dtype=np.uint8), [(7 * n) % classes for n in range(count)]


def old_pickle(values: dict[str, Any]) -> bytes:
    """As Python 2 wrote the real files: texts are bytes, and numpy's parts are under numpy.core."""

    def coded(value: Any) -> Any:
        if isinstance(value, dict):
            return {coded(key): coded(item) for key, item in value.items()}
        if isinstance(value, list):
            return [coded(item) for item in value]
        return value.encode() if isinstance(value, str) else value

    class Python2Pickler(pickle._Pickler):
        """Bytes as Python 2's strings, protocol 2."""

        def save_bytes(self, value: bytes) -> None:
            self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)
            self.memoize(value)

        dispatch = pickle._Pickler.dispatch | {bytes: save_bytes}

    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(coded(values))
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


class Made:
    """A data set in one form: what its files hold and what must come out."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.classes = 100 if "100" in form else 10
        self.names = HUNDRED if self.classes == 100 else TEN
        trains = ["train"] if self.classes == 100 else [f"data_batch_{n}" for n in range(1, 6)]
        test = "test" if self.classes == 100 else "test_batch"
        self.files: dict[str, bytes] = {}
        self.where: list[str] = []
        pixels, self.labels = [], []
        binary = "bin" in form
        for name in [*trains, test]:
            # every class is trained, whatever is tested
            count = 100 if name == "train" else BATCH
            rows, labels = batch(self.classes, count)
            pixels.append(rows)
            self.labels += labels
            file = f"{name}.bin" if binary else name
            self.where += [f"{file}, picture {n} (counted from 0)" for n in range(count)]
            self.files[file] = self._binary(rows, labels) if binary else self._pickled(name, rows, labels)
        if binary:
            meta = "fine_label_names.txt" if self.classes == 100 else "batches.meta.txt"
            self.files[meta] = ("\n".join(self.names) + "\n\n").encode()
        elif self.classes == 100:
            self.files["meta"] = old_pickle({"fine_label_names": self.names, "coarse_label_names": ["x"] * 20})
        else:
            self.files["batches.meta"] = old_pickle({"num_cases_per_batch": 10000, "label_names": self.names})
        rows = np.concatenate(pixels)
        self.pixels = np.stack([rows[:, c * 1024 : (c + 1) * 1024].reshape(-1, 32, 32) for c in range(3)], axis=-1)

    def _binary(self, rows: np.ndarray, labels: list[int]) -> bytes:
        before = np.array([[99, label] if self.classes == 100 else [label] for label in labels], dtype=np.uint8)
        return np.concatenate([before, rows], axis=1).tobytes()

    def _pickled(self, name: str, rows: np.ndarray, labels: list[int]) -> bytes:
        key = "fine_labels" if self.classes == 100 else "labels"
        other = {"coarse_labels": [1] * len(labels)} if self.classes == 100 else {}
        names = [f"{n}.png" for n in range(len(labels))]
        return old_pickle({"batch_label": name, key: labels, **other, "data": rows, "filenames": names})

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        (folder / "readme.html").write_text("<html>")
        return folder

    def pack(self, file: Path, inside: str | None = None) -> Path:
        with tarfile.open(file, "w:gz") as archive:
            for name, content in self.files.items():
                member = tarfile.TarInfo(f"{self.form if inside is None else inside}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return file


FORMS = ["cifar-10-batches-py", "cifar-100-python", "cifar-10-batches-bin", "cifar-100-binary"]


def opened(path: Path) -> CifarFiles:
    assert CifarFiles.looks_like(path)
    return CifarFiles.open(path, CONFIG)


@pytest.mark.parametrize("place", ["itself", "below", "archive"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_every_place(tmp_path: Path, form: str, place: str) -> None:
    made = Made(form)
    match place:
        case "itself":
            path = made.write(tmp_path / "any name")
        case "below":
            path = made.write(tmp_path / "data" / form).parent
        case _:
            path = made.pack(tmp_path / f"{form}.tar.gz")
    before = sorted(tmp_path.rglob("*"))
    source = opened(path)
    assert source.class_names == tuple(made.names)
    assert source.labels.tolist() == made.labels
    tested = BATCH
    assert source.parts["train"].tolist() == list(range(len(made.labels) - tested))
    assert source.parts["test"].tolist() == list(range(len(made.labels) - tested, len(made.labels)))
    for index in range(len(source)):
        assert np.array_equal(source.read(index), made.pixels[index])
        assert source.where(index) == made.where[index]
    assert np.array_equal(np.asarray(source.picture(5)), made.pixels[5])
    assert source.notes == []
    assert sorted(tmp_path.rglob("*")) == before  # nothing was unpacked


@pytest.mark.parametrize("form", FORMS[:2])
def test_torchvision_reads_the_same(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Made(form).write(tmp_path / form)
    kind = CIFAR100 if "100" in form else CIFAR10
    monkeypatch.setattr(kind, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *args: True)
    source = opened(tmp_path / form)
    for train, part in ((True, "train"), (False, "test")):
        oracle = kind(tmp_path, train=train)
        assert np.array_equal(oracle.data, np.stack([source.read(n) for n in source.parts[part]]))
        assert oracle.targets == source.labels[source.parts[part]].tolist()
        assert tuple(oracle.classes) == source.class_names


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    rows, labels = batch(10)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"data": rows, "labels": labels}, protocol=protocol))
    (tmp_path / "batches.meta").write_bytes(pickle.dumps({"label_names": TEN}, protocol=protocol))
    source = opened(tmp_path)
    assert np.array_equal(source.read(3), rows[3].reshape(3, 32, 32).transpose(1, 2, 0))
    assert source.labels.tolist() == labels
    assert source.parts == {}
    assert any("data_batch_2 and data_batch_3 and" in note for note in source.notes)
    assert any("test_batch is not there" in note for note in source.notes)


def test_an_archive_with_another_folder_inside(tmp_path: Path) -> None:
    made = Made(FORMS[0])
    source = CifarFiles.open(made.pack(tmp_path / "x.tgz", inside="./some/place"), CONFIG)
    assert np.array_equal(source.read(9), made.pixels[9])


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path, function: Any = os.mkdir) -> None:
        self.target, self.function = target, function

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, (str(self.target),)


@pytest.mark.parametrize("name", ["data_batch_1", "batches.meta"])
@pytest.mark.parametrize("archived", [False, True])
def test_a_pickle_that_would_make_a_folder_does_not(tmp_path: Path, name: str, archived: bool) -> None:
    sprung = tmp_path / "sprung"
    made = Made(FORMS[0])
    made.files[name] = pickle.dumps({"data": Trap(sprung), "labels": [0]})
    path = made.pack(tmp_path / "c.tar.gz") if archived else made.write(tmp_path / "c")
    with pytest.raises(DataError, match=r"the pickle asks for 'posix\.mkdir'") as refusal:
        opened(path)
    assert refusal.value.where == f"{path}: {name}"
    assert not sprung.exists()
    pickle.loads(made.files[name])
    assert sprung.exists()  # the trap works where it is let


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(V1+1\ntR.",
        b"cbuiltins\ngetattr\n.",
        b"c__builtin__\nexec\n(S'x=1'\ntR.",
        b"cnumpy.testing\nrunstring\n.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        b"c_codecs\ndecode\n.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
        b"(S'x'\nios\nsystem\n.",
    ],
)
def test_every_other_name_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="which no CIFAR file needs"):
        unpickle(content, "file")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        b"\x80\x04N.",
        b"cnumpy\nndarray\n.",
        b"(lp0\n.",
        b"cnumpy\nndarray\n}b.",  # wants to change what a name stands for
        b"cnumpy\nndarray\n(N}S'_name'\nS'x'\nstb.",
        b"\x82\x01.",
        b"P1\n.",
        pickle.dumps({"data": [1]})[:-4],
    ],
)
def test_damaged_pickles_are_refused(content: bytes) -> None:
    with pytest.raises(DataError) as refusal:
        unpickle(content, "file")
    assert refusal.value.where == "file"


ROWS, LABELS = batch(10)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"labels": LABELS}, "no array 'data'"),
        ({"data": ROWS}, "no list of whole numbers 'labels'"),
        ({"data": ROWS, "labels": ["a"] * BATCH}, "no list of whole numbers"),
        ({"data": ROWS, "labels": [-1] * BATCH}, "no list of whole numbers"),
        ({"data": ROWS, "labels": LABELS[:-1]}, "12 pictures but 11 labels"),
        ({"data": ROWS[:, :-1].copy(), "labels": LABELS}, "'data' is not"),
        ({"data": ROWS.astype(np.int16), "labels": LABELS}, "'data' is not"),
        ({"data": np.array([{}] * BATCH), "labels": LABELS}, "'data' is not"),
        ({"data": ROWS.tolist(), "labels": LABELS}, "no array 'data'"),
        ({"data": ROWS, "labels": [10] * BATCH}, "label: expected 0 to 9, received 10"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles_of_something_else_are_refused(
    tmp_path: Path, values: dict[str, Any], words: str, protocol: int
) -> None:
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(values, protocol=protocol))
    (tmp_path / "batches.meta").write_bytes(old_pickle({"label_names": TEN}))
    with pytest.raises(DataError, match=words):
        opened(tmp_path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    made = Made(FORMS[2])
    made.files["data_batch_3.bin"] = made.files["data_batch_3.bin"][:-1]
    with pytest.raises(DataError, match="no whole number of pictures") as refusal:
        opened(made.write(tmp_path / "a"))
    assert (refusal.value.where or "").endswith("data_batch_3.bin")
    archive = Made(FORMS[2]).pack(tmp_path / "c.tar.gz")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match="cannot be read"):
        CifarFiles.open(archive, CONFIG)
    (tmp_path / "text.tar.gz").write_text("<html>")
    with pytest.raises(DataError, match="cannot be read"):
        CifarFiles.open(tmp_path / "text.tar.gz", CONFIG)
    with pytest.raises(DataError, match="no CIFAR files found"):
        CifarFiles.open(tmp_path, CONFIG)


def test_an_archive_that_unpacks_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitscope.data.sources.cifar.LARGEST_FILE_BYTES", 1000)
    made = Made(FORMS[0])
    for path in (made.pack(tmp_path / "c.tar.gz"), made.write(tmp_path / "c")):
        with pytest.raises(DataError, match="bytes are too many"):
            CifarFiles.open(path, CONFIG)


def test_two_sets_in_one_folder_must_be_told_apart(tmp_path: Path) -> None:
    for form in FORMS[:2]:
        Made(form).write(tmp_path / form)
    with pytest.raises(DataError, match="several data sets in one folder: cifar-10-batches-py and cifar-100-python"):
        opened(tmp_path)


def test_copies_and_hashes(tmp_path: Path) -> None:
    made = Made(FORMS[0])
    source = opened(made.write(tmp_path / "a"))
    copy = pickle.loads(pickle.dumps(source))
    assert np.array_equal(copy.read(20), made.pixels[20])
    assert copy.content_hash() == source.content_hash() == opened(made.pack(tmp_path / "a.tar.gz")).content_hash()
    assert opened(Made(FORMS[0]).write(tmp_path / "b")).content_hash() != source.content_hash()


def test_looks_like_nothing_else(tmp_path: Path) -> None:
    for name in ("train/cat", "test/cat"):
        (tmp_path / "folder" / name).mkdir(parents=True)
    (tmp_path / "train").write_text("x")
    (tmp_path / "text.tar.gz").write_text("x")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(tmp_path / "train", "other/train")
    for path in (tmp_path, tmp_path / "folder", tmp_path / "text.tar.gz", tmp_path / "other.tar", Path("\0.tar")):
        assert not CifarFiles.looks_like(path)
