"""What the training loop does in a second, and beside it a plainer one: images/s of both, turn by turn in one run.

    python bench/train_loop.py --device cpu                   # vit_tiny, basic augmentation, as in docs/benchmarks.md
    python bench/train_loop.py --device cuda --batch 1024 --launch compiled_graph --beside timm
    python bench/train_loop.py --device cpu --quick           # seconds: does the script work?

The loop is the whole of it: loading, augmentation, step, ledger, log, metrics.jsonl, TensorBoard, progress, EMA.
Evaluation and checkpoints are left out. An epoch of it takes turns with as many steps of
bare  `train_step` on one batch that is already there, launched kernel by kernel, on a model and optimiser of its own.
timm  timm's network with our weights, compiled together with its loss, with the same augmentation (ours, always
      compiled), bf16 and fused AdamW, written as a plain loop. It is first proved to be the same network. For equal
      work the loop then has neither EMA nor clipping, and a model with dropout is refused.
The table names the launch the loop really had; where it went on with another, or with parts of a batch, it stops.
"""

from __future__ import annotations

import argparse
import io
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor

from engine import as_asked, say
from report import report
from vitscope.core.run_folder import RunFolder
from vitscope.data.config import DataConfig, augmentation
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.infer.benchmark.peers import OURS, TIMM, Proof, State, build, prove_equal
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import paired_ratio, summary
from vitscope.models.config import ViTConfig, pair
from vitscope.train.basis import Basis, lay_out, settle
from vitscope.train.config import CheckpointConfig, LoopConfig, OptimConfig, PrecisionConfig, TrainConfig, named_model
from vitscope.train.evaluate import Evaluation
from vitscope.train.first_state import make_state
from vitscope.train.loop import train
from vitscope.train.losses import cross_entropy
from vitscope.train.precision import autocast, choose_dtype, using_precision
from vitscope.train.setup import set_up
from vitscope.train.show.observer import Observer, Observers
from vitscope.train.show.progress import Progress
from vitscope.train.show.tensorboard import TensorBoard
from vitscope.train.signals import StopFlag
from vitscope.train.step import train_step


@dataclass
class Outcome:
    """Images/s of the loop and of what is beside it, a pair a round, and what the loop really did."""

    loop: list[float]
    other: list[float]
    did: dict[str, str | int]
    proof: Proof = field(default_factory=Proof)


class Clocked(Observer):
    """Notes the speed of each epoch as the loop itself tells it."""

    def __init__(self) -> None:
        self.images_per_s: list[float] = []

    def epoch(self, row: dict[str, Any]) -> None:
        self.images_per_s.append(row["train/images_per_s"])


def settings(wish: argparse.Namespace) -> TrainConfig:
    batches = 2 if wish.quick else wish.batches
    batch = 8 if wish.quick else wish.batch
    count = max(100, int(batches * batch / 0.68) + batch)  # 68 % of a pool are for training
    model = named_model(wish.model)
    if wish.quick:
        model = model.changed(depth=1)
    size = max(pair(model.bare.img_size))
    alone = wish.beside == "bare"
    return TrainConfig(
        model=model,
        data=DataConfig(name=f"synthetic:size={size},count={count},classes=10", batch_size=batch, loader="device"),
        augment=augmentation(wish.augment, size),
        optim=OptimConfig(clip_norm=1.0 if alone else None),
        precision=PrecisionConfig(launch=wish.launch),
        loop=LoopConfig(epochs=wish.rounds + 1, device=wish.device, ema_decay=0.999 if alone else None),
        checkpoint=CheckpointConfig(every_epochs=10_000),
    )


