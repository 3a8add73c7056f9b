"""Runs of a few dozen steps on a GPU, and what is asked of the folders they leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from vitscope.core.config import from_dict, to_dict
from vitscope.data.config import augmentation
from vitscope.train.checkpoints.store import Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.fit import Run, fit
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag

DEVICE = "cuda"

VIT: dict[str, Any] = {
    "family": "vit",
    "img_size": 32,
    "patch_size": 4,
    "in_chans": 3,
    "embed_dim": 64,
    "depth": 2,
    "num_heads": 2,
    "drop_rate": 0.1,
    "drop_path_rate": 0.1,
}
DRY_VIT: dict[str, Any] = {**VIT, "drop_rate": 0.0, "drop_path_rate": 0.0}
"""Nothing in it is drawn: two ways of launching must agree."""
RESNET: dict[str, Any] = {"family": "resnet", "img_size": 32, "stem": "cifar", "stem_width": 16, "depths": [1, 1]}
STRONG = to_dict(augmentation("strong", 32))


def settings(model: dict[str, Any] | None = None, **sections: dict[str, Any]) -> TrainConfig:
    """Two epochs of 12 steps; every seventh is saved."""
    start: dict[str, dict[str, Any]] = {
        "data": {"name": "shapes:size=32,count=2400", "batch_size": 128},
        "schedule": {"warmup": "4 steps"},
        "loop": {"epochs": 2, "device": DEVICE, "log_every": 5},
        "checkpoint": {"every_steps": 7, "keep": 1000},
    }
    merged = {name: {**start.get(name, {}), **sections.get(name, {})} for name in {*start, *sections}}
    return from_dict(TrainConfig, {"model": model or VIT, **merged})


class StopAt(Observer):
    """Asks for an end as soon as it sees a step."""

    def __init__(self, stop: StopFlag, step: int) -> None:
        self.stop, self.step = stop, step

    def steps(self, rows: list[dict[str, Any]]) -> None:
        if rows[-1]["step"] >= self.step:
            self.stop.raise_flag()


@dataclass(frozen=True)
class Ended:
    run: Run
    losses: list[float]
    test: dict[str, float]
    state: dict[str, Tensor]
    """Every tensor of the newest checkpoint."""
    log: str


def trained(config: TrainConfig, out: Path, *, stop_at: int | None = None, **given: Any) -> Ended:
    stop = StopFlag()
    watchers: Sequence[Observer] = [] if stop_at is None else [StopAt(stop, stop_at)]
    run = fit(config, out=out, quiet=True, stop=stop, observers=watchers, **given)
    losses = [row["train/loss"] for row in run.metrics if "train/loss" in row]
    test = {key: value for key, value in (run.test or {}).items() if key != "time"}
    return Ended(run, losses, test, tensors(out), run.folder.log_path.read_text())


def tensors(out: Path) -> dict[str, Tensor]:
    newest = Checkpoints(out / "checkpoints", keep=1).newest()
    assert newest is not None
    found: dict[str, Tensor] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            found[name] = value.cpu()
        elif isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}/{key}", inner)

    walk("model", load_file(newest.path / "model.safetensors"))
    trainer = newest.trainer()
    walk("state", trainer["state"])
    walk("hooks", trainer["hooks"])
    return found


def differing(first: dict[str, Tensor], second: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not the same bits."""
    assert first.keys() == second.keys()
    return [name for name, value in first.items() if not torch.equal(value, second[name])]


def most_off(first: Sequence[float], second: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(first, second, strict=True))
