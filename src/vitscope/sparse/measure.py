"""How large and how fast a network is beside the dense one, in one run: in turns, launched the same way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from vitscope.core.config import to_dict
from vitscope.core.dtypes import usual_dtype
from vitscope.core.environment import why_no_compiler
from vitscope.core.errors import VitscopeError
from vitscope.core.files import write_json
from vitscope.infer.benchmark.contest import Row as Contest
from vitscope.infer.benchmark.contest import release, run_row
from vitscope.infer.benchmark.timing import Clock, paired_ratio, summary
from vitscope.infer.benchmark.work import make_batch, prepare_device
from vitscope.infer.launched import Launch
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair

ROUNDS, LEAST_SECONDS = 7, 0.1
LARGE = 256


@dataclass(frozen=True)
class Speed:
    """Milliseconds of a batch, and how many times faster than the dense network."""

    ms_batch1: float
    ms_batch256: float
    speedup_batch1: float
    speedup_batch256: float


@dataclass(frozen=True)
class Timing:
    launch: Launch
    launched: Speed
    eager: Speed | None
    """Beside it, where `launch` is another way."""


class Stopwatch:
    """Times each architecture once: how fast a network is does not depend on its weights. What was found is kept in a
    file, with what the machine was."""

    def __init__(self, path: Path, device: torch.device) -> None:
        self.path, self.device = path, device
        self._known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def time(self, dense: ModelConfig, small: ModelConfig) -> Timing:
        key = json.dumps([str(self.device.type), to_dict(dense), to_dict(small)], sort_keys=True)
        if key not in self._known:
            self._known[key] = asdict(self._timed(dense, small))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, self._known)
        found = self._known[key]
        eager = found["eager"]
        return Timing(found["launch"], Speed(**found["launched"]), None if eager is None else Speed(**eager))

    def _timed(self, dense: ModelConfig, small: ModelConfig) -> Timing:
        launch = best_launch(self.device)
        launched = self._speed(dense, small, launch)
        return Timing(launch, launched, None if launch == "eager" else self._speed(dense, small, "eager"))

    def _speed(self, dense: ModelConfig, small: ModelConfig, launch: Launch) -> Speed:
        (one, of_one), (many, of_many) = (self._turns(dense, small, launch, batch) for batch in (1, LARGE))
        return Speed(one, many, of_one, of_many)

    def _turns(self, dense: ModelConfig, small: ModelConfig, launch: Launch, batch: int) -> tuple[float, float]:
        prepare_device(self.device)
        images, labels = make_batch(batch, pair(small.img_size), small.in_chans, small.num_classes, self.device)
        result = run_row(
            Contest("network", "latency" if batch == 1 else "inference", launch, batch),
            {"dense": partial(build_model, dense), "small": partial(build_model, small)},
            images,
            labels,
            clock=Clock(self.device),
            dtype=usual_dtype(self.device),
            rounds=ROUNDS,
            least_seconds=LEAST_SECONDS,
        )
        release(self.device)
        if result.problems:
            raise VitscopeError(
                f"the networks cannot be timed: {'; '.join(result.problems.values())}",
                where=f"launched '{launch}', batch {batch}",
                fix="--timing none leaves it out",
            )
        ratio = paired_ratio(result.seconds["dense"], result.seconds["small"])
        return 1e3 * summary(result.seconds["small"]).median, ratio.median


def best_launch(device: torch.device) -> Launch:
    """How networks are timed: as they would be served on a GPU, plainly on a CPU."""
    if device.type != "cuda":
        return "eager"
    return "graph" if why_no_compiler(device.type) is not None else "compiled_graph"
