"""CIFAR-10 and CIFAR-100 as they are downloaded: pickled ("python") or binary, unpacked or in their .tar.gz.

Every picture is a row of 3072 bytes: 1024 red, 1024 green, 1024 blue, each 32 rows of 32 -> (32, 32, 3). Binary rows
have the label before them (CIFAR-100: coarse, then fine). Archives are read in memory and never unpacked to the disk.
Source: www.cs.toronto.edu/~kriz/cifar.html.

A pickle is a program. Here nothing it names is run: names that the real files use are written down as records, which
are looked at afterwards; any other name ends the reading.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

import numpy as np

from vitscope.core.errors import DataError, expected
from vitscope.data.config.data import DataConfig
from vitscope.data.decode import bad_image
from vitscope.data.sources.arrays import ArraySource, Block

ROW_BYTES = 3 * 32 * 32
LARGEST_FILE_BYTES = 2**28
"""The largest real file has 155 MB; anything much larger is not one, and an archive could unpack to any size."""
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")


class Form(NamedTuple):
    """One of the four forms in which CIFAR is published."""

    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    """The labels' key in a pickle."""
    names: str
    """The class names' key in a pickle."""
    label_bytes: int | None
    """Bytes before each binary row, the last of them the label; None: pickled."""


_FIVE = tuple(f"data_batch_{number}" for number in range(1, 6))
_FIVE_BIN = tuple(f"{name}.bin" for name in _FIVE)
FORMS = (
    Form("cifar-10-batches-py", _FIVE, "test_batch", "batches.meta", "labels", "label_names", None),
    Form("cifar-100-python", ("train",), "test", "meta", "fine_labels", "fine_label_names", None),
    Form("cifar-10-batches-bin", _FIVE_BIN, "test_batch.bin", "batches.meta.txt", "", "", 1),
    Form("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", "", "", 2),
)

Files = Mapping[str, Callable[[], bytes]]
"""What can be read, by file name."""


