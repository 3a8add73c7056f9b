"""S1: weights files made to do harm, and files that are none. Refused in words; nothing runs, memory stays small.

YAML that names Python objects is refused in tests/core/test_core_yaml.py.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.files import read_file
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)
CANARY = "canary"


class Runs:
    """Unpickled by anything but a careful reader, it makes a file."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {CANARY}",)


class Evaluates:
    def __reduce__(self) -> Any:
        return eval, (f"open({CANARY!r}, 'w').close()",)


def torch_file(content: Any, **settings: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **settings)
    return file.getvalue()


def legacy(content: Any) -> bytes:
    return torch_file(content, _use_new_zipfile_serialization=False)


def weights() -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in build_model(TINY).state_dict().items()}


def holding_itself() -> dict[str, Any]:
    content: dict[str, Any] = {"epoch": 3}
    content["model"] = content
    return content


def arguments(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(lr=0.1, **values)


def rewritten(content: bytes, change: Callable[[bytes], bytes], *, compress: bool = False) -> bytes:
    """A torch file with another data.pkl."""
    result = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(result, "w", kind) as new:
        for name in old.namelist():
            body = old.read(name)
            new.writestr(name, change(body) if name.endswith("data.pkl") else body)
    return result.getvalue()


def bomb_of_a_pickle() -> bytes:
    """data.pkl inflates to 500 MB."""
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("archive/data.pkl", "w", force_zip64=True) as entry:
            for _ in range(500):
                entry.write(bytes(1_000_000))
        archive.writestr("archive/version", "3")
    return result.getvalue()


PICKLES: dict[str, Callable[[], bytes]] = {
    "system.pt": lambda: torch_file(Runs()),
    "system legacy.pt": lambda: legacy(Runs()),
    "plain pickle.pt": lambda: pickle.dumps(Runs()),
    "protocol 0.bin": lambda: pickle.dumps(Runs(), protocol=0),
    "evaluates.pth": lambda: torch_file({"state_dict": weights(), "x": Evaluates()}),
    "beside weights.pth": lambda: torch_file({"model": weights(), "args": Runs()}),
    "beside weights, legacy.pth": lambda: legacy({"model": weights(), "args": Runs()}),
    "deep inside.pt": lambda: torch_file({"model": weights(), "a": [{"b": (1, {"c": [Runs()]})}]}),
    "in a namespace.pt": lambda: torch_file({"model": weights(), "args": arguments(hook=Runs())}),
    "in a namespace, legacy.pt": lambda: legacy({"model": weights(), "args": arguments(hook=Runs())}),
    "a namespace around.pt": lambda: torch_file(arguments(model=weights(), hook=Evaluates())),
    "a whole module.pt": lambda: torch_file(torch.nn.Linear(2, 2)),
    "as a key.pt": lambda: torch_file({Runs(): torch.zeros(1)}),
    "called safetensors.safetensors": lambda: torch_file(Runs())[:0] + pickle.dumps(Runs()),
    "called npz.npz": lambda: torch_file(Runs()),
}


def safetensors_file(header: bytes | dict[str, Any], data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}


FOUR = bytes(4)
ENTRY = b'{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
HEADERS: dict[str, Callable[[], bytes]] = {
    "length 2 to the 63": lambda: struct.pack("<Q", 2**63) + b"{}",
    "length 2 to the 64": lambda: struct.pack("<Q", 2**64 - 1) + b"{}",
    "longer than the file": lambda: struct.pack("<Q", 1000) + b'{"a":1}',
    "only a length": lambda: struct.pack("<Q", 2),
    "three bytes": lambda: b"\x02\0\0",
    "nested lists": lambda: safetensors_file(b'{"a":' + b"[" * 200_000),
    "nested maps": lambda: safetensors_file(b'{"a":' * 200_000),
    "nested metadata": lambda: safetensors_file(b'{"__metadata__":' + b'{"a":' * 200_000),
    "duplicate key": lambda: safetensors_file(b'{"a":' + ENTRY + b',"a":' + ENTRY + b"}", FOUR),
    "overlap": lambda: safetensors_file({"a": one(), "b": one()}, FOUR),
    "overlap by half": lambda: safetensors_file({"a": one(), "b": one(data_offsets=[2, 6])}, bytes(6)),
    "gap": lambda: safetensors_file({"a": one(), "b": one(data_offsets=[8, 12])}, bytes(12)),
    "beyond the end": lambda: safetensors_file({"a": one(data_offsets=[0, 4000], shape=[1000])}, FOUR),
    "far beyond the end": lambda: safetensors_file({"a": one(data_offsets=[0, 2**44], shape=[2**42])}, FOUR),
    "negative offset": lambda: safetensors_file({"a": one(data_offsets=[-4, 0])}, FOUR),
    "backwards": lambda: safetensors_file({"a": one(data_offsets=[4, 0])}, FOUR),
    "negative side": lambda: safetensors_file({"a": one(shape=[-1])}, FOUR),
    "shape and bytes differ": lambda: safetensors_file({"a": one(shape=[2])}, FOUR),
    "type and bytes differ": lambda: safetensors_file({"a": one(dtype="F64")}, FOUR),
    "huge product": lambda: safetensors_file({"a": one(shape=[2**40, 2**40])}, FOUR),
    "overflowing product": lambda: safetensors_file({"a": one(shape=[2**32, 2**32, 2])}, FOUR),
    "huge side of nothing": lambda: safetensors_file({"a": one(shape=[2**63, 0], data_offsets=[0, 0])}),
    "large side of nothing": lambda: safetensors_file({"a": one(shape=[0, 2**62], data_offsets=[0, 0])}),
    "unknown type": lambda: safetensors_file({"a": one(dtype="F8_E4M3", shape=[4])}, FOUR),
    "invented type": lambda: safetensors_file({"a": one(dtype="os.system")}, FOUR),
    "no shape": lambda: safetensors_file(b'{"a":{"dtype":"F32","data_offsets":[0,4]}}', FOUR),
    "a list": lambda: safetensors_file(b"[]"),
    "not JSON": lambda: safetensors_file(b"{'a': 1}"),
    "not UTF-8": lambda: safetensors_file(b'{"\xff\xfe":' + ENTRY + b"}", FOUR),
    "a name that steers the terminal": lambda: safetensors_file({"\x1b[2J": one()}, FOUR),
    "a name of a megabyte": lambda: safetensors_file({"a" * 1_000_000: one()}, FOUR),
    "a header of 30 MB": lambda: safetensors_file({"__metadata__": {"a": "b" * 30_000_000}, "a": one()}, FOUR),
    "no tensors": lambda: safetensors_file({}),
    "only metadata": lambda: safetensors_file({"__metadata__": {"format": "pt"}}),
    "trailing bytes": lambda: safetensors_file({"a": one()}, FOUR + b"more"),
}


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(header: str, data: bytes, *, version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def zipped(entries: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


def zeros_in_a_zip(count: int, *, told: int) -> bytes:
    """An array of `count` bytes whose header tells of `told`, as small as zlib makes it."""
    file = io.BytesIO()
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({told},), }}"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.npy", "w", force_zip64=True) as entry,
    ):
        entry.write(npy(header, b""))
        for _ in range(count // 1_000_000):
            entry.write(bytes(1_000_000))
    return file.getvalue()


def twins() -> bytes:
    import warnings

    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", FOUR))
    return file.getvalue()


def smaller_in_the_directory() -> bytes:
    """The archive's directory says the entry is small; its data goes on."""
    content = bytearray(zeros_in_a_zip(4_000_000, told=10))
    place = content.rindex(b"PK\x01\x02") + 24
    header = len(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (10,), }", b""))
    content[place : place + 4] = struct.pack("<I", header + 10)
    return bytes(content)


OBJECTS = np.array([Runs()], dtype=object)
HEAD = "{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
ARRAYS: dict[str, Callable[[], bytes]] = {
    "objects": lambda: npz(a=OBJECTS),
    "objects beside": lambda: npz(weight=np.zeros(3, np.float32), args=OBJECTS),
    "objects within": lambda: npz(a=np.zeros(2, dtype=[("x", "O"), ("y", "<f4")])),
    "larger than its data": lambda: zipped({"a.npy": npy(HEAD.format(kind="<f4", shape=(2**20,)), FOUR)}),
    "terabytes": lambda: zipped({"a.npy": npy(HEAD.format(kind="<f4", shape=(2**39,)), FOUR)}),
    "beyond counting": lambda: zipped({"a.npy": npy(HEAD.format(kind="<f4", shape=(2**62, 2**62)), FOUR)}),
    "negative": lambda: zipped({"a.npy": npy(HEAD.format(kind="<f4", shape=(-1,)), FOUR)}),
    "smaller than its data": lambda: zipped({"a.npy": npy(HEAD.format(kind="<f4", shape=(1,)), bytes(4000))}),
    "a shape in words": lambda: zipped({"a.npy": npy(HEAD.format(kind="<f4", shape="('a',)"), FOUR)}),
    "code for a header": lambda: zipped({"a.npy": npy(f"__import__('os').system('touch {CANARY}')", FOUR)}),
    "nested header": lambda: zipped({"a.npy": npy("(" * 9000, FOUR)}),
    "endless header": lambda: zipped({"a.npy": npy(" " * 60_000, FOUR)}),
    "an unknown version": lambda: zipped({"a.npy": npy(HEAD.format(kind="<f4", shape=(1,)), FOUR, version=(9, 0))}),
    "not an array": lambda: zipped({"a.npy": b"hello"}),
    "half an array": lambda: zipped({"a.npy": npz(a=np.zeros(3))[:5]}),
    "twins": twins,
    "a bomb that tells": lambda: zeros_in_a_zip(500_000_000, told=500_000_000),
    "a bomb that lies": lambda: zeros_in_a_zip(500_000_000, told=10),
    "a bomb in the directory": smaller_in_the_directory,
    "a name that steers the terminal": lambda: zipped({"\x1b[2J.npy": npy(HEAD.format(kind="<f4", shape=(1,)), FOUR)}),
    "cut off": lambda: npz(a=np.zeros(1000))[:-100],
    "an empty archive": lambda: zipped({}),
    "words": lambda: npz(a=np.array(["one", "two"])),
}


def lying_about_a_size(content: bytes) -> bytes:
    """`torch.zeros(77)` that claims 2**40 numbers."""
    assert content.count(b"K\x4d\x85") == 1  # BININT1 77, TUPLE1: the shape
    return content.replace(b"K\x4d\x85", b"\x8a\x06\0\0\0\0\0\x01\x85")


def small() -> dict[str, torch.Tensor]:
    return {"a": torch.zeros(77)}


TORCH: dict[str, Callable[[], bytes]] = {
    "holds itself": lambda: torch_file(holding_itself()),
    "no weights": lambda: torch_file({"epoch": 3}),
    "a number": lambda: torch_file(3),
    "a list": lambda: torch_file([torch.zeros(1)]),
    "numbered tensors": lambda: torch_file({0: torch.zeros(1)}),
    "expanded to terabytes": lambda: torch_file({"a": torch.zeros(1).expand(2**40)}),
    "expanded to terabytes, legacy": lambda: legacy({"a": torch.zeros(1).expand(2**40)}),
    "many views of one": lambda: torch_file({str(n): torch.zeros(1).expand(2**20) for n in range(1000)}),
    "meta": lambda: torch_file({"a": torch.zeros(2**30, 2**10, device="meta")}),
    "sparse": lambda: torch_file({"a": torch.eye(3).to_sparse()}),
    "a lying shape": lambda: rewritten(torch_file(small()), lying_about_a_size),
    "a bomb": bomb_of_a_pickle,
    "cut off": lambda: torch_file(weights())[:-1000],
    "half": lambda: torch_file(weights())[:3000],
    "half, legacy": lambda: legacy(weights())[:3000],
    "no pickle in it": lambda: zipped({"hello.txt": b"hello"}),
    "a stop": lambda: b"\x80\x02.",
    "noise": lambda: bytes(range(256)) * 10,
    "a name that steers the terminal": lambda: torch_file({"\x1b[2J": torch.zeros(1)}),
}


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("storages", "tensors", "pickle"):
            content = pickle.dumps(Runs())
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


PAGE = b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 346284714\n"
OTHERS: dict[str, Callable[[], bytes]] = {
    "page.safetensors": lambda: PAGE,
    "page.pth": lambda: b"\n  <html lang=en>" + PAGE,
    "page.npz": lambda: PAGE.lower(),
    "pointer.safetensors": lambda: POINTER,
    "pointer.bin": lambda: POINTER,
    "empty.safetensors": lambda: b"",
    "empty.pth": lambda: b"",
    "empty.npz": lambda: b"",
    "tar.pt": tar,
    "text.pt": lambda: b"hello\n" * 100,
    "answer.json": lambda: b'{"error": "Repository not found"}',
    "picture.pt": lambda: b"\x89PNG\r\n\x1a\n" + bytes(100),
}
HOSTILE: dict[str, Callable[[], bytes]] = {
    **PICKLES,
    **{f"header, {name}.safetensors": make for name, make in HEADERS.items()},
    **{f"array, {name}.npz": make for name, make in ARRAYS.items()},
    **{f"torch, {name}.pt": make for name, make in TORCH.items()},
    **OTHERS,
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    for name, make in HOSTILE.items():
        (folder / name).write_bytes(make())
    return folder


def read_all(path: Path) -> None:
    stored = read_file(path)
    for name in stored:
        stored[name]


def clean_refusal(path: Path, read: Callable[[Path], object] = read_all) -> VitscopeError:
    with pytest.raises(VitscopeError) as refused:
        read(path)
    error = refused.value
    assert error.fix
    assert len(str(error)) < 1000
    assert all(line.isprintable() for line in str(error).splitlines())
    return error


@pytest.fixture(autouse=True)
def nothing_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / CANARY).exists()


def test_the_canary_sings(tmp_path: Path) -> None:
    """A careless reader would run them: the other tests see it."""
    pickle.loads(pickle.dumps(Runs()))
    assert (tmp_path / CANARY).exists()
    (tmp_path / CANARY).unlink()
    torch.load(io.BytesIO(torch_file({"model": weights(), "args": Runs()})), weights_only=False)
    assert (tmp_path / CANARY).exists()
    (tmp_path / CANARY).unlink()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_words(name: str, hostile: Path) -> None:
    clean_refusal(hostile / name)


@pytest.mark.parametrize("name", PICKLES)
def test_what_would_have_run_is_named(name: str, hostile: Path) -> None:
    error = clean_refusal(hostile / name)
    if "safetensors" in name:  # not even looked at as a pickle
        return
    assert "holds more than tensors, and was refused" in error.what
    assert "can still be loaded" not in str(error), "torch's advice on how to run it all the same"
    if "module" not in name and "plain pickle" not in name:  # of that, the way it is written is refused before
        assert "system" in error.what or "eval" in error.what
    assert "nothing in it was run" in str(error.fix)


IN_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from vitscope.core.errors import VitscopeError
from vitscope.weights.files import read_file

def kilobytes(word):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(word))
    return int(line.split()[1])

