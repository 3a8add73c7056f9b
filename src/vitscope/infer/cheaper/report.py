"""Ways side by side: how many answers stay the same, how many are right, how large and how fast a model is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitscope.infer.benchmark.peers import short
from vitscope.infer.benchmark.timing import Call, Clock, interleaved, paired_ratio, percentile, single_calls, summary
from vitscope.infer.cheaper.dtypes import in_dtype, size_bytes
from vitscope.infer.cheaper.sample import Sample
from vitscope.infer.cheaper.sensitivity import agreement, divergence
from vitscope.infer.cheaper.way import PLAIN, Way
from vitscope.infer.labelled import chance_of_lead
from vitscope.infer.launched import Forward, launched
from vitscope.models.model import VisionModel

Say = Callable[[str], None]


@dataclass
class Outcome:
    """What one way gives. Where it cannot be gone, only `problem` is told."""

    way: Way
    problem: str | None = None
    size_bytes: int = 0
    pictures: int = 0
    agreement: float = 0.0
    """Share of the pictures with the same first class as plain fp32."""
    divergence: float = 0.0
    accuracy: float | None = None
    better: int | None = None
    """Labelled pictures only this way gets right, and"""
    worse: int | None = None
    """those only plain fp32 gets right."""
    batch_size: int = 1
    batch_seconds: list[float] = field(default_factory=list)
    """Of a whole batch, one number a round."""
    single_seconds: list[float] = field(default_factory=list)
    """Of one picture, call by call."""

    @property
    def images_per_s(self) -> float:
        return self.batch_size / summary(self.batch_seconds).median

    @property
    def chance_worse(self) -> float | None:
        """How likely at least so many lost pictures are by chance, if both ways are as good."""
        return None if self.better is None or self.worse is None else chance_of_lead(self.worse, self.better)

    def latency_ms(self, share: float) -> float:
        return 1e3 * percentile(self.single_seconds, share)

    def to_dict(self, plain: Outcome) -> dict[str, Any]:
        told: dict[str, Any] = {
            "way": str(self.way),
            "dtype": self.way.dtype,
            "launch": self.way.launch,
            "keep_float": list(self.way.keep_float),
        }
        if self.problem is not None:
            return {**told, "problem": self.problem}
        ratio = paired_ratio(plain.batch_seconds, self.batch_seconds)
        return {
            **told,
            "size_bytes": self.size_bytes,
            "pictures": self.pictures,
            "agreement": self.agreement,
            "divergence": self.divergence,
            "accuracy": self.accuracy,
            "better": self.better,
            "worse": self.worse,
            "chance_worse": self.chance_worse,
            "batch_size": self.batch_size,
            "images_per_s": self.images_per_s,
            "speedup": ratio.median,
            "speedup_quartiles": [ratio.low, ratio.high],
            "latency_ms_p50": self.latency_ms(0.5),
            "latency_ms_p95": self.latency_ms(0.95),
            "latency_speedup": plain.latency_ms(0.5) / self.latency_ms(0.5),
        }


def measure_ways(
    model: VisionModel,
    ways: Sequence[Way],
    sample: Sample,
    *,
    device: torch.device,
    batch_size: int,
    rounds: int = 5,
    least_seconds: float = 0.3,
    say: Say = lambda text: None,
) -> list[Outcome]:
    """Every way, plain fp32 first, on the same pictures and timed in turns. `model` stays as it is; what a way cannot
    do is told in its place."""
    ways = [PLAIN, *(way for way in ways if way != PLAIN)]
    models: dict[tuple[str, tuple[str, ...]], tuple[VisionModel, torch.dtype]] = {}
    outcomes: list[Outcome] = []
    whole: dict[str, Call] = {}
    single: dict[str, Call] = {}
    plain: Tensor | None = None
    for way in ways:
        say(f"{way}: answers")
        outcome = Outcome(way, pictures=len(sample), batch_size=batch_size)
        outcomes.append(outcome)
        try:
            if (way.dtype, way.keep_float) not in models:  # compiled or not, weights are the same
                given = deepcopy(model)
                models[way.dtype, way.keep_float] = in_dtype(given, way.dtype, device, keep_float=way.keep_float)
            asked, kind = models[way.dtype, way.keep_float]
            outcome.size_bytes = size_bytes(asked)
            forward = launched(asked, way.launch, device=device, batch_size=batch_size)
            logits = sample.logits(forward, batch_size=batch_size, device=device, dtype=kind)
            if plain is None:
                plain = logits
            _judge(outcome, plain, logits, sample)
            images = sample.images[torch.arange(batch_size) % len(sample)].to(device, kind)
            whole[str(way)] = _call(forward, images)
            say(f"{way}: one picture")
            alone = launched(asked, way.launch, device=device, batch_size=1)
            single[str(way)] = _call(alone, images[:1].clone())
            for call in (whole[str(way)], single[str(way)]):
                for _ in range(2):
                    call()
        except Exception as error:  # a way that fails here says so; the others go on
            if way == PLAIN:
                raise
            outcome.problem = short(error)
            whole.pop(str(way), None)
            single.pop(str(way), None)
    say(f"timing {len(whole)} ways in turns")
    clock = Clock(device)
    seconds = interleaved(whole, clock, rounds=rounds, least_seconds=least_seconds)
    singles = single_calls(single, clock, rounds=rounds, least_seconds=least_seconds)
    for outcome in outcomes:
        outcome.batch_seconds = seconds.get(str(outcome.way), [])
        outcome.single_seconds = singles.get(str(outcome.way), [])
    gc.collect()
    return outcomes


def fastest(outcomes: Sequence[Outcome], *, at_least: float, for_one: bool = False) -> Outcome:
    """Of the ways that give at least this share of plain answers, the one with most pictures a second; or, `for_one`,
    the quickest answer to one picture. Plain fp32 is always among them."""
    fitting = [one for one in outcomes if one.problem is None and one.agreement >= at_least]
    if for_one:
        return min(fitting, key=lambda one: one.latency_ms(0.5))
    return max(fitting, key=lambda one: one.images_per_s)


def _judge(outcome: Outcome, plain: Tensor, logits: Tensor, sample: Sample) -> None:
    outcome.agreement, outcome.divergence = agreement(plain, logits), divergence(plain, logits)
    outcome.accuracy = sample.accuracy(logits)
    if sample.labels is not None:
        before, now = sample.right(plain), sample.right(logits)
        outcome.better, outcome.worse = int((now & ~before).sum()), int((before & ~now).sum())


def _call(forward: Forward, images: Tensor) -> Call:
    @torch.inference_mode()
    def call() -> None:
        forward(images)

    return call
