"""The device loader: pictures per second, by strength of augmentation and by how its kernels are launched.

    python bench/device_loader.py --device cuda                  # everything, as in docs/benchmarks.md
    python bench/device_loader.py --device cpu --quick           # seconds: does the script work?

A round times every way once, in rotating order; numbers are medians over rounds. Beside ours: torchvision's v2
transforms on the same batch on the same device, which draw once for the whole batch instead of once per picture, and so
do less. Before anything is timed, each way is compared with the plain one on the CPU, picture by picture. Last, a
training step of vit_tiny with and without the loader, which is what a user pays.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms import v2

from vitscope import create_model
from vitscope.core.cuda_graph import record
from vitscope.core.environment import why_no_compiler
from vitscope.data.config import AugmentConfig, augmentation, half_normalised
from vitscope.data.loaders.device import DeviceLoader
from vitscope.data.loaders.loader import Batch
from vitscope.data.mix import Mixer
from vitscope.data.transforms.batch import BatchTransform
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Call, Clock, interleaved, paired_ratio, summary

CLASSES = 10
STRENGTHS = ("basic", "medium", "strong")
TORCHVISION = "torchvision v2, one draw a batch"


def make(strength: str, size: int, count: int, batch: int, device: torch.device, *, compiled: bool) -> DeviceLoader:
    """A loader over noise: what pictures show costs nothing, their number and size do."""
    rng = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (count, 3, size, size), generator=rng, dtype=torch.uint8)
    labels = torch.randint(0, CLASSES, (count,), generator=rng)
    augment = augmentation(strength, size)
    return DeviceLoader(
        pictures.to(device),
        labels,
        torch.arange(count),
        transform=BatchTransform(augment, half_normalised((size, size), 3)).to(device),
        mixer=Mixer(augment, CLASSES, device) if augment.mixes else None,
        batch_size=batch,
        seed=0,
        training=True,
        compiled=compiled,
    )


def drawing(loader: DeviceLoader, draw_one: Callable[[], Batch] | None = None) -> Callable[[], Batch]:
    """The next batch, epoch after epoch, by `draw_one` where drawing takes something else than the loader's own."""
    draw_one = draw_one or loader.draw
    state = {"epoch": -1, "left": 0}

    def draw() -> Batch:
        if not state["left"]:
            state["epoch"] += 1
            state["left"] = loader.num_batches
            loader.begin(state["epoch"])
        state["left"] -= 1
        return draw_one()

    return draw


def captured(loader: DeviceLoader) -> Callable[[], Batch]:
    """The same with `draw` as one CUDA graph; the batch is where the graph leaves it."""
    loader.begin(0)
    return drawing(loader, as_graph(loader.draw))


def as_graph(work: Callable[[], Batch]) -> Callable[[], Batch]:
    """`work` recorded once and launched again as a whole."""
    graph, result = record(work, torch.device("cuda"))

    def replay() -> Batch:
        graph.replay()
        return result

    return replay


def torchvision_way(strength: str, size: int, pictures: Tensor, batch: int) -> Call:
    """Their transforms in the same order with the same settings, on a batch that is there already."""
    config = augmentation(strength, size)
    steps: list[Any] = _their_crop(config, size)
    steps.append(v2.RandomHorizontalFlip())
    if any(config.jitter):
        steps.append(v2.ColorJitter(*config.jitter))
    if config.randaugment_ops:
        steps.append(v2.RandAugment(config.randaugment_ops, config.randaugment_magnitude))
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)]
    if config.erase_prob:
        steps.append(v2.RandomErasing(config.erase_prob))
    transform = v2.Compose(steps)
    mixes = [kind(alpha=alpha, num_classes=CLASSES) for kind, alpha in _their_mixes(config)]
    mix = v2.RandomChoice(mixes) if mixes else None
    labels = torch.zeros(batch, dtype=torch.int64, device=pictures.device)

    def call() -> object:
        images = transform(pictures[:batch])
        return mix(images, labels) if mix is not None else images

    return call


def _their_crop(config: AugmentConfig, size: int) -> list[Any]:
    if config.crop == "resized":
        return [v2.RandomResizedCrop(size, config.crop_scale, config.crop_ratio)]
    return [v2.RandomCrop(size, padding=config.padding)]


def _their_mixes(config: AugmentConfig) -> list[tuple[Any, float]]:
    wanted = ((v2.MixUp, config.mixup_alpha), (v2.CutMix, config.cutmix_alpha))
    return [(kind, alpha) for kind, alpha in wanted if alpha]


def difference(draw: Callable[[], Batch], plain: DeviceLoader) -> tuple[float, float]:
    """Of the first batch, against the plain way on the CPU: share of values off by more than a level, and the most."""
    ours = draw()
    plain.begin(0)
    theirs = plain.draw()
    if not torch.equal(ours.indices.cpu(), theirs.indices):
        raise SystemExit("the order differs between devices")
    off = (ours.images.cpu() - theirs.images).abs()
    return float((off > 2.01 / 255).float().mean()), float(off.max())


