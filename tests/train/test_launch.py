"""Launching steps: addresses, seeds, and a step that fails before its update is as if it had not begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from train.tiny_runs import tiny
from vitscope.core.errors import InputError, VitscopeError
from vitscope.data.config import DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.loader import BadSample, Batch
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig
from vitscope.train import fit as fitting
from vitscope.train.basis import lay_out
from vitscope.train.checkpoints.store import Checkpoint
from vitscope.train.config import LoopConfig, LossConfig, OptimConfig, PrecisionConfig, TrainConfig, named_model
from vitscope.train.fit import fit
from vitscope.train.launch import WORTH_COMPILING, Launcher, choose_launch
from vitscope.train.objective import Objective
from vitscope.train.optim.optimizer import Optimizer
from vitscope.train.resume import epochs_done
from vitscope.train.state import TrainState

CPU = torch.device("cpu")
BATCH = 8


class Batches:
    """A loader of five batches, of which the third cannot be decoded and is passed over."""

    why, num_batches, num_pictures = "made up", 5, 5 * BATCH
    bad_samples: list[BadSample] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.position = 0

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number in range(start, self.num_batches):
            self.position = number + 1
            if number != 2:
                generator = torch.Generator().manual_seed(10 * epoch + number)
                images = torch.randn(BATCH, 1, 8, 8, generator=generator)
                yield Batch(images, torch.arange(BATCH) % 3, torch.arange(BATCH))

    def close(self) -> None:
        pass


class Failing:
    """An objective that fails at chosen calls, after the network has run and its running means have moved."""

    def __init__(self, state: TrainState, error: Exception | None = None, calls: tuple[int, ...] = ()) -> None:
        self.plain, self.error, self.calls = Objective(state.model, LossConfig()), error, calls
        self.sizes: list[int] = []

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self.sizes.append(len(images))
        answer = self.plain(images, labels)
        if self.error is not None and len(self.sizes) in self.calls:
            raise self.error
        return answer


def make(micro_batch: int | None = None) -> TrainState:
    torch.manual_seed(0)
    model = build_model(CNNConfig(img_size=8, widths=(4,), num_classes=3)).train()
    return TrainState(
        model,
        Optimizer(model, OptimConfig()),
        lr_table=torch.full((10,), 1e-2),
        device=CPU,
        micro_batch=micro_batch,
        ledger_rows=10,
    )


def launcher(state: TrainState, objective: Any, said: list[str] | None = None, launch: str = "eager") -> Launcher:
    say = (said if said is not None else []).append
    return Launcher(state, Batches(), objective, launch=launch, batch_size=BATCH, seed=3, say=say)


def weights(state: TrainState) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.model.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


FULL = torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("wish", "device", "chosen"),
    [
        ("auto", "cpu", "eager"),
        ("auto", "cuda", "graph"),
        ("auto", "mps", "eager"),
        ("graph", "cpu", "eager"),
        ("compiled_graph", "cpu", "compiled"),
        ("compiled_graph", "mps", "compiled"),
        ("compiled_graph", "cuda", "compiled_graph"),
        ("compiled", "cpu", "compiled"),
        ("eager", "cuda", "eager"),
    ],
)
def test_what_a_device_cannot_do_is_left_out(wish: str, device: str, chosen: str) -> None:
    assert choose_launch(wish, torch.device(device)) == chosen


@pytest.mark.parametrize(
    ("wish", "device", "chosen"),
    [("auto", "cuda", "compiled_graph"), ("auto", "cpu", "eager"), ("graph", "cuda", "graph")],
)
def test_a_long_run_is_worth_compiling(wish: str, device: str, chosen: str) -> None:
    assert choose_launch(wish, torch.device(device), work=WORTH_COMPILING) == chosen


@pytest.mark.parametrize(("epochs", "chosen"), [(20, "graph"), (200, "compiled_graph")])
def test_the_work_of_a_run_is_counted_by_its_model_pictures_and_epochs(epochs: int, chosen: str) -> None:
    """vit_tiny does 1.8e8 multiply-adds forward on a picture, and there are 34,000 to train on."""
    data = DataConfig(name="synthetic:size=32,count=50000,classes=10")
    config = TrainConfig(model=named_model("vit_tiny"), data=data, loop=LoopConfig(epochs=epochs))
    basis = lay_out(config, open_dataset(data), torch.device("cuda"))
    assert basis.multiply_adds() == pytest.approx(3 * 1.83e8 * 34_000 * epochs, rel=0.05)
    assert basis.launch == chosen


@pytest.mark.parametrize(("done", "chosen"), [(0, "compiled_graph"), (150, "graph"), (300, "graph")])
def test_of_a_resumed_run_only_what_is_left_is_counted(done: float, chosen: str) -> None:
    data = DataConfig(name="synthetic:size=32,count=50000,classes=10")
    config = TrainConfig(model=named_model("vit_tiny"), data=data, loop=LoopConfig(epochs=200))
    basis = lay_out(config, open_dataset(data), torch.device("cuda"), epochs_done=done)
    assert basis.launch == chosen
    assert basis.multiply_adds() == pytest.approx(3 * 1.83e8 * 34_000 * max(0, 200 - done), rel=0.05)


@pytest.mark.parametrize(
    ("meta", "done"),
    [
        (None, 0),
        ({"epoch": 7, "batch": 0, "steps_per_epoch": 4}, 7),
        ({"epoch": 7, "batch": 3, "steps_per_epoch": 4}, 7.75),
        ({"epoch": 7, "batch": 3}, 7),
    ],
)
def test_how_much_lies_behind_a_checkpoint(meta: dict[str, Any] | None, done: float) -> None:
    assert epochs_done(None if meta is None else Checkpoint(Path("step-000031"), 31, meta)) == done


def test_a_run_that_is_resumed_counts_what_is_left(
    tmp_path: Path, no_pictures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def noting(*args: Any, **kwargs: Any) -> Any:
        made = lay_out(*args, **kwargs)
        seen.append(made.epochs_done)
        return made

    monkeypatch.setattr(fitting, "lay_out", noting)
    fit(tiny(loop={"epochs": 2}), out=tmp_path / "run", quiet=True)
    fit(tiny(loop={"epochs": 3}), out=tmp_path / "run", quiet=True, resume=True)
    assert seen == [0, 2]


def test_an_epoch_gives_the_number_of_the_batch_that_comes_next() -> None:
    state = make()
    steps = launcher(state, Failing(state))
    assert list(steps.epoch(0, 0)) == [1, 2, 4, 5]
    assert list(steps.epoch(0, 3)) == [4, 5]
    assert len(state.ledger.read()) == 6


def test_a_step_depends_on_its_address_and_on_no_step_before_it() -> None:
    """Dropout too: from the same weights, batch 4 alone is batch 4 after three others."""
    state = make()
    drawn: dict[tuple[int, int], Tensor] = {}

    def drawing(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        drawn[epoch, steps.loader.position] = torch.rand(3)
        return Objective(state.model, LossConfig())(images, labels)

    steps = launcher(state, drawing)
    for epoch in (0, 1):
        list(steps.epoch(epoch, 0))
    whole = dict(drawn)
    assert len({tuple(value.tolist()) for value in whole.values()}) == 8  # no two the same
    epoch = 1
    drawn.clear()
    torch.rand(17)
    list(steps.epoch(1, 4))
    assert torch.equal(drawn[1, 5], whole[1, 5])


@pytest.mark.parametrize("failing_call", [1, 2])
def test_no_memory_halves_the_parts_and_the_step_is_that_of_the_parts(failing_call: int) -> None:
    state, said = make(micro_batch=None if failing_call == 1 else 4), []
    objective = Failing(state, FULL, (failing_call,))
    number = next(iter(launcher(state, objective, said).epoch(0, 0)))
    half = 4 if failing_call == 1 else 2
    assert number == 1
    assert state.micro_batch == half
    assert objective.sizes == ([8] if failing_call == 1 else [4, 4]) + [half] * (8 // half)
    assert said == [
        f"out of memory with {2 * half} pictures at once: going on with micro_batch {half}, {8 // half} parts; "
        "the batch stays 8"
    ]
    assert len(state.ledger.read()) == 1
    wanted = make(micro_batch=half)
    next(iter(launcher(wanted, Failing(wanted)).epoch(0, 0)))
    assert same(weights(state), weights(wanted))  # gradients and running means of the attempt are gone


def test_an_odd_number_is_halved_upwards_until_one() -> None:
    state, said = make(micro_batch=5), []
    with pytest.raises(VitscopeError, match="out of memory with one picture at a time") as caught:
        next(iter(launcher(state, Failing(state, FULL, tuple(range(1, 100))), said).epoch(0, 0)))
    assert [line.split("micro_batch ")[1].split(",")[0] for line in said] == ["3", "2", "1"]
    assert "--precision.grad-checkpointing" in str(caught.value.fix)
    assert same(weights(state), weights(make()))


@pytest.mark.parametrize("error", [RuntimeError("shapes"), InputError("wrong"), KeyError("x")])
def test_another_error_is_raised_as_it_is(error: Exception) -> None:
    state = make()
    objective = Failing(state, error, (1,))
    with pytest.raises(type(error)):
        next(iter(launcher(state, objective).epoch(0, 0)))
    assert objective.sizes == [8]
    assert state.micro_batch is None


def test_an_update_that_has_begun_is_not_begun_again() -> None:
    state = make()

    def hook(state: TrainState) -> None:
        raise FULL

    objective = Failing(state)
    steps = Launcher(state, Batches(), objective, launch="eager", batch_size=BATCH, seed=3, after=[hook])
    with pytest.raises(torch.OutOfMemoryError):
        next(iter(steps.epoch(0, 0)))
    assert objective.sizes == [8]
    assert int(state.updates) == 1


def test_a_launch_that_does_not_work_here_becomes_a_plainer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is no compiler."""

    def compiled(function: Any, **given: Any) -> Any:
        def call(*args: Any) -> Any:
            raise OSError("no C++ compiler")

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    state, said = make(), []
    steps = launcher(state, Failing(state), said, launch="compiled")
    assert list(steps.epoch(0, 0)) == [1, 2, 4, 5]
    assert steps.launch == "eager"
    assert len(said) == 1
    assert "launch 'compiled' does not work here (OSError: " in said[0]
    assert "no C++ compiler" in said[0]
    assert "going on with 'eager'" in said[0]
    wanted = make()
    list(launcher(wanted, Failing(wanted)).epoch(0, 0))
    assert same(weights(state), weights(wanted))


