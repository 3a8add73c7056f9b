"""How the cost of training grows: with tokens (resolution and patch), width, depth and batch.

    python bench/scale.py --device cuda                # the table of docs/scale.md
    python bench/scale.py --device cpu --quick         # seconds: does the script work?

Each row is a training step of the engine (bf16 on a GPU, AdamW, clipping) on pictures that lie on the device, without
augmentation: the median over rounds of 50 steps (in brackets the distance of the quartiles), and the most memory that
was taken, without those pictures: by tensors outside a CUDA graph, and in all, a graph's own and gaps included. Beside
it stand the multiply-adds that were counted, forward and backward, and how many of them were done in a second. Where a
row is not launched as asked, or its batch does not fit whole, the script stops.
"""

from __future__ import annotations

import argparse
import gc
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine import as_asked, say
from report import report
from vitscope.data.config import AugmentConfig, DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.device import DeviceLoader
from vitscope.data.transforms.batch import BatchTransform
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Clock, summary
from vitscope.models.accounting.account import Account
from vitscope.models.config import ViTConfig
from vitscope.train.basis import Basis, lay_out, settle
from vitscope.train.config import LoopConfig, PrecisionConfig, TrainConfig, named_model
from vitscope.train.first_state import make_state
from vitscope.train.launch import Launcher
from vitscope.train.precision import using_precision

STEPS, FEW_STEPS = 50, 2
"""Of a round, so that what an epoch's beginning costs does not count; and with --quick."""
CLASSES = 10


@dataclass(frozen=True)
class Row:
    what: str
    img_size: int
    patch_size: int
    embed_dim: int
    depth: int
    batch: int

    @property
    def model(self) -> ViTConfig:
        return ViTConfig(
            img_size=self.img_size,
            patch_size=self.patch_size,
            embed_dim=self.embed_dim,
            depth=self.depth,
            num_heads=self.embed_dim // 64,
            num_classes=CLASSES,
        )


ROWS = [
    *(Row("patch", 32, patch, 384, 12, 512) for patch in (8, 4, 2)),
    *(Row("patch", 224, patch, 384, 12, 128) for patch in (32, 16, 8)),
    *(Row("resolution", size, 16, 384, 12, 128) for size in (112, 160, 224, 320, 448)),
    *(Row("width", 224, 16, width, 12, 128) for width in (192, 384, 768, 1024)),
    *(Row("depth", 224, 16, 384, depth, 128) for depth in (6, 12, 24)),
    *(Row("batch", 224, 16, 768, 12, batch) for batch in (32, 64, 128, 256)),
    *(Row("batch", 32, 4, 384, 12, batch) for batch in (64, 256, 1024)),
]
QUICK = [Row("patch", 32, patch, 64, 2, 4) for patch in (16, 8)]


def measure(row: Row, device: torch.device, launch: str, *, rounds: int, steps: int) -> dict[str, Any]:
    data = DataConfig(
        name=f"synthetic:size={row.img_size},count=100,classes={CLASSES}", batch_size=row.batch, loader="device"
    )
    config = TrainConfig(
        model=named_model("vit", row.model),
        data=data,
        precision=PrecisionConfig(launch=launch),  # pyright: ignore[reportArgumentType]
        loop=LoopConfig(epochs=1, device=device.type, log_every=1000),
    )
    dataset = open_dataset(data)
    basis = lay_out(settle(config, dataset), dataset, device)
    loader = noise(basis, row, steps)
    state, objective = make_state(basis, loader.num_batches, _silent)
    launcher = Launcher(state, loader, objective, launch=basis.launch, batch_size=row.batch, seed=0, say=say)
    as_asked(launcher, launch)
    epochs = itertools.count()

    def epoch() -> None:
        for _ in launcher.epoch(next(epochs), 0):
            pass
        state.ledger.clear()

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with using_precision(config.precision):
        epoch()
        clock = Clock(device)
        seconds = summary([clock.seconds_per_call(epoch, 1) / loader.num_batches for _ in range(rounds)])
    macs = 3 * Account(row.model).macs
    found = {
        "tokens": row.model.num_tokens,
        "ms": 1e3 * seconds.median,
        "spread_percent": seconds.spread_percent,
        "images_per_s": row.batch / seconds.median,
        "gmacs": macs / 1e9,
        "tmacs_per_s": macs * row.batch / seconds.median / 1e12,
        **memory(device, loader.pictures.nbytes),
        **as_asked(launcher, launch),
    }
    loader.close()
    return found


def noise(basis: Basis, row: Row, steps: int) -> DeviceLoader:
    """Pictures for so many steps, made on the device: thousands of large ones would take minutes on the host."""
    generator = torch.Generator(basis.device).manual_seed(0)
    count, side = steps * row.batch, row.img_size
    pictures = torch.randint(256, (count, 3, side, side), generator=generator, dtype=torch.uint8, device=basis.device)
    return DeviceLoader(
        pictures,
        torch.arange(count) % CLASSES,
        torch.arange(count),
        transform=BatchTransform(AugmentConfig(), basis.preprocess).to(basis.device),
        batch_size=row.batch,
        seed=0,
        training=True,
        compiled=basis.launch.startswith("compiled"),
    )


def memory(device: torch.device, of_pictures: int) -> dict[str, float]:
    """Peaks in GiB. What a replayed graph uses is reserved for it, and never counts as allocated again."""
    if device.type != "cuda":
        return {"allocated_gib": float("nan"), "reserved_gib": float("nan")}
    allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return {"allocated_gib": (allocated - of_pictures) / 2**30, "reserved_gib": (reserved - of_pictures) / 2**30}


def _silent(text: str) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--launch", help="by default graph on a GPU: compiling would take half a minute for each row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="rows of this kind: patch, resolution, width, depth, batch")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does the script work?")
    parser.add_argument("--json", type=Path)
    wish = parser.parse_args()
    device = torch.device(wish.device)
    launch = wish.launch or ("graph" if device.type == "cuda" else "eager")
    steps = FEW_STEPS if wish.quick else STEPS
    lines = [
        "| grows | px | patch | tokens | width | depth | batch | launch | ms a step | images/s | GMAC an image "
        "| TMAC/s | GiB allocated | GiB reserved |",
        "|---|" + "---:|" * 6 + "---|" + "---:|" * 6,
    ]
    rows = []
    for row in QUICK if wish.quick else ROWS:
        if wish.only not in (None, row.what):
            continue
        found = measure(row, device, launch, rounds=wish.rounds, steps=steps)
        rows.append({**row.__dict__, **found})
        lines.append(
            f"| {row.what} | {row.img_size} | {row.patch_size} | {found['tokens']} | {row.embed_dim} | {row.depth} "
            f"| {row.batch} | {found['launch']} | {found['ms']:.1f} ({found['spread_percent']:.1f} %) "
            f"| {found['images_per_s']:,.0f} | {found['gmacs']:.2f} | {found['tmacs_per_s']:.1f} "
            f"| {found['allocated_gib']:.1f} | {found['reserved_gib']:.1f} |"
        )
        print(lines[-1], flush=True)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    report(surroundings(device), rows, "\n".join(lines), wish.json)


if __name__ == "__main__":
    main()
