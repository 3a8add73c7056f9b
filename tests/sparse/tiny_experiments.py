"""Whole experiments of a few seconds: settings, a dense network to begin with, what they leave and how to interrupt
them."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import vitscope
from sparse.sparse_models import SMALL
from train.tiny_runs import tiny
from vitscope.data.dataset import open_dataset
from vitscope.models.config import ModelConfig, ViTConfig
from vitscope.sparse import sparsify as experiments
from vitscope.sparse.config import SparseConfig
from vitscope.sparse.rows import Row
from vitscope.sparse.sparsify import Experiment
from vitscope.train import finish
from vitscope.train.config import TrainConfig
from vitscope.train.fit import fit
from vitscope.train.signals import StopFlag

VIT = ViTConfig(**SMALL)
"""6 heads and 40 neurons over two blocks."""
STEPS_PER_EPOCH = 6
"""72 training pictures, 12 at a time."""
STEPS = 2 * STEPS_PER_EPOCH
"""Of a run: two epochs. A round of rsst cuts after the first."""


def settings(model: ModelConfig = VIT, *, data: dict[str, Any] | None = None, **sections: Any) -> TrainConfig:
    """A learning rate at which networks differ in what they get right."""
    optim = {"lr": 1e-2, **sections.pop("optim", {})}
    return tiny(model, data={"batch_size": 12, **(data or {})}, schedule={"name": "cosine"}, optim=optim, **sections)


def plan(**changes: Any) -> SparseConfig:
    return SparseConfig(**{"rate": 0.4, "score_batches": 10, "timing": "none", **changes})


def experiment(
    out: Path, config: TrainConfig | None = None, *, report: bool = False, keeps_cuts: bool = True, **given: Any
) -> Experiment:
    """Settings of `sparsify` are told from those of SparseConfig by their names. Without `report` none is drawn."""
    own = {name: given.pop(name) for name in ("source", "resume", "overwrite", "stop", "title", "say") if name in given}
    own = {"say": lambda text: None, "stop": StopFlag(), **own}
    with quickly(report=report, keeps_cuts=keeps_cuts):
        return experiments.sparsify(config or settings(), plan(**given), out=out, **own)


@contextlib.contextmanager
def quickly(*, report: bool = False, keeps_cuts: bool = True) -> Iterator[None]:
    """Runs draw no pictures and wait for no disk: both take longer than they do. What a cut was made from stays, for
    those who ask it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(finish, "_draw", lambda *_: None)
        patched.setattr(os, "fsync", lambda _: None)
        if keeps_cuts:
            patched.setattr(importlib.import_module("vitscope.sparse.rounds.rsst"), "let_go", lambda _: None)
        if not report:
            patched.setattr(experiments, "write_report", lambda *_, **__: {})
        yield


def dense_run(out: Path, config: TrainConfig | None = None) -> str:
    """A trained network for experiments to begin with."""
    with quickly():
        return str(fit(config or settings(), out=out, quiet=True).folder.path)


# --- what is left ----------------------------------------------------------------------------------------------------


def row_of(done: Experiment, network: str, number: int | None = None, *, seed: int | None = None) -> Row:
    (found,) = (
        row for row in done.rows if row.network == network and number in (None, row.round) and seed in (None, row.seed)
    )
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def logged(run: Path, key: str) -> dict[int, float]:
    """By step."""
    return {row["step"]: row[key] for row in metrics(run) if key in row}


def weights_in(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def what_counts(folder: Path) -> dict[str, Any]:
    """Everything an experiment left that no clock decides, by file and name: rewind points, masks, models, what
    optimisers remember, metrics, rows. Of checkpoints the last: more of them lie where it was stopped."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if (
            path.parent.parent.name == "checkpoints"
            and (path.parent.parent / "last").read_text().strip() != path.parent.name
        ):
            continue
        if path.suffix == ".safetensors":
            found |= {f"{name}: {key}": _bits(tensor) for key, tensor in load_file(path).items()}
        elif path.name == "trainer.pt":
            state = torch.load(path, weights_only=True)["state"]
            found |= {f"{name}: {key}": value for key, value in _flat(state)}
        elif path.name == "metrics.jsonl":
            found[name] = [_timeless(row) for row in metrics(path.parent)]
        elif path.name in ("outcome.json", "cut.json"):
            found[name] = _timeless(json.loads(path.read_text()))
    return found


def differences(one: Path, other: Path) -> list[str]:
    """Names of what is not equal to the last bit."""
    first, second = what_counts(one), what_counts(other)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key not in ("time", "train/images_per_s", "seconds")}


def _bits(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().numpy().tobytes()


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}/{key}")
    else:
        yield name, _bits(value) if isinstance(value, Tensor) else value


# --- measured another way --------------------------------------------------------------------------------------------


def accuracy_by_hand(model_folder: Path, config: TrainConfig, part: str) -> tuple[float, int]:
    """Of a saved model: pixels of one picture after the other, normalised as the folder says."""
    model: Any = vitscope.load_model(model_folder).eval()
    dataset, like = open_dataset(config.data), model.preprocessing
    right = 0
    for index in dataset.splits[part]:
        pixels: Any = torch.as_tensor(dataset.source.read(int(index)))
        image = (pixels.float().reshape(1, 1, 8, 8) / 255 - like.mean[0]) / like.std[0]
        with torch.no_grad():
            right += int(model(image).argmax()) == int(dataset.source.labels[index])
    return right / len(dataset.splits[part]), len(dataset.splits[part])


# --- interruptions ---------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """Nobody catches it: what a kill leaves behind, without a process of its own."""


@contextlib.contextmanager
def before(place: str, call: int, deed: Callable[[], None]) -> Iterator[None]:
    """`deed` just before the `call`-th call (from 1) of the function at `place`."""
    module, _, name = place.rpartition(".")
    holder = importlib.import_module(module)
    original, calls = getattr(holder, name), 0

    def trapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            deed()
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(holder, name, trapped)
        yield
    assert calls >= call, f"{place} was called {calls} times: nothing was interrupted"


def kill() -> None:
    raise KilledError
