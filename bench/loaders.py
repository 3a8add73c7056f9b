"""The worker loader against torchvision's ImageFolder in torch's DataLoader, and against timm's loader.

    OMP_NUM_THREADS=1 VITSCOPE_DATA=... python bench/loaders.py

Equal work: the same JPEG files (imagenette160, written once to a temporary folder), the same variations by the
operations of torchvision on Pillow pictures, the same batch, workers and batches prepared ahead; all end in normalised
float32 batches on the CPU. Every competitor reads a whole epoch in every round, in rotating order. Beside the time that
passed it counts the processor's time of this process and its workers, which is steadier where a machine is shared.
timm is run both ways, its prefetcher on and off, and the better counts.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder as PeerFolder
from torchvision.transforms import InterpolationMode, v2

from report import report
from vitscope.core.environment import data_roots
from vitscope.data.config import AugmentConfig, DataConfig, PreprocessConfig
from vitscope.data.loaders.worker import WorkerLoader
from vitscope.data.sources.folder import ImageFolder
from vitscope.data.transforms.batch import BatchTransform
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import paired_ratio, summary

OURS, TORCHVISION = "ours", "torchvision"
TIMM_WAYS = {"timm, prefetcher": True, "timm, no prefetcher": False}
SIDE = 160
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BICUBIC, BILINEAR = InterpolationMode.BICUBIC, InterpolationMode.BILINEAR
Epoch = Callable[[], Iterator[Tensor]]

CASES: dict[str, tuple[AugmentConfig, list[v2.Transform]]] = {
    "resized crop, flip": (
        AugmentConfig(crop="resized", flip="random"),
        [v2.RandomResizedCrop(SIDE, interpolation=BICUBIC), v2.RandomHorizontalFlip()],
    ),
    "basic (small): padded crop, flip, jitter": (
        AugmentConfig(crop="padded", flip="random", jitter=(0.2, 0.2, 0.2, 0.1)),
        [
            v2.Resize(SIDE, interpolation=BICUBIC),
            v2.CenterCrop(SIDE),
            v2.RandomCrop(SIDE, padding=4),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.2, 0.2, 0.2, 0.1),
        ],
    ),
    "basic (large): margin crop, flip, rotation, jitter": (
        AugmentConfig(crop="margin", flip="random", rotate_degrees=10.0, jitter=(0.4, 0.4, 0.4, 0.1)),
        [
            v2.Resize(SIDE + 32, interpolation=BICUBIC),
            v2.RandomCrop(SIDE),
            v2.RandomHorizontalFlip(),
            v2.RandomRotation((-10.0, 10.0), interpolation=BILINEAR),
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        ],
    ),
}
"""Name -> our settings, and the same as torchvision's operations."""


@dataclass
class Times:
    """One number a round."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def main() -> None:
    args = parse_arguments()
    pictures = 64 if args.quick else args.pictures
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        origin = export(folder, pictures)
        for case in list(CASES)[: 1 if args.quick else None]:
            times = measure(folder, case, args)
            rows.append(row(case, times, args.batch * (pictures // args.batch)))
            print(json.dumps(rows[-1]), flush=True)
    facts = {**surroundings(torch.device("cpu")), "pictures": f"{pictures:,} {origin}", "workers": str(args.workers)}
    facts |= {"batch": str(args.batch), "rounds": str(args.rounds)}
    report(facts, rows, table(rows), args.json)


def measure(folder: Path, case: str, args: argparse.Namespace) -> dict[str, Times]:
    """Times of each competitor; each keeps its workers from round to round."""
    augment, operations = CASES[case]
    epochs: dict[str, Epoch] = {
        OURS: ours(folder, augment, args),
        TORCHVISION: torchvision_peer(folder, operations, args),
        **{name: timm_peer(folder, operations, args, way) for name, way in TIMM_WAYS.items()},
    }
    for name, epoch in epochs.items():  # starts the workers, fills the file cache, and proves the batches are alike
        check(name, epoch, args.batch)
    times = {name: Times() for name in epochs}
    names = list(epochs)
    for i in range(args.rounds):
        first = i % len(names)
        order = names[first:] + names[:first]
        for name in order if i // len(names) % 2 == 0 else reversed(order):
            wall, cpu = time.perf_counter(), cpu_seconds()
            for _ in epochs[name]():
                pass
            times[name].wall_s.append(time.perf_counter() - wall)
            times[name].cpu_s.append(cpu_seconds() - cpu)
    return times


def ours(folder: Path, augment: AugmentConfig, args: argparse.Namespace) -> Epoch:
    config = PreprocessConfig(img_size=(SIDE, SIDE), mean=MEAN, std=STD)
    source = ImageFolder.open(folder, DataConfig(name=str(folder)))
    loader = WorkerLoader(
        source,
        np.arange(len(source)),
        preprocess=config,
        augment=augment,
        batch_size=args.batch,
        seed=0,
        device=torch.device("cpu"),
        training=True,
        finish=BatchTransform(augment, config).finish,
        workers=args.workers,
    )
    numbers = iter(range(1_000_000))
    return lambda: (batch.images for batch in loader.epoch(next(numbers)))


def torchvision_peer(folder: Path, operations: list[v2.Transform], args: argparse.Namespace) -> Epoch:
    transform = v2.Compose(
        [*operations, v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    )
    loader = DataLoader(
        PeerFolder(folder, transform),
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
        persistent_workers=args.workers > 0,
    )
    return lambda: (images for images, _ in loader)


def timm_peer(folder: Path, operations: list[v2.Transform], args: argparse.Namespace, prefetcher: bool) -> Epoch:
    from timm.data.dataset_factory import create_dataset
    from timm.data.loader import create_loader

    dataset: Any = create_dataset("", root=str(folder), is_training=True)
    loader = create_loader(
        dataset,
        input_size=(3, SIDE, SIDE),
        batch_size=args.batch,
        is_training=True,
        mean=MEAN,
        std=STD,
        num_workers=args.workers,
        device=torch.device("cpu"),
        use_prefetcher=prefetcher,
    )
    # Its own variations are others; with ours in their place the work is equal.
    last: list[v2.Transform] = [v2.PILToTensor()]
    if not prefetcher:
        last += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    dataset.transform = v2.Compose([*operations, *last])
    return lambda: (images for images, _ in loader)


def check(name: str, epoch: Epoch, batch: int) -> None:
    """Equal work ends in equal kinds of batches."""
    for images in epoch():
        if images.shape != (batch, 3, SIDE, SIDE) or images.dtype != torch.float32 or not 0.5 < images.std() < 2:
            raise SystemExit(f"{name}: a batch of {images.dtype} {tuple(images.shape)}, deviation {images.std():.2f}")


def cpu_seconds() -> float:
    """Of this process and the workers it has."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def export(folder: Path, pictures: int) -> str:
    """Files sorted by class, as torchvision wants them; says what they are."""
    for root in data_roots():
        files = sorted((root / "imagenette160").glob("train-*.parquet"))
        if files:
            import pyarrow.parquet as pq

            for i, entry in enumerate(pq.read_table(files[0]).slice(0, pictures).to_pylist()):
                place = folder / f"class{entry['label']}"
                place.mkdir(exist_ok=True)
                (place / f"{i}.jpg").write_bytes(entry["image"]["bytes"])
            return "JPEG files of imagenette160"
    rng = np.random.default_rng(0)
    for i in range(pictures):
        place = folder / f"class{i % 10}"
        place.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "JPEG")
        (place / f"{i}.jpg").write_bytes(file.getvalue())
    return f"made-up JPEG files of {SIDE} x {SIDE} (no imagenette160 found)"


