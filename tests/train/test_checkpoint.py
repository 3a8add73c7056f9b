"""A checkpoint comes back bit for bit, is never a state with NaN, and only those that may go are pruned."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from vitscope.core.errors import EXIT_DIVERGED, VitscopeError
from vitscope.train.checkpoints.content import UnsavableError
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints, NotFiniteError


def weights(value: float = 0.0) -> dict[str, Tensor]:
    return {"head.weight": torch.full((3, 4), value), "head.bias": torch.full((3,), -value)}


def rest(value: float = 0.0) -> dict[str, Any]:
    return {"optimizer": {"head.weight": {"exp_avg": torch.full((3, 4), value)}}, "best": value, "plateau": None}


def put(store: Checkpoints, *steps: int) -> None:
    for step in steps:
        store.save(step, weights(step), rest(step), {"epoch": step})


def names(store: Checkpoints) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def same(left: Tensor, right: Tensor) -> bool:
    """Bit for bit: kind, shape, and the two zeros apart."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    one, other = (torch.atleast_1d(tensor.detach()).contiguous().view(torch.uint8) for tensor in (left, right))
    return torch.equal(one, other)


@pytest.fixture
def store(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", keep=2)


# --- what is saved comes back


def test_every_kind_of_tensor_comes_back_bit_for_bit(store: Checkpoints) -> None:
    noise = torch.randn(4, 3, 5, 5)
    tied = torch.randn(6)
    kinds = {
        "float32": noise,
        "bfloat16": noise.bfloat16(),
        "float16": noise.half(),
        "float64": noise.double(),
        "int64": torch.tensor([2**62, -1]),
        "uint8": torch.arange(5, dtype=torch.uint8),
        "bool": torch.tensor([True, False]),
        "minus zero": torch.tensor([-0.0, 0.0]),
        "tiny": torch.tensor([1e-45, 3e38]),
        "no axes": torch.tensor(0.1),
        "empty": torch.empty(0, 3),
        "channels last": noise.contiguous(memory_format=torch.channels_last),
        "turned": noise.transpose(1, 3),
        "expanded": torch.tensor([1.0]).expand(7),
        "tied": tied,
        "tied too": tied,
        "parameter": nn.Parameter(noise),
    }
    store.save(7, kinds, {"deep": [{"er": kinds}]}, {})
    found = store.newest()
    assert found is not None
    model, trainer = found.model(), found.trainer()["deep"][0]["er"]
    assert set(model) == set(trainer) == set(kinds)
    for name, tensor in kinds.items():
        assert same(model[name], tensor), name
        assert same(trainer[name], tensor), name
        assert not trainer[name].requires_grad
    model["float32"].zero_()  # what is loaded is one's own, and the file stays as it was
    assert same(found.model()["float32"], noise)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells how much memory is whose")
def test_only_what_is_read_of_a_checkpoint_takes_memory(store: Checkpoints) -> None:
    """Of several processes each reads its rows; all of it in each would not fit where shards are needed."""
    megabytes = 48
    store.save(1, {"w": torch.ones(megabytes, 2**18)}, {"m": torch.ones(megabytes, 2**18)}, {})

    def own() -> float:
        """Memory of this process that is no page of a file, in MiB."""
        gc.collect()
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) / 1024

    before = own()
    found = store.open("last")
    model, trainer = found.model(), found.trainer()
    assert own() - before < megabytes / 4
    third = torch.cat([model["w"][32:], trainer["m"][32:]])
    assert own() - before < megabytes
    assert float(third.sum()) == 32 * 2**18


def test_plain_values_come_back_as_they_were(store: Checkpoints) -> None:
    plain = {
        "a": 1, "b": 0.1, "c": None, "d": "ü", "e": [1, [2.5, "x"]], "f": True, 3: "three", "g": -math.inf, "h": (1, 2),
    }  # fmt: skip
    saved = store.save(0, {}, plain, {"epoch": 3, "val/loss": math.nan, "names": ["a", "ü"]})
    found = store.newest()
    assert found is not None
    assert found.trainer() == plain
    assert type(found.trainer()["f"]) is bool
    for meta in (saved.meta, found.meta):
        assert (meta["epoch"], meta["names"]) == (3, ["a", "ü"])
        assert math.isnan(meta["val/loss"])
    assert (saved.path, saved.step) == (found.path, found.step) == (store.folder / "step-000000", 0)


