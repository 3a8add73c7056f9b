"""Two or three processes that hold one model together, each its rows, train as one that holds all of it; their
checkpoints are the same files, and anyone goes on from them."""

from __future__ import annotations

import json
import shutil
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from faults.rank_processes import train_together
from faults.train_process import (
    Ended,
    Trap,
    _new_folder,
    differences,
    newest_checkpoint,
    rows,
    tensors,
    train,
    write_settings,
)
from train.three_shards import NAMES, answers
from train.tiny_runs import network, tiny
from vitscope.core.errors import VitscopeError
from vitscope.data.dataset import open_dataset
from vitscope.train import evaluate as evaluation
from vitscope.train.basis import lay_out
from vitscope.train.fit import fit
from vitscope.train.shards import gathered, leaf, like, local, own_part, with_all_rows

PLAIN: dict[str, dict[str, Any]] = {
    # Without a bias of the keys: its gradient is 0 but for rounding, which Adam makes steps of.
    "model": {"drop_rate": 0.0, "drop_path_rate": 0.0, "qkv_bias": False},
    "augment": {"mixup_alpha": 0.0, "cutmix_alpha": 0.0},
    "optim": {"name": "adamw", "lr": 3e-3, "eps": 1e-6, "clip_norm": 0.5},
    "loop": {"epochs": 1},
}
"""Nothing in it depends on which pictures are together: not which are dropped, mixed or normalised."""
MUON = ("--optim.name", "muon")
MICRO = ("--loop.micro-batch", "10")
STOP = Trap("vitscope.train.launch", "train_step", 6, (signal.SIGTERM,))
SHORT: dict[str, dict[str, Any]] = {
    **PLAIN,
    "data": {"name": "synthetic:size=8,count=300,classes=5,channels=1", "batch_size": 90},
    "schedule": {"warmup": "1 steps"},
}
"""Two steps an epoch."""


def begin(folder: Path, who: str, *flags: str, traps: tuple[Trap, ...] = (), changes: Any = PLAIN) -> Path:
    """The folder of a run by one process `alone`, or by two with `ddp` or `fsdp`."""
    settings = str(write_settings(folder / "settings.yaml", changes))
    go(who, settings, "--out", str(folder / "run"), *flags, traps=traps)
    return folder / "run"


def go(who: str, *args: str, traps: tuple[Trap, ...] = (), code: int | None = None) -> list[Ended]:
    if who == "alone":
        ended = [train(*args, traps=traps)]
    else:
        ended = train_together(*args, "--loop.parallel", who, traps=traps)
    wanted = code if code is not None else 143 if traps else 0
    assert [one.code for one in ended] == [wanted] * len(ended), "\n".join(map(str, ended))
    return ended


@cache
def uninterrupted(who: str, *flags: str) -> Path:
    return begin(_new_folder(), who, *flags)


@cache
def stopped(who: str) -> Path:
    """A run that SIGTERM has stopped after step 6."""
    return begin(_new_folder(), who, traps=(STOP,))


def assert_same(run: Path, other: Path) -> None:
    """Every row and every number of the last checkpoint and of the model, to rounding; the rest to the letter."""
    wanted, found = rows(other), rows(run)
    assert len(found) == len(wanted) == 18  # 16 steps, an epoch, a test
    for one, two in zip(wanted, found, strict=True):
        assert two == pytest.approx(one, abs=5e-5, rel=5e-5)
    before, after = tensors(other), tensors(run)
    assert list(after) == list(before)
    for name, value in before.items():
        two = after[name]
        if isinstance(value, Tensor):
            assert (two.dtype, two.shape) == (value.dtype, value.shape), name
            torch.testing.assert_close(two, value, atol=1e-4, rtol=1e-3, msg=lambda text, n=name: f"{n}: {text}")
        elif not name.endswith("micro_batch"):
            assert two == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name


# --- the same training ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), MUON, MICRO], ids=["adamw", "muon", "micro_batches"])
def test_shards_train_as_the_whole(flags: tuple[str, ...]) -> None:
    """Losses, gradient norms, weights, optimiser and running mean, clipped; in checkpoints with the same content."""
    alone = uninterrupted("alone", *(flags if flags != MICRO else ()))
    assert_same(uninterrupted("fsdp", *flags), alone)
    if not flags:
        assert_same(uninterrupted("ddp"), alone)
        begun = load_file(stopped("alone") / "checkpoints" / "step-000004" / "model.safetensors")
        after = load_file(newest_checkpoint(alone) / "model.safetensors")
        assert max(float((after[name] - begun[name]).abs().max()) for name in after) > 0.005, "it has learnt"


@pytest.mark.parametrize("name", NAMES)
def test_three_find_it_so(name: str) -> None:
    assert answers()[name] == ""


# --- one kind of checkpoint -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then"), [("fsdp", "alone"), ("fsdp", "ddp"), ("alone", "fsdp"), ("ddp", "fsdp")], ids=str
)
def test_another_kind_goes_on_from_there(first: str, then: str, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stopped(first), tmp_path / "run"))
    said = go(then, "--resume", "--out", str(run))[0].err
    assert "resuming after step 6" in said
    assert_same(run, uninterrupted("alone"))
    if (first, then) == ("fsdp", "alone"):
        assert "loop.parallel 'fsdp' is for several processes" in said
    if (first, then) == ("fsdp", "ddp"):
        assert "changed since the run began: loop.parallel: 'fsdp' -> 'ddp'" in said


