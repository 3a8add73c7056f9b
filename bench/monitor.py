"""What the gradient monitor costs: rounds of the training loop with it and without it, in turns, in one run.

    python bench/monitor.py --device cuda --batch 1024 --batches 400       # vit_tiny, as in docs/benchmarks.md
    python bench/monitor.py --device cpu                                   # minutes
    python bench/monitor.py --device cpu --quick                           # seconds: does the script work?

Both are the same run (data, augmentation, seed, launch); only one is watched. Evaluation and checkpoints are left out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from engine import as_asked, say
from report import report
from vitscope.core.run_folder import RunFolder
from vitscope.data.config import DataConfig, augmentation
from vitscope.data.dataset import open_dataset
from vitscope.doctor.monitor import Monitor
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import paired_ratio, summary
from vitscope.models.config import pair
from vitscope.train.basis import lay_out, settle
from vitscope.train.config import LoopConfig, PrecisionConfig, TrainConfig, named_model
from vitscope.train.loop import look, look_every, note_step
from vitscope.train.precision import using_precision
from vitscope.train.setup import set_up
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag
from vitscope.train.work import Work

EPOCH_BATCHES = 20
"""Of an epoch at most: a round is several of them, and only so many pictures need be made."""


def settings(wish: argparse.Namespace) -> TrainConfig:
    batches, batch = (12, 8) if wish.quick else (min(wish.batches, EPOCH_BATCHES), wish.batch)
    model = named_model(wish.model)
    if wish.quick:
        model = model.changed(depth=1)
    size = max(pair(model.bare.img_size))
    count = int(batches * batch / 0.68) + batch  # 68 % of a pool are for training
    return TrainConfig(
        model=model,
        data=DataConfig(name=f"synthetic:size={size},count={count},classes=10", batch_size=batch, loader="device"),
        augment=augmentation("basic", size),
        precision=PrecisionConfig(launch=wish.launch),
        loop=LoopConfig(epochs=1_000, device=wish.device),
    )


def made(config: TrainConfig, place: Path, monitor: Monitor | None) -> Work:
    dataset = open_dataset(config.data)
    basis = lay_out(settle(config, dataset), dataset, torch.device(config.loop.device))
    run = RunFolder.create(place, name=place.name)
    watched = [] if monitor is None else [monitor]
    return set_up(basis, run, observers=Observer(), after=(), between=watched, stop=StopFlag(), say=say)


def round_seconds(work: Work, epochs: int) -> float:
    """The loop's steps of so many epochs, as `train` takes them."""
    _wait(work.state.device)
    began = time.perf_counter()
    work.clock = began
    for _ in range(epochs):
        for batch in work.launcher.epoch(work.course.epoch, 0):
            note_step(work, batch)
            for onlooker in work.between:
                onlooker.see(work)
            if len(work.steps_unread) >= look_every(work):
                look(work)
        look(work)
        work.course.next_epoch()
    _wait(work.state.device)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vit_tiny")
    parser.add_argument("--launch", default="auto")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=40, help="steps in a round, about")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does the script work?")
    parser.add_argument("--json", type=Path)
    wish = parser.parse_args()
    rounds = 2 if wish.quick else wish.rounds
    config, monitor = settings(wish), Monitor()
    with TemporaryDirectory() as folder, using_precision(config.precision):
        works = [made(config, Path(folder) / "watched", monitor), made(config, Path(folder) / "alone", None)]
        epochs = max(1, round(wish.batches / works[0].steps_per_epoch)) if not wish.quick else 1
        seconds: list[list[float]] = [[], []]
        for turn in range(rounds + 1):
            for which in (0, 1) if turn % 2 else (1, 0):
                seconds[which].append(round_seconds(works[which], epochs))
        launches = [as_asked(work.launcher, work.launcher.launch)["launch"] for work in works]
    watched, alone = seconds[0][1:], seconds[1][1:]  # the first round warms up
    ratio = paired_ratio(watched, alone)  # of seconds: what the watched one takes more
    row = {"watched": watched, "alone": alone, "looks": len(monitor.rows), "launch": launches}
    steps = works[0].steps_per_epoch * epochs
    text = (
        "| model | batch | launch | alone, ms a step | watched, ms a step | watched / alone (quartiles) | looks |\n"
        "|---|---:|---|---:|---:|---:|---:|\n"
        f"| {wish.model} | {config.data.batch_size} | {launches[0]} | {summary(alone).median / steps * 1e3:.2f} "
        f"| {summary(watched).median / steps * 1e3:.2f} | {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) "
        f"| {len(monitor.rows)} in {steps * (rounds + 1)} steps |"
    )
    report(surroundings(torch.device(wish.device)), [row], text, wish.json)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