def row(case: str, times: dict[str, Times], pictures: int) -> dict[str, Any]:
    found: dict[str, Any] = {"case": case}
    for name, of_one in times.items():
        rate = summary([pictures / seconds for seconds in of_one.wall_s])
        cpu = summary([1e3 * seconds / pictures for seconds in of_one.cpu_s])
        found[name] = {"images_per_s": round(rate.median, 1), "spread_percent": round(rate.spread_percent, 1)}
        found[name] |= {"cpu_ms": round(cpu.median, 3), "cpu_spread_percent": round(cpu.spread_percent, 1)}
    for peer, ways in ((TORCHVISION, [TORCHVISION]), ("timm", list(TIMM_WAYS))):
        # timm's better way by each measure: a noisy clock must not choose for the other one.
        wall_s = min((times[way].wall_s for way in ways), key=lambda seconds: summary(seconds).median)
        cpu_s = min((times[way].cpu_s for way in ways), key=lambda seconds: summary(seconds).median)
        wall, cpu = paired_ratio(wall_s, times[OURS].wall_s), paired_ratio(cpu_s, times[OURS].cpu_s)
        found[f"ours / {peer}"] = {"wall": [wall.median, wall.low, wall.high], "cpu": [cpu.median, cpu.low, cpu.high]}
    return found


def table(rows: list[dict[str, Any]]) -> str:
    names = [OURS, TORCHVISION, *TIMM_WAYS]
    ratios = [f"ours / {TORCHVISION}", "ours / timm"]
    heads = ["variation", "measure", *names, *ratios]
    lines = [
        "Images/s and milliseconds of processor time per image: median over rounds (quartile distance in % of it). "
        "Ratios: above 1, ours is faster or takes less; median of each round's ratio (quartiles); timm's better way.",
        "",
        f"| {' | '.join(heads)} |",
        f"| {' | '.join(['---'] * 2 + ['---:'] * (len(heads) - 2))} |",
    ]
    measures = {
        "images/s": ("images_per_s", "spread_percent", "wall"),
        "CPU ms": ("cpu_ms", "cpu_spread_percent", "cpu"),
    }
    for found in rows:
        for measure_name, (value, spread, kind) in measures.items():
            cells = [found["case"], measure_name]
            cells += [f"{found[name][value]:,} ({found[name][spread]} %)" for name in names]
            for ratio in ratios:
                median, low, high = found[ratio][kind]
                cells.append(f"{median:.3f} ({low:.3f} to {high:.3f})")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", choices=["cpu"], default="cpu", help="batches end on the CPU")
    parser.add_argument("--pictures", type=int, default=1280, help="pictures in an epoch (default: 1280)")
    parser.add_argument("--batch", type=int, default=64, help="pictures a batch (default: 64)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of each competitor (default: 2)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of timing (default: 7)")
    parser.add_argument("--quick", action="store_true", help="few pictures: shows that the script works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