def test_a_view_is_saved_without_what_it_is_a_view_of(store: Checkpoints) -> None:
    whole = torch.zeros(1_000_000)
    saved = store.save(1, {"a": whole[:3]}, {"a": whole[:3]}, {})
    assert (saved.path / "trainer.pt").stat().st_size < 10_000
    assert (saved.path / "model.safetensors").stat().st_size < 10_000


def test_what_lies_in_the_folder(store: Checkpoints) -> None:
    put(store, 123)
    folder = store.folder / "step-000123"
    assert sorted(path.name for path in folder.iterdir()) == [
        "COMPLETE",
        "meta.json",
        "model.safetensors",
        "trainer.pt",
    ]
    assert (store.folder / "last").read_text() == "step-000123\n"
    assert names(store) == ["last", "step-000123"]
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["format"], meta["step"], meta["meta"]) == (1, 123, {"epoch": 123})
    for name in ("model.safetensors", "trainer.pt"):
        content = (folder / name).read_bytes()
        assert meta["files"][name] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert (folder / "COMPLETE").read_text().strip() == hashlib.sha256((folder / "meta.json").read_bytes()).hexdigest()
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert len(modes) == 1  # all as the umask says


def test_equal_states_give_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for number in range(2):
        store = Checkpoints(tmp_path / f"run {number}", keep=1)
        text = "".join(["ab", "cd"])  # a new object each time, where a constant would be one
        trainer = {text: {"x": torch.arange(3.0)}, "y": text if number else "abcd", "z": "".join(["ab", "cd"])}
        saved = store.save(5, weights(1), trainer, {"epoch": 1})
        contents.append({path.name: path.read_bytes() for path in saved.path.iterdir()})
    assert contents[0] == contents[1]
    assert all(b"run 0" not in content for content in contents[0].values())


# --- what is refused


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("place", ["model", "trainer"])
def test_a_state_that_is_not_finite_is_never_written(
    store: Checkpoints, value: float, dtype: torch.dtype, place: str
) -> None:
    model, trainer = weights(), rest()
    bad = torch.zeros(4, 5, dtype=dtype)
    bad[2, 3] = value
    if place == "model":
        model["blocks.0.norm"] = bad
    else:
        trainer["ema"] = [{"blocks.0.norm": bad}]
    with pytest.raises(NotFiniteError) as caught:
        store.save(1, model, trainer, {})
    assert isinstance(caught.value, VitscopeError)
    assert caught.value.exit_code == EXIT_DIVERGED
    where = "model/blocks.0.norm" if place == "model" else "trainer/ema/0/blocks.0.norm"
    assert str(caught.value).startswith(f"{where}: 1 of 20 values")
    assert not store.folder.exists()


