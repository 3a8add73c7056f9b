"""Which examinations the benchmark makes: every fault on set-ups chosen by seed, healthy ones with many seeds."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fault import Fault
from fault_list import FAULTS
from script import Script
from setups import SETUPS, Healthy

HEALTHY = "healthy"


@dataclass(frozen=True)
class Case:
    """One examination; without a fault the set-up is healthy."""

    setup: Healthy
    seed: int
    fault: Fault | None = None

    @property
    def key(self) -> str:
        return f"{HEALTHY if self.fault is None else self.fault.name}/{self.setup.name}/{self.seed}"

    def script(self) -> Script:
        script = self.setup.make(self.seed)
        if self.fault is not None:
            self.fault.break_it(script)
        return script


def every_case(seed: int, *, each: int, healthy_seeds: int, setups: Sequence[Healthy] | None = None) -> list[Case]:
    """In turns, so that a run cut short has seen a little of everything: each fault on its first set-up, the healthy
    ones, each fault on its second ..."""
    given = list(SETUPS.values()) if setups is None else list(setups)
    broken = [list(_broken(fault, given, seed, each)) for fault in FAULTS.values()]
    sound = [Case(setup, seed + number) for number in range(healthy_seeds) for setup in given]
    rounds = max([each, *map(len, broken)], default=each)
    share = -(-len(sound) // max(1, rounds))
    cases = []
    for number in range(rounds):
        cases += [row[number] for row in broken if number < len(row)]
        cases += sound[number * share : (number + 1) * share]
    return cases


def _broken(fault: Fault, setups: Sequence[Healthy], seed: int, each: int) -> Iterator[Case]:
    """Where fewer set-ups fit than are asked for, they come again with another seed: other pictures, other weights."""
    fitting = [setup for setup in setups if fault.fits(setup)]
    random.Random(f"{seed} {fault.name}").shuffle(fitting)
    for number in range(each if fitting else 0):
        yield Case(fitting[number % len(fitting)], seed + number, fault)


def wanted(cases: list[Case], patterns: Sequence[str]) -> list[Case]:
    """Those whose fault, set-up or key matches one of the patterns: `labels_*`, `healthy`, `lr_x10/cifar_timm/*`."""
    if not patterns:
        return cases
    return [case for case in cases if any(_matches(case, pattern) for pattern in patterns)]


def _matches(case: Case, pattern: str) -> bool:
    fault = HEALTHY if case.fault is None else case.fault.name
    return any(fnmatch.fnmatchcase(word, pattern) for word in (fault, case.setup.name, case.key))
