"""How large and how fast a network is beside the dense one, in one run: in turns, launched the same way."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from vitscope.core.config import to_dict
from vitscope.core.dtypes import usual_dtype
from vitscope.core.environment import why_no_compiler
from vitscope.core.errors import VitscopeError
from vitscope.core.files import write_json
from vitscope.infer.benchmark.contest import Row as Contest
from vitscope.infer.benchmark.contest import release, run_row
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Clock, paired_ratio, summary
from vitscope.infer.benchmark.work import make_batch, prepare_device
from vitscope.infer.launched import Launch
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair
from vitscope.sparse.fresh_two_of_four import fresh_two_of_four, prove_two_of_four

ROUNDS, LEAST_SECONDS = 7, 0.1
LARGE = 256
KERNELS = "narrow blocks"
"""What networks run with since it last changed. What was timed with others is timed again."""
Builds = Mapping[str, Callable[[], nn.Module]]

log = logging.getLogger("vitscope")


@dataclass(frozen=True)
class Speed:
    """Milliseconds of a batch, and how many times faster than the dense network."""

    ms_batch1: float
    ms_batch256: float
    speedup_batch1: float
    speedup_batch256: float
    dense_ms_batch1: float
    """The dense network's, in the same turns."""
    dense_ms_batch256: float


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
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        fields = {field.name for field in dataclasses.fields(Speed)}
        # What an earlier version wrote is timed again.
        self._known = {key: found for key, found in kept.items() if set(found["launched"]) == fields}

    def time(self, dense: ModelConfig, small: ModelConfig) -> Timing:
        key = self._key(to_dict(dense), to_dict(small))
        builds = {"dense": partial(build_model, dense), "small": partial(build_model, small)}
        return self._once(key, lambda: self._timed(builds, small, best_launch(self.device)))

    def time_two_of_four(self, config: ModelConfig) -> Timing:
        """The network on 2:4 units beside itself dense, launched in the best way that works for the sparse kernels. An
        error where none does, or where they do not say what the masked network says."""
        key = self._key(to_dict(config), "2of4")
        builds = {"dense": partial(build_model, config), "small": partial(fresh_two_of_four, config, self.device)}

        def timed() -> Timing:
            prove_two_of_four(config, self.device)
            for launch in dict.fromkeys((best_launch(self.device), "graph", "eager")):
                try:
                    return self._timed(builds, config, launch)
                except VitscopeError as error:
                    log.info("2:4 kernels, launched '%s': %s", launch, error.what)
            raise VitscopeError("2:4 kernels could be timed in no way", where=str(self.device))

        return self._once(key, timed)

    def _key(self, *networks: object) -> str:
        """Speeds of another machine or another torch are not put beside those of this one."""
        here = [surroundings(self.device)["hardware"], torch.__version__]
        return json.dumps([*here, *networks, KERNELS], sort_keys=True)

    def _once(self, key: str, timed: Callable[[], Timing]) -> Timing:
        if key not in self._known:
            self._known[key] = asdict(timed())
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, self._known)
        found = self._known[key]
        eager = found["eager"]
        return Timing(found["launch"], Speed(**found["launched"]), None if eager is None else Speed(**eager))

    def _timed(self, builds: Builds, like: ModelConfig, launch: Launch) -> Timing:
        launched = self._speed(builds, like, launch)
        return Timing(launch, launched, None if launch == "eager" else self._speed(builds, like, "eager"))

    def _speed(self, builds: Builds, like: ModelConfig, launch: Launch) -> Speed:
        one, many = (self._turns(builds, like, launch, batch) for batch in (1, LARGE))
        return Speed(*(number for pair_of in zip(one, many, strict=True) for number in pair_of))

    def _turns(self, builds: Builds, like: ModelConfig, launch: Launch, batch: int) -> tuple[float, float, float]:
        """Milliseconds, the speed-up, and the dense network's milliseconds."""
        prepare_device(self.device)
        images, labels = make_batch(batch, pair(like.img_size), like.in_chans, like.num_classes, self.device)
        result = run_row(
            Contest("network", "latency" if batch == 1 else "inference", launch, batch),
            builds,
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
        dense, small = result.seconds["dense"], result.seconds["small"]
        return 1e3 * summary(small).median, paired_ratio(dense, small).median, 1e3 * summary(dense).median


def best_launch(device: torch.device) -> Launch:
    """How networks are timed: as they would be served on a GPU, plainly on a CPU."""
    if device.type != "cuda":
        return "eager"
    return "graph" if why_no_compiler(device.type) is not None else "compiled_graph"
