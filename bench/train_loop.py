"""What the training loop costs beside the bare step: images/s of both, turn by turn in one run.

    python bench/train_loop.py --device cpu                   # vit_tiny, basic augmentation, as in docs/benchmarks.md
    python bench/train_loop.py --device cuda --batch 256 --launch compiled_graph
    python bench/train_loop.py --device cpu --quick           # seconds: does the script work?

The loop is the whole of it: loading, augmentation, step, ledger, log, metrics.jsonl, TensorBoard, progress, EMA. The
bare step is `train_step` on one batch that is already there, launched kernel by kernel, on a model and optimiser of its
own. An epoch of the loop and as many bare steps take turns; evaluation and checkpoints are in neither.
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from surroundings import report, surroundings
from timing import paired_ratio, summary
from vitscope.core.run_folder import RunFolder
from vitscope.data.config import DataConfig, augmentation
from vitscope.data.dataset import open_dataset
from vitscope.train.config import CheckpointConfig, LoopConfig, PrecisionConfig, TrainConfig, named_model
from vitscope.train.evaluate import Evaluation
from vitscope.train.loop import train
from vitscope.train.setup import lay_out, make_state, set_up, settle
from vitscope.train.show.observer import Observer, Observers
from vitscope.train.show.progress import Progress
from vitscope.train.show.tensorboard import TensorBoard
from vitscope.train.signals import StopFlag
from vitscope.train.step import train_step


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
    return TrainConfig(
        model=named_model(wish.model),
        data=DataConfig(name=f"synthetic:size=32,count={count},classes=10", batch_size=batch, loader="device"),
        augment=augmentation(wish.augment, 32),
        precision=PrecisionConfig(launch=wish.launch),
        loop=LoopConfig(epochs=wish.rounds + 1, device=wish.device, ema_decay=0.999),
        checkpoint=CheckpointConfig(every_epochs=10_000),
    )


def compare(config: TrainConfig, folder: Path) -> tuple[list[float], list[float]]:
    """Images/s of the loop and of the bare step, one pair a round; the first round, which warms up, is left out."""
    dataset = open_dataset(config.data)
    config = settle(config, dataset)
    device = torch.device(config.loop.device)
    bench, clocked, run = lay_out(config, dataset, device), Clocked(), RunFolder.create(folder / "run", name="run")
    observers = Observers([clocked, TensorBoard(run.path)])
    work = set_up(bench, run, observers=observers, after=(), stop=StopFlag(), say=lambda text: None)
    steps, batch_size = work.steps_per_epoch, config.data.batch_size
    progress = Progress(
        epochs=config.loop.epochs, steps_per_epoch=steps, batch_size=batch_size, stream=io.StringIO(), terminal=False
    )
    observers.watchers.append(progress)
    state, objective = make_state(bench, steps, lambda text: None)
    batch = next(iter(bench.loader("train", training=True, say=lambda text: None).epoch(0)))
    bare: list[float] = []

    def time_bare_steps() -> Evaluation:
        """In the place of the evaluation, so that the two take turns."""
        _wait(device)
        began = time.perf_counter()
        for _ in range(steps):
            train_step(state, batch.images, batch.labels, objective=objective)
            state.ledger.clear()
        _wait(device)
        bare.append(steps * batch_size / (time.perf_counter() - began))
        return Evaluation(0.0, 0.0, None, 1, torch.zeros(1, 1, dtype=torch.int64), [], batch_size)

    work.evaluate = time_bare_steps
    work.save_model = lambda: None
    train(work)
    return clocked.images_per_s[1:], bare[1:]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vit_tiny")
    parser.add_argument("--augment", default="basic")
    parser.add_argument("--launch", default="auto")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=10, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does the script work?")
    parser.add_argument("--json", type=Path)
    wish = parser.parse_args()
    config = settings(wish)
    with TemporaryDirectory() as folder:
        loop, bare = compare(config, Path(folder))
    ratio = paired_ratio(loop, bare)
    row = {"loop": loop, "bare": bare, "ratio": [ratio.median, ratio.low, ratio.high]}
    text = (
        "| model | batch | launch of the loop | bare step, images/s | loop, images/s | loop / bare (quartiles) |\n"
        "|---|---:|---|---:|---:|---:|\n"
        f"| {wish.model} | {config.data.batch_size} | {wish.launch} | {summary(bare).median:,.0f} "
        f"| {summary(loop).median:,.0f} | {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) |"
    )
    report(surroundings(torch.device(wish.device)), [row], text, wish.json)


if __name__ == "__main__":
    main()