class CifarFiles(ArraySource):
    """CIFAR-10 or CIFAR-100."""

    kind = "CIFAR files"

    @classmethod
    def looks_like(cls, path: Path) -> bool:
        try:
            if path.is_dir():
                return any(_form_in(_files(place)) for place in _places(path))
            if not path.is_file() or not path.name.lower().endswith(ARCHIVE_SUFFIXES):
                return False
            with tarfile.open(path) as archive:
                first = archive.next()
            known = {form.folder for form in FORMS}
            return first is not None and not known.isdisjoint(PurePosixPath(first.name).parts)
        except (OSError, ValueError, EOFError, zlib.error, tarfile.TarError):
            return False

    @classmethod
    def open(cls, path: Path, config: DataConfig) -> Self:
        del config
        path = Path(path)
        form, files = _found(path)
        notes = []
        blocks = []
        for part, names in (("train", form.train), ("test", (form.test,))):
            missing = [name for name in names if name not in files]
            if missing:
                notes.append(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there: read without")
            for name in (name for name in names if name in files):
                pixels, labels = _pictures(form, files[name](), f"{path}: {name}")
                blocks.append(Block(name, part, pixels, labels))
        class_names = _class_names(form, files[form.meta](), f"{path}: {form.meta}") if form.meta in files else None
        return cls(str(path), blocks, class_names, notes)


def _found(path: Path) -> tuple[Form, Files]:
    try:
        folders = [_files(place) for place in _places(path)] if path.is_dir() else _archived(path)
    except (OSError, EOFError, zlib.error, tarfile.TarError, MemoryError) as error:
        reason = "it ends too early" if isinstance(error, EOFError) else bad_image(error).what
        raise _damaged(str(path), f"the files cannot be read: {reason}") from None
    found = [(form, files) for files in folders if (form := _form_in(files))]
    if not found:
        raise DataError(
            "no CIFAR files found",
            where=str(path),
            fix="give the .tar.gz as downloaded, or the folder out of it",
        )
    if len({form.folder for form, _ in found}) > 1:
        both = " and ".join(form.folder for form, _ in found)
        raise DataError(f"several data sets in one folder: {both}", where=str(path), fix="give the path of one of them")
    return found[0]


def _places(path: Path) -> list[Path]:
    """The folder itself, or where it is none of the forms, those below it with the forms' own names."""
    return [path] if _form_in(_files(path)) else [path / form.folder for form in FORMS]


def _form_in(files: Files) -> Form | None:
    """By a training file and the class names; `train` and `test` alone could be anything."""
    for form in FORMS:
        if form.meta in files and any(name in files for name in form.train):
            return form
    return next((form for form in FORMS if len(form.train) > 1 and all(name in files for name in form.train)), None)


def _files(folder: Path) -> Files:
    names = {name for form in FORMS for name in (*form.train, form.test, form.meta)}
    return {name: lambda file=folder / name: _limited(file) for name in names if (folder / name).is_file()}


def _limited(file: Path) -> bytes:
    if file.stat().st_size > LARGEST_FILE_BYTES:
        raise _damaged(str(file), f"{file.stat().st_size:,} bytes are too many")
    return file.read_bytes()


def _archived(path: Path) -> list[Files]:
    """The files of interest, by folder. All are read in one pass: an archive cannot be read in any order quickly."""
    names = {name for form in FORMS for name in (*form.train, form.test, form.meta)}
    folders: dict[str, dict[str, Callable[[], bytes]]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            place = PurePosixPath(member.name)
            if not member.isfile() or place.name not in names:
                continue
            if member.size > LARGEST_FILE_BYTES:
                raise _damaged(f"{path}: {member.name}", f"{member.size:,} bytes are too many")
            file = archive.extractfile(member)
            content = b"" if file is None else file.read()
            folders.setdefault(str(place.parent), {})[place.name] = lambda content=content: content
    return list(folders.values())


def _pictures(form: Form, content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(N, 32, 32, 3) and (N,)."""
    if form.label_bytes is not None:
        if not content or len(content) % (form.label_bytes + ROW_BYTES):
            raise _damaged(where, f"{len(content):,} bytes are no whole number of pictures")
        rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, form.label_bytes + ROW_BYTES)
        return _upright(rows[:, form.label_bytes :]), rows[:, form.label_bytes - 1].astype(np.int64)
    values = unpickle(content, where)
    labels = values.get(form.labels.encode())
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 2**31 for label in labels):
        raise _damaged(where, f"no list of whole numbers '{form.labels}' in it")
    return _upright(_rows(values.get(b"data"), where)), np.array(labels, dtype=np.int64)


def _upright(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _class_names(form: Form, content: bytes, where: str) -> list[str]:
    if form.label_bytes is not None:
        return [line.strip() for line in content.decode("utf-8", "backslashreplace").splitlines() if line.strip()]
    names = unpickle(content, where).get(form.names.encode())
    names = [_as_bytes(name) for name in names] if isinstance(names, list) else [None]
    if not all(isinstance(name, bytes) for name in names):
        raise _damaged(where, f"no list of texts '{form.names}' in it")
    return [name.decode("utf-8", "backslashreplace") for name in names]


class _Record:
    """A call the pickle asks for, written down instead of made."""

    __slots__ = ("args", "name", "state")

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name, self.args, self.state = name, args, None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Named:
    """A function or class the pickle names. Has no attributes a pickle could set."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any) -> _Record:
        return _Record(self._name, args)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a name cannot be changed")


class _RecordingUnpickler(pickle.Unpickler):
    """Knows the names by which old and new numpy write an array, and no others."""

    KNOWN = frozenset(
        (
            *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
            *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        )
    )

    def find_class(self, module: str, name: str) -> Any:  # type: ignore[override]
        if (module, name) not in self.KNOWN:
            raise DataError(f"the pickle asks for '{module}.{name}', which no CIFAR file needs")
        return _Named(name)


def unpickle(content: bytes, where: str) -> dict[Any, Any]:
    """The dictionary in a pickle, arrays as records. Nothing is imported or called."""
    try:
        found = _RecordingUnpickler(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(
            error.what, where=where, fix="do not trust this file; get CIFAR from its own page: nothing was run"
        ) from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise _damaged(where, f"the pickle cannot be read: {bad_image(error).what}") from None
    if not isinstance(found, dict):
        raise _damaged(where, expected("pickle", "a dictionary", type(found).__name__))
    return {_as_bytes(key): value for key, value in found.items()}


def _as_bytes(value: Any) -> Any:
    """Text as bytes, however it was written: Python 3 writes bytes for Python 2 as a call that encodes text."""
    match value:
        case str():
            return value.encode()
        case _Record(name="encode", args=(str(text), "latin1" | "latin-1" | b"latin1")):
            return text.encode("latin1", "replace")
    return value


def _rows(record: Any, where: str) -> np.ndarray:
    """(N, 3072) bytes from the record of an array, whichever way numpy wrote it."""
    match record:
        case _Record(name="_reconstruct", state=(_, shape, dtype, False, raw)):
            pass
        case _Record(name="_frombuffer", args=(raw, dtype, shape, "C")):
            pass
        case _:
            raise _damaged(where, "no array 'data' in it")
    if isinstance(raw, _Record):
        raw = _as_bytes(raw)
    match dtype:
        case _Record(name="dtype", args=("u1" | b"u1" | "|u1" | b"|u1" | "uint8", *_)):
            whole = isinstance(raw, bytes | bytearray) and len(raw) % ROW_BYTES == 0
            if whole and shape == (len(raw) // ROW_BYTES, ROW_BYTES):
                return np.frombuffer(raw, dtype=np.uint8).reshape(shape)
    raise _damaged(where, f"'data' is not (N, {ROW_BYTES}) bytes")


def _damaged(where: str, what: str) -> DataError:
    return DataError(what, where=where, fix="get the file again: it is damaged, or no CIFAR file")