def step_share(strength: str, size: int, count: int, batch: int, device: torch.device, rounds: int, quick: bool) -> str:
    """A training step of vit_tiny (compiled, bf16) on batches of this loader, against one on the same batch again.

    On a GPU both are launched as one CUDA graph, as the engine trains: from Python a step this small waits for its
    launches, and what a loader costs is then what Python costs.
    """
    less: dict[str, Any] = {"depth": 1} if quick else {}
    model = create_model("vit_tiny", num_classes=CLASSES, img_size=size, **less).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=device.type == "cuda")

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(images)
        return F.cross_entropy(logits.float(), labels)

    compiled_loss = loss_of if quick else torch.compile(loss_of)

    def step(batch: Batch) -> Batch:
        compiled_loss(batch.images, batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return batch

    loader = make(strength, size, count, batch, device, compiled=not quick)
    loader.begin(0)
    same = loader.draw()
    ways: dict[str, Callable[[], Batch]] = {"fixed": lambda: step(same), "loaded": lambda: step(loader.draw())}
    calls: dict[str, Call] = {
        name: drawing(loader, as_graph(way) if device.type == "cuda" else way) for name, way in ways.items()
    }
    for _ in range(3):
        for call in calls.values():
            call()
    seconds = interleaved(calls, Clock(device), rounds=rounds, least_seconds=0.02 if quick else 0.3)
    more = paired_ratio(seconds["loaded"], seconds["fixed"])
    fixed, loaded = (batch / summary(seconds[name]).median for name in ("fixed", "loaded"))
    return (
        f"vit_tiny, batch {batch}, {strength}: {fixed:,.0f} images/s on one batch, {loaded:,.0f} with the loader; "
        f"a step takes {more.median:.3f} times as long (quartiles {more.low:.3f} to {more.high:.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--only-steps", action="store_true", help="only what the loader adds to a training step")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does the script work?")
    parser.add_argument("--json", type=Path)
    wish = parser.parse_args()
    device = torch.device(wish.device)
    compile_too = device.type == "cuda" and not wish.no_compile and why_no_compiler(device.type) is None
    count, batches = (80, [8]) if wish.quick else (wish.count, wish.batches)
    print(json.dumps(surroundings(device)), flush=True)

    lines, facts = [], []
    for strength in () if wish.only_steps else STRENGTHS:
        for batch in batches:
            ways: dict[str, Callable[[], Any]] = {}
            plain = make(strength, wish.size, count, batch, torch.device("cpu"), compiled=False)
            ways["eager"] = drawing(make(strength, wish.size, count, batch, device, compiled=False))
            if device.type == "cuda":
                ways["eager, CUDA graph"] = captured(make(strength, wish.size, count, batch, device, compiled=False))
            if compile_too:
                ways["compiled"] = drawing(make(strength, wish.size, count, batch, device, compiled=True))
                ways["compiled, CUDA graph"] = captured(make(strength, wish.size, count, batch, device, compiled=True))
            proof = {name: difference(draw, plain) for name, draw in ways.items()}
            pictures = make("basic", wish.size, count, batch, device, compiled=False).pictures
            ways[TORCHVISION] = torchvision_way(strength, wish.size, pictures, batch)
            for call in ways.values():
                call()
            seconds = interleaved(ways, Clock(device), rounds=wish.rounds, least_seconds=0.01 if wish.quick else 0.1)
            for name, times in seconds.items():
                speed = summary([batch / time for time in times])
                off = f"{proof[name][0]:.1e} / {proof[name][1]:.2g}" if name in proof else ""
                spread = f"{speed.median:,.0f} ({speed.spread_percent:.0f} %)"
                lines.append(f"| {strength} | {batch} | {name} | {spread} | {off} |")
                facts.append({"strength": strength, "batch": batch, "way": name, "seconds": times, "off": off})
                print(lines[-1], flush=True)
    shares = []
    for strength in STRENGTHS:
        share_batch = 8 if wish.quick else 1024 if device.type == "cuda" else 32  # a step must not take minutes
        shares.append(step_share(strength, wish.size, count, share_batch, device, wish.rounds, wish.quick))
        print(shares[-1], flush=True)
    if wish.json:
        wish.json.write_text(json.dumps({"surroundings": surroundings(device), "rows": facts, "shares": shares}))
    print(f"\n{wish.size} px, {count:,} pictures; images/s: median over rounds (quartile distance); off: share of")
    print("values more than a level from the plain way on the CPU / the largest difference, of normalised values\n")
    print("| strength | batch | way | images/s | off |\n|---|---:|---|---:|---|\n" + "\n".join(lines))
    print("\n" + "\n".join(shares))


if __name__ == "__main__":
    main()