def compare(config: TrainConfig, folder: Path, beside: str, *, quick: bool) -> Outcome:
    """The two in turn; the first round, which warms up, is left out."""
    proof = _proved(cast(ViTConfig, config.model.bare)) if beside == "timm" else Proof()
    dataset = open_dataset(config.data)
    config = settle(config, dataset)
    device = torch.device(config.loop.device)
    basis, clocked, run = lay_out(config, dataset, device), Clocked(), RunFolder.create(folder / "run", name="run")
    observers = Observers([clocked, TensorBoard(run.path)])
    work = set_up(basis, run, observers=observers, after=(), stop=StopFlag(), say=say)
    wish = config.precision.launch
    asked = basis.launch if wish == "auto" else wish
    as_asked(work.launcher, asked)  # what the device cannot do is seen before anything is timed
    steps, batch_size = work.steps_per_epoch, config.data.batch_size
    progress = Progress(
        epochs=config.loop.epochs, steps_per_epoch=steps, batch_size=batch_size, stream=io.StringIO(), terminal=False
    )
    observers.watchers.append(progress)
    other = _bare(basis, steps) if beside == "bare" else _timm(basis, work.state.model.state_dict(), compiled=not quick)
    seen: list[float] = []

    def time_other() -> Evaluation:
        """In the place of the evaluation, so that the two take turns."""
        _wait(device)
        began = time.perf_counter()
        for _ in range(steps):
            other()
        _wait(device)
        seen.append(steps * batch_size / (time.perf_counter() - began))
        return Evaluation(0.0, 0.0, None, 1, torch.zeros(1, 1, dtype=torch.int64), [], batch_size)

    work.evaluate = time_other
    work.write_model = lambda weights, step: None
    train(work)
    return Outcome(clocked.images_per_s[1:], seen[1:], as_asked(work.launcher, asked), proof)


def _proved(config: ViTConfig) -> Proof:
    proof = prove_equal(config, [OURS, TIMM])
    if proof.problems:
        sys.exit(f"timm: {proof.problems[TIMM]}")
    say(proof.text())
    return proof


def _bare(basis: Basis, steps: int) -> Callable[[], None]:
    state, objective = make_state(basis, steps, _silent)
    batch = next(iter(basis.loader("train", training=True, say=_silent).epoch(0)))

    def step() -> None:
        train_step(state, batch.images, batch.labels, objective=objective)
        state.ledger.clear()

    return step


def _timm(basis: Basis, weights: State, *, compiled: bool) -> Callable[[], None]:
    config, device = basis.config, basis.device
    model = build(TIMM, cast(ViTConfig, config.model.bare), weights).to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), config.lr, betas=config.optim.betas, weight_decay=config.optim.decay, fused=True
    )
    # By the loop's own rule its augmentation is compiled only with a compiled step. Here it is in any case.
    loader = make_loader(
        basis.dataset,
        "train",
        preprocess=basis.preprocess,
        augment=config.augment,
        seed=config.loop.seed,
        device=device,
        batch_size=config.data.batch_size,
        compiled=compiled,
    )
    batches = itertools.chain.from_iterable(loader.epoch(epoch) for epoch in itertools.count())

    def plain_loss(images: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(model(images), labels, smoothing=config.loss.smoothing)

    loss_of = torch.compile(plain_loss) if compiled else plain_loss

    def step() -> None:
        images, labels, _ = next(batches)
        with autocast(device, choose_dtype(config.precision, device)):
            loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _silent(text: str) -> None:
    pass


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vit_tiny")
    parser.add_argument("--augment", default="basic")
    parser.add_argument("--launch", default="auto")
    parser.add_argument("--beside", choices=("bare", "timm"), default="bare")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=10, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing compiled: does the script work?")
    parser.add_argument("--json", type=Path)
    wish = parser.parse_args()
    config = settings(wish)
    with TemporaryDirectory() as folder, using_precision(config.precision):
        found = compare(config, Path(folder), wish.beside, quick=wish.quick)
    loop, other = found.loop, found.other
    ratio = paired_ratio(loop, other)
    row = {
        "loop": loop,
        wish.beside: other,
        "ratio": [ratio.median, ratio.low, ratio.high],
        **found.did,
        "equal_work": asdict(found.proof),
    }
    text = (
        f"| model | batch | launch of the loop | {wish.beside}, images/s | loop, images/s "
        f"| loop / {wish.beside} (quartiles) |\n"
        "|---|---:|---|---:|---:|---:|\n"
        f"| {wish.model} | {config.data.batch_size} | {found.did['launch']} | {summary(other).median:,.0f} "
        f"| {summary(loop).median:,.0f} | {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) |"
    )
    report(surroundings(torch.device(wish.device)), [row], text, wish.json)


if __name__ == "__main__":
    main()
