"""What sparse training costs: masks and growing regularisation in a training step, and the cut to a smaller network.

    python bench/sparse.py --device cuda --batch 1024 --launch compiled_graph   # vit_tiny, as in docs/benchmarks.md
    OMP_NUM_THREADS=1 python bench/sparse.py --device cpu --batch 32            # minutes
    python bench/sparse.py --device cpu --quick                                 # seconds: does the script work?

The three are the same run of the ordinary engine (data, seed, launch), without a hook, with half of the weights masked
(MaskHook), and with half of the units doomed (GrowthHook); their steps take turns, with a network and an optimiser
each. On a CPU the time the processor worked is counted, which needs OMP_NUM_THREADS=1. The cut is `shrink` of a
network to every second head and neuron, by the clock, on the CPU, where it is always done.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from engine import as_asked, say
from report import report
from vitscope.core.run_folder import RunFolder
from vitscope.data.config import AugmentConfig, DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Call, Clock, interleaved, paired_ratio, summary
from vitscope.infer.benchmark.work import warm_up
from vitscope.models.build import build_model
from vitscope.models.config import pair
from vitscope.models.model import VisionModel
from vitscope.sparse.growth import Growth, GrowthHook
from vitscope.sparse.mask_hook import MaskHook
from vitscope.sparse.masks import all_kept, by_magnitude
from vitscope.sparse.surgery import shrink
from vitscope.sparse.units import Units, units_of
from vitscope.train.basis import lay_out, settle
from vitscope.train.config import LoopConfig, PrecisionConfig, TrainConfig, named_model
from vitscope.train.precision import using_precision
from vitscope.train.setup import set_up
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag
from vitscope.train.step import AfterStep
from vitscope.train.work import Work

ALONE = "alone"
EPOCHS = 10_000


def settings(wish: argparse.Namespace) -> TrainConfig:
    batches, batch = (2, 8) if wish.quick else (20, wish.batch)
    model = named_model(wish.model)
    if wish.quick:
        model = model.changed(depth=1)
    size = max(pair(model.bare.img_size))
    count = max(100, int(batches * batch / 0.68) + batch)  # 68 % of a pool are for training
    return TrainConfig(
        model=model,
        data=DataConfig(name=f"synthetic:size={size},count={count},classes=10", batch_size=batch, loader="device"),
        augment=AugmentConfig(),
        precision=PrecisionConfig(launch=wish.launch),
        loop=LoopConfig(epochs=EPOCHS, device=wish.device),
    )


def half_of(model: nn.Module) -> Units:
    """Every second unit."""
    whole = units_of(model)
    return Units({k: tuple(tuple(i % 2 == 0 for i in range(n)) for n in whole.totals(k)) for k in whole.kinds})


def hooks_of(config: TrainConfig) -> dict[str, list[AfterStep]]:
    model = build_model(config.model.bare)
    units = units_of(model)
    # As long as the run: all of it is timed while lambda grows.
    growth = GrowthHook(units.without(half_of(model)), Growth(steps=EPOCHS))
    return {ALONE: [], "MaskHook": [MaskHook(by_magnitude(model, all_kept(model), 0.5))], "GrowthHook": [growth]}


def made(config: TrainConfig, place: Path, hooks: Sequence[AfterStep]) -> Work:
    dataset = open_dataset(config.data)
    basis = lay_out(settle(config, dataset), dataset, torch.device(config.loop.device))
    run = RunFolder.create(place, name=place.name)
    return set_up(basis, run, observers=Observer(), after=hooks, stop=StopFlag(), say=say)


def one_step(work: Work) -> Call:
    """The engine's next step, at each call."""

    def steps() -> Iterator[int]:
        for epoch in itertools.count():
            yield from work.launcher.epoch(epoch, 0)

    taken = steps()
    return lambda: next(taken)


def cut_seconds(model: VisionModel, rounds: int) -> list[float]:
    units, seconds = half_of(model), []
    for _ in range(rounds):
        began = time.perf_counter()
        shrink(model, units)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vit_tiny")
    parser.add_argument("--cut", default="vit_base_patch16_224", help="the network that is cut in half")
    parser.add_argument("--launch", default="auto")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does the script work?")
    parser.add_argument("--json", type=Path)
    wish = parser.parse_args()
    device, config = torch.device(wish.device), settings(wish)
    rows = [_steps(config, device, wish), _cut(wish)]
    lines = [
        f"| {row['what']} | {row['batch']} | {row['launch']} | {row['time']} | {row['ratio']} |"
        for row in itertools.chain.from_iterable(rows)
    ]
    text = "\n".join(
        ["| what | batch | launch | time | over the step alone (quartiles) |", "|---|---:|---|---:|---:|", *lines]
    )
    report(surroundings(device), list(itertools.chain.from_iterable(rows)), text, wish.json)


def _steps(config: TrainConfig, device: torch.device, wish: argparse.Namespace) -> list[dict[str, object]]:
    clock = Clock(device, cpu_seconds=device.type == "cpu" and torch.get_num_threads() == 1)
    with TemporaryDirectory() as folder, using_precision(config.precision):
        works = {name: made(config, Path(folder) / name, hooks) for name, hooks in hooks_of(config).items()}
        asked = {name: work.launcher.launch for name, work in works.items()}
        calls = {name: one_step(work) for name, work in works.items()}
        for call in calls.values():
            warm_up(call, device)
        seconds = interleaved(calls, clock, rounds=wish.rounds, least_seconds=0.0 if wish.quick else 0.5)
        launches = {name: as_asked(work.launcher, asked[name])["launch"] for name, work in works.items()}
    found: list[dict[str, object]] = []
    for name, times in seconds.items():
        ratio = paired_ratio(times, seconds[ALONE])
        found.append(
            {
                "what": f"{wish.model}, a step {'alone' if name == ALONE else f'with {name}'}",
                "batch": config.data.batch_size,
                "launch": launches[name],
                "time": f"{1e3 * summary(times).median:.3g} ms",
                "ratio": "1" if name == ALONE else f"{ratio.median:.4f} ({ratio.low:.4f} to {ratio.high:.4f})",
                "seconds": times,
                "counted": "processor time" if clock.cpu_seconds else "time",
            }
        )
    return found


def _cut(wish: argparse.Namespace) -> list[dict[str, object]]:
    named = named_model(wish.cut)
    model = build_model((named.changed(depth=1) if wish.quick else named).bare)
    seconds = cut_seconds(model, 2 if wish.quick else 5)
    took = summary(seconds)
    time_text = f"{took.median:.3g} s ({took.low:.3g} to {took.high:.3g})"
    return [
        {
            "what": f"shrink {wish.cut} to half",
            "batch": "-",
            "launch": "-",
            "time": time_text,
            "ratio": "-",
            "seconds": seconds,
        }
    ]


if __name__ == "__main__":
    main()