def test_resumed_shards_end_with_the_same_bits(tmp_path: Path) -> None:
    run = Path(shutil.copytree(stopped("fsdp"), tmp_path / "run"))
    go("fsdp", "--resume", "--out", str(run))
    assert differences(run, uninterrupted("fsdp")) == []


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_two_that_diverge_go_back_and_give_up_together(tmp_path: Path) -> None:
    optim = {"name": "sgd", "lr": 1e30, "clip_norm": None}
    settings = str(write_settings(tmp_path / "settings.yaml", {"optim": optim, "schedule": {"warmup": "0 steps"}}))
    first, second = go("fsdp", settings, "--out", str(tmp_path / "run"), code=4)
    assert "training diverged" in first.err
    assert "back to step" in first.err
    assert second.err == ""
    records = sorted((tmp_path / "run" / "diagnostics").glob("bad-step-*"))
    assert records
    begun = load_file(tmp_path / "run" / "checkpoints" / "step-000000" / "model.safetensors")
    kept = [load_file(record / "model.safetensors") for record in records if (record / "model.safetensors").exists()]
    assert kept
    for weights in kept:
        assert {name: value.shape for name, value in weights.items()} == {n: value.shape for n, value in begun.items()}


def test_after_going_back_the_model_is_the_best_that_stands(tmp_path: Path) -> None:
    """Resumed from before the best epoch, whose model is given up, by processes that hold it in shards."""
    run = begin(tmp_path, "fsdp", "--loop.epochs", "2", "--checkpoint.keep", "9", changes=SHORT)
    go("fsdp", "--resume-from", "step-000002", "--out", str(run), "--loop.epochs", "3")
    marked = newest_checkpoint(run).with_name((run / "checkpoints" / "best").read_text().strip())
    mean = torch.load(marked / "trainer.pt", weights_only=True)["hooks"]["ema"]
    model = load_file(run / "model" / "model.safetensors")
    assert model.keys() == mean.keys()
    assert all(torch.equal(model[name], value) for name, value in mean.items())
    assert json.loads((run / "model" / "config.json").read_text())["notes"] == {"step": str(int(marked.name[5:]))}


def test_a_shard_that_dies_leaves_nobody_waiting(tmp_path: Path) -> None:
    settings = str(write_settings(tmp_path / "settings.yaml", PLAIN))
    trap = Trap("vitscope.train.evaluate", "_judge", 2)
    flags = ("--out", str(tmp_path / "run"), "--loop.parallel", "fsdp")
    ended = train_together(settings, *flags, traps=(trap,), trapped=(1,))
    assert [one.code for one in ended] == [1, -signal.SIGKILL], f"{ended[0]}\n{ended[1]}"
    assert "has lost the others" in ended[0].err
    assert "Traceback" not in ended[0].err


def test_a_penalty_on_weights_nobody_has_is_refused(tmp_path: Path) -> None:
    settings = str(write_settings(tmp_path / "settings.yaml", {**SHORT, "optim": {"l1": 1e-4}}))
    first, second = go("fsdp", settings, "--out", str(tmp_path / "run"), code=2)
    assert "optim.l1: expected 0 with --loop.parallel fsdp" in first.err
    assert "--loop.parallel ddp" in first.err
    assert "training pictures" not in first.err, "none were prepared"
    assert second.err == ""
    assert not (tmp_path / "run").exists()


def test_an_evaluation_that_does_not_fit_is_not_halved_among_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(evaluation, "_judge", full)
    config = tiny()
    basis = lay_out(config, open_dataset(config.data), torch.device("cpu"))
    loader = basis.loader("val", training=False, say=lambda text: None)
    with pytest.raises(VitscopeError, match="24 pictures at once are too many") as refused:
        evaluation.evaluate(network(), loader, num_classes=4, can_halve=False)
    assert "--loop.eval-batch 12" in str(refused.value)


# --- one process alone ------------------------------------------------------------------------------------------------


def test_alone_the_setting_changes_nothing_and_says_so(tmp_path: Path, no_pictures: None) -> None:
    for how in ("ddp", "fsdp"):
        fit(tiny(loop={"parallel": how, "ema_decay": 0.9}), out=tmp_path / how, quiet=True)
    assert differences(tmp_path / "fsdp", tmp_path / "ddp") == []
    line = "loop.parallel 'fsdp' is for several processes: this one is alone and holds everything"
    assert line in (tmp_path / "fsdp" / "train.log").read_text()
    assert line not in (tmp_path / "ddp" / "train.log").read_text()


def test_whole_tensors_answer_too() -> None:
    """As one that is held alone, without a copy."""
    value = torch.arange(6.0).view(3, 2)
    assert local(value) is own_part(value, value) is like(value, value) is value
    assert gathered({"a": [value, 3], "b": (value,)}, keeps=False) == {"a": [value, 3], "b": (value,)}
    parameter = torch.nn.Parameter(value)
    assert leaf(parameter) is parameter
    stacked = value[None]
    assert with_all_rows(value, stacked) is stacked