good, *hostile = map(Path, sys.argv[1:])
read_file(good)["a"]  # whatever is imported when it is first needed
most = kilobytes("VmSize:") * 1024 + 400_000_000
resource.setrlimit(resource.RLIMIT_AS, (most, most))
before = kilobytes("VmHWM:")
for path in hostile:
    try:
        stored = read_file(path)
        for name in stored:
            stored[name]
    except VitscopeError:
        continue
    except BaseException as error:
        print(f"{path.name}: {type(error).__name__} {error}")
    else:
        print(f"{path.name}: opened")
print(f"grown {kilobytes('VmHWM:') - before}")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_memory_stays_small(hostile: Path, tmp_path: Path) -> None:
    """With room for 400 MB more, every file is refused, and far less is used."""
    torch.save({"a": torch.zeros(3)}, tmp_path / "good.pt")
    files = [str(hostile / name) for name in HOSTILE]
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY, str(tmp_path / "good.pt"), *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *wrong, grown = done.stdout.splitlines()
    assert wrong == []
    assert int(grown.split()[1]) < 200_000, grown


# --- what is said -----------------------------------------------------------------------------------------------


def test_a_pointer_and_a_page_say_what_to_do(hostile: Path) -> None:
    assert "git lfs pull" in str(clean_refusal(hostile / "pointer.bin").fix)
    assert "a web page, not weights" in clean_refusal(hostile / "page.pth").what
    assert "an empty file" in clean_refusal(hostile / "empty.pth").what
    assert "holds no tensors" in clean_refusal(hostile / "header, no tensors.safetensors").what


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    assert "a folder, not a file" in clean_refusal(tmp_path / "model.safetensors").what


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Opening it would wait for ever."""
    os.mkfifo(tmp_path / "pipe.pt")
    assert "not a plain file" in clean_refusal(tmp_path / "pipe.pt").what


def test_load_model_says_the_same(hostile: Path) -> None:
    for name in ("beside weights.pth", "pointer.bin", "array, objects.npz", "header, overlap.safetensors"):
        clean_refusal(hostile / name, lambda path: load_model(path, config=TINY))


# --- an index of shards -----------------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "sharded"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / "model-00001-of-00001.safetensors")
    save_file({"secret": torch.ones(2)}, tmp_path / "outside.safetensors")
    return folder / "model.safetensors.index.json"


BAD_INDEXES: dict[str, Any] = {
    "up": {"weight_map": {"secret": "../outside.safetensors"}},
    "the folder above": {"weight_map": {"secret": ".."}},
    "this folder": {"weight_map": {"secret": "."}},
    "nothing": {"weight_map": {"secret": ""}},
    "absolute": {"weight_map": {"secret": "/etc/passwd"}},
    "itself": {"weight_map": {"a": "model.safetensors.index.json"}},
    "missing file": {"weight_map": {"a": "model-00002-of-00002.safetensors"}},
    "missing tensor": {"weight_map": {"b": "model-00001-of-00001.safetensors"}},
    "a NUL": {"weight_map": {"a": "model\0.safetensors"}},
    "a list": {"weight_map": ["model-00001-of-00001.safetensors"]},
    "a number": {"weight_map": {"a": 3}},
    "a list for a name": {"weight_map": {"a": ["x"]}},
    "no map": {"metadata": {}},
    "no tensors": {"weight_map": {}},
    "only a list": [],
    "null": None,
}


@pytest.mark.parametrize("name", BAD_INDEXES)
def test_an_index_that_cannot_be_is_refused(name: str, shards: Path) -> None:
    shards.write_text(json.dumps(BAD_INDEXES[name]))
    clean_refusal(shards)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 200_000, '{"a":' * 200_000, "\x00"], ids=["none", "half", "[", "{", "0"]
)
def test_an_index_that_is_no_json_is_refused(text: str, shards: Path) -> None:
    shards.write_text(text)
    assert "not an index of shards" in clean_refusal(shards).what


def test_a_link_in_place_of_a_shard_is_what_caches_have(shards: Path, tmp_path: Path) -> None:
    """The hub's cache keeps its files elsewhere and links to them."""
    file = shards.parent / "model-00001-of-00001.safetensors"
    file.rename(tmp_path / "blob")
    file.symlink_to(tmp_path / "blob")
    shards.write_text(json.dumps({"weight_map": {"a": file.name}}))
    assert torch.equal(read_file(shards)["a"], torch.ones(2))