@pytest.mark.parametrize(("failing", "left"), [("compiler", "graph"), ("capture", "compiled")])
def test_of_two_means_only_the_one_goes_that_failed(failing: str, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **given: function)
    state, said = make(), []
    steps = launcher(state, Failing(state), said, launch="compiled_graph")

    class NoCompilerError(RuntimeError):
        pass

    NoCompilerError.__module__ = "torch._inductor.exc"
    failed: list[str] = []

    def once() -> None:
        if not failed:
            failed.append(failing)
            raise NoCompilerError("no gcc") if failing == "compiler" else RuntimeError("not permitted in capture")

    steps._attempt(once)
    assert steps.launch == left
    assert f"going on with '{left}'" in said[-1]


@pytest.mark.parametrize("error", [FULL, OSError("no C++ compiler")], ids=["memory", "compiler"])
def test_only_a_loader_that_cannot_be_compiled_goes_on_plainly(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is full, plain augmentation would need no less."""

    def compiled(function: Any, **given: Any) -> Any:
        def call(*args: Any) -> Any:
            raise error

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    config, state, said = tiny(data={"loader": "device"}, precision=PrecisionConfig(launch="compiled")), make(), []
    loader = lay_out(config, open_dataset(config.data), CPU).loader("train", training=True, say=said.append)

    def start() -> None:
        Launcher(state, loader, Failing(state), launch="compiled", batch_size=72, seed=0, say=said.append)

    if error is not FULL:
        start()
        assert "augmentation cannot be compiled here (OSError: no C++ compiler)" in said[-1]
        return
    with pytest.raises(VitscopeError, match="out of memory in the augmentation of a batch of 72") as full:
        start()
    assert "--data.loader worker" in str(full.value)
    assert said == []