def test_after_a_refusal_the_last_good_one_stands(store: Checkpoints) -> None:
    put(store, 1)
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    with pytest.raises(NotFiniteError):
        store.save(2, weights(math.nan), rest(), {})
    assert {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "value",
    [np.float64(1), np.zeros(2), {1, 2}, b"x", Path("x"), nn.Linear(1, 1), torch.float32, {(1, 2): 3}],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_load_again_is_refused_before_anything_is_written(store: Checkpoints, value: Any) -> None:
    with pytest.raises(UnsavableError, match="trainer/a"):
        store.save(1, weights(), {"a": value}, {})
    with pytest.raises(UnsavableError, match="meta is not plain"):
        store.save(1, weights(), {}, {"a": torch.zeros(1)})
    assert not store.folder.exists()


def test_nonsense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="keep"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(CheckpointError, match="step"):
        put(Checkpoints(tmp_path, keep=1), -1)


# --- which ones stay


def test_the_newest_are_kept_and_the_best_beside_them(store: Checkpoints) -> None:
    for step in (10, 20, 30, 40, 50):
        put(store, step)
        if step in (20, 30):
            store.mark_best(step)
    assert names(store) == ["best", "last", "step-000030", "step-000040", "step-000050"]
    best = store.best()
    assert best is not None
    assert (best.step, float(best.model()["head.weight"][0, 0])) == (30, 30.0)
    store.mark_best(50)  # 30 is neither new nor best any more
    assert names(store) == ["best", "last", "step-000040", "step-000050"]


def test_steps_are_ordered_as_numbers(store: Checkpoints) -> None:
    put(store, 999_999, 1_000_000, 10_000_000)
    assert set(names(store)) == {"last", "step-1000000", "step-10000000"}
    found = store.newest()
    assert found is not None
    assert found.step == 10_000_000


def test_what_was_just_saved_is_never_pruned(store: Checkpoints) -> None:
    """Older training, gone on with in the same folder, has higher numbers."""
    put(store, 100, 200, 30)
    assert names(store) == ["last", "step-000030", "step-000100", "step-000200"]


def test_another_way_from_an_older_step(store: Checkpoints) -> None:
    put(store, 10)
    store.mark_best(10)
    put(store, 20, 30)
    assert store.drop_after(10) == ["step-000020", "step-000030"]
    assert names(store) == ["best", "last", "step-000010"]
    assert store.open("last").step == 10
    put(store, 20)
    store.mark_best(20)
    assert store.drop_after(10) == ["step-000020"]
    assert names(store) == ["last", "step-000010"]
    assert store.best() is None
    assert store.drop_after(5) == ["step-000010"]
    assert names(store) == [], "there is nothing left that could be the last"
    assert Checkpoints(store.folder / "nowhere", keep=1).drop_after(0) == []


def test_the_newest_before_a_step(store: Checkpoints) -> None:
    put(store, 1, 2, 3)
    assert [getattr(store.newest(before=step), "step", None) for step in (9, 4, 3, 2, 1)] == [3, 3, 2, None, None]


def test_a_best_that_cannot_be_read_costs_room_not_checkpoints(
    store: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, 1)
    (store.folder / "best").write_bytes(b"\xff\x00")
    put(store, 2, 3, 4)
    assert [name for name in names(store) if name.startswith("step")] == [f"step-00000{step}" for step in (1, 2, 3, 4)]
    assert "old checkpoints stay" in caplog.text
    assert store.best() is None
    store.mark_best(1)
    assert names(store) == ["best", "last", "step-000001", "step-000003", "step-000004"]


def test_only_a_whole_checkpoint_can_be_the_best(store: Checkpoints) -> None:
    put(store, 1)
    (store.folder / "step-000001" / "COMPLETE").unlink()
    for step in (1, 2):
        with pytest.raises(CheckpointError, match="never finished"):
            store.mark_best(step)
    assert store.best() is None


# --- the same step again


def test_the_same_again_is_left_alone(store: Checkpoints) -> None:
    put(store, 5)
    folder = store.folder / "step-000005"
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in [folder, *folder.iterdir()]}
    (store.folder / "last").unlink()
    put(store, 5)
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in [folder, *folder.iterdir()]} == before
    assert (store.folder / "last").read_text() == "step-000005\n"


@pytest.mark.parametrize("how", ["other values", "other meta", "damaged", "unfinished"])
@pytest.mark.parametrize("exchanges", [True, False])
def test_anything_else_at_its_place_is_replaced(
    store: Checkpoints, how: str, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 5)
    folder = store.folder / "step-000005"
    if exchanges:
        (folder / "notes.txt").write_text("mine")
    if how == "damaged":
        (folder / "trainer.pt").write_bytes(b"")
    if how == "unfinished":
        (folder / "COMPLETE").unlink()
    if not exchanges:  # as on a system that cannot do it
        monkeypatch.setattr("vitscope.train.checkpoints.files.exchange", lambda first, second: False)
    value = 6.0 if how == "other values" else 5.0
    saved = store.save(5, weights(value), rest(value), {"epoch": 6 if how == "other meta" else 5})
    found = store.newest()
    assert found == saved
    assert float(saved.model()["head.weight"][0, 0]) == float(saved.trainer()["best"]) == value
    assert names(store) == ["last", "step-000005"]
    if exchanges:
        assert (folder / "notes.txt").read_text() == "mine"