@pytest.mark.parametrize("name", ["config.json", "labels.json", "preprocessing.json"])
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000], ids=["lists", "maps"])
def test_nested_settings_are_refused(name: str, text: str, tmp_path: Path) -> None:
    save_model(build_model(TINY), tmp_path / "m")
    (tmp_path / "m" / name).write_text(text)
    clean_refusal(tmp_path / "m", load_model)


# --- what is no harm --------------------------------------------------------------------------------------------


def test_what_trainers_write_is_read(tmp_path: Path) -> None:
    content = {"model": weights(), "args": arguments(betas=(0.9, 0.95), out="runs"), "epoch": 3, "lr": [0.1]}
    torch.save(content, tmp_path / "new.pth")
    torch.save(content, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("new.pth", "old.pth"):
        stored = read_file(tmp_path / name)
        assert all(torch.equal(stored[key], tensor) for key, tensor in content["model"].items())
        assert stored.remarks == ("of the checkpoint, its 'model'",)


def test_not_a_number_is_a_number(tmp_path: Path) -> None:
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
    save_file({"a": odd}, tmp_path / "a.safetensors")
    torch.save({"a": odd}, tmp_path / "a.pt")
    np.savez(tmp_path / "a.npz", a=odd.numpy())
    for name in ("a.safetensors", "a.pt", "a.npz"):
        assert torch.equal(read_file(tmp_path / name)["a"].nan_to_num(), odd.nan_to_num())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_a_flipped_bit_in_an_array_is_found(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "a.npz", a=np.random.default_rng(0).normal(size=1000).astype(np.float32))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[2000] ^= 4
    (tmp_path / "a.npz").write_bytes(content)
    clean_refusal(tmp_path / "a.npz")


def test_arrays_of_every_kind_are_read(tmp_path: Path) -> None:
    arrays = {
        "f": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "big": np.arange(3, dtype=">f4"),
        "half": np.arange(3, dtype=np.float16),
        "whole": np.array(7),
        "none": np.zeros((0, 3), np.float32),
        "zeros": np.zeros((1000, 1000), np.float32),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        stored = read_file(tmp_path / "a.npz")
        for name, array in arrays.items():
            assert stored.shapes[name] == array.shape
            assert np.array_equal(stored[name].numpy(), array), name