# --- which one is found


@pytest.mark.parametrize("pointer", [None, b"", b"\xff\xfe", b"step-000001\n", b"../../etc\n", b"step-999999\n"])
def test_the_newest_does_not_depend_on_last(store: Checkpoints, pointer: bytes | None) -> None:
    put(store, 1, 2)
    (store.folder / "last").unlink()
    if pointer is not None:
        (store.folder / "last").write_bytes(pointer)
    found = store.newest()
    assert found is not None
    assert found.step == 2
    if pointer != b"step-000001\n":
        with pytest.raises(CheckpointError):
            store.open("last")


def test_nothing_there(store: Checkpoints) -> None:
    assert store.newest() is None
    assert store.best() is None
    store.sweep()
    for wish in ("last", "best", "step-000001"):
        with pytest.raises(CheckpointError, match="there is no checkpoint"):
            store.open(wish)
    store.folder.parent.joinpath("checkpoints").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be looked for"):
        store.newest()


def test_exactly_the_one_that_is_asked_for(store: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, 1, 2)
    store.mark_best(1)
    place = store.folder / "step-000001"
    elsewhere = Checkpoints(store.folder.parent / "other", keep=1)
    monkeypatch.chdir(store.folder.parent)
    for wish in ("step-000001", "best", place, str(place), "checkpoints/step-000001", "checkpoints/best"):
        assert store.open(wish).step == 1
    assert store.open("last").step == 2
    assert elsewhere.open(place).step == 1
    place.rename(store.folder / "kept by hand")
    assert store.open("kept by hand").step == 1  # a name that says no step says no wrong one


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("step-00002", "step-000002"),
        ("lst", "last"),
        ("step-999999", "step-00000"),
        ("", "there are step-000001, step-000002"),
        (".", "there are step-000001, step-000002"),
        ("x" * 300, "no checkpoint"),
        ("~nobody-of-this-name/x", "no checkpoint"),
        ("a\0b", "no checkpoint"),
    ],
)
def test_a_wrong_wish_is_answered(store: Checkpoints, wish: str, said: str) -> None:
    put(store, 1, 2)
    with pytest.raises(CheckpointError) as caught:
        store.open(wish)
    assert said in str(caught.value)


def test_a_folder_under_another_step_s_name_is_not_believed(
    store: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, 1)
    (store.folder / "step-000001").rename(store.folder / "step-000009")
    assert store.newest() is None
    assert "step-000009" in caplog.text
    assert "holds step 1" in caplog.text
    with pytest.raises(CheckpointError, match="holds step 1"):
        store.open("step-000009")


# --- what is swept


def test_sweeping_takes_what_was_left_and_nothing_else(store: Checkpoints, caplog: pytest.LogCaptureFixture) -> None:
    put(store, 1, 2)
    folder = store.folder
    left = [folder / ".step-000003.0123456789abcdef.tmp", folder / "step-000004"]
    others = [folder / name for name in ("notes", "step-12", ".git", ".step-000003.tmp", "step-000005-copy")]
    for path in [*left, *others]:
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"half")
    left.append(folder / ".fedcba9876543210.tmp")
    others += [folder / name for name in ("a.tmp", ".hidden.tmp", "step-000006")]
    for path in [left[-1], *others[-3:]]:
        path.write_bytes(b"x")
    mixed = folder / "step-000007"  # unfinished, and somebody put something into it
    mixed.mkdir()
    (mixed / "trainer.pt").write_bytes(b"half")
    (mixed / "notes.txt").write_text("mine")
    away = folder.parent / "away"
    away.mkdir()
    (away / "model.safetensors").write_bytes(b"theirs")
    (folder / "step-000008").symlink_to(away)
    with caplog.at_level(logging.WARNING):
        store.sweep()
    assert [path for path in left if path.exists()] == []
    assert [path for path in others if not path.exists()] == []
    assert [path.name for path in mixed.iterdir()] == ["notes.txt"]
    assert (away / "model.safetensors").read_bytes() == b"theirs"
    assert (folder / "last").exists()
    found = store.newest()
    assert found is not None
    assert found.step == 2
    assert len(list((folder / "step-000001").iterdir())) == 4
