"""Rows as an experiment would leave them, with made-up numbers that behave like real ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from vitscope.sparse.rows import DENSE, Row

LOSSES = {"control:dense": -0.004, "control:random": 0.035, "control:reinit": 0.012, "control:oneshot": 0.02}
"""Of accuracy, in the first round, for the controls; algorithms lose 0.003 a round."""
CONTROLS = tuple(LOSSES)


def experiment(
    algorithm: str = "rsst",
    *,
    seeds: Sequence[int] = (0, 1, 2),
    rounds: int = 3,
    controls: Sequence[str] = CONTROLS,
    blocks: int = 9,
    heads: int = 3,
    neurons: int = 384,
    rate: float = 0.2,
    noise: float = 0.0015,
    launch: str = "compiled_graph",
    **changed: Any,
) -> list[Row]:
    """`changed` goes into every row that is not dense."""
    found: list[Row] = []
    for seed in seeds:
        draw = random.Random(seed)
        whole = blocks * heads, blocks * neurons
        size = {
            "params": 4 * whole[0] * 192 * 64 + 2 * 192 * whole[1],
            "macs": 65 * 192 * (whole[1] * 2 + whole[0] * 256),
        }
        dense = 0.9 + draw.gauss(0, noise)
        found.append(
            Row(
                seed=seed,
                round=0,
                network=DENSE,
                heads_removed=0.0,
                neurons_removed=0.0,
                heads_left=" ".join([str(heads)] * blocks),
                neurons_left=" ".join([str(neurons)] * blocks),
                val_accuracy=dense + 0.002,
                test_accuracy=dense,
                test_count=10000,
                epochs=60,
                seconds=1234.5,
                launch=launch,
                **size,
                **_speed(1.0, launch, draw, is_dense=True),
            )
        )
        for number in range(1, rounds + 1):
            gone = 1 - (1 - rate) ** number
            for network in (algorithm, *controls):
                lost = number * 0.003 if network == algorithm else LOSSES[network] * number
                accuracy = dense - lost + draw.gauss(0, noise)
                row: dict[str, Any] = {
                    "seed": seed,
                    "round": number,
                    "network": network,
                    "val_accuracy": accuracy + 0.002,
                    "test_accuracy": accuracy,
                    "test_count": 10000,
                    "epochs": 60 * number,
                    "seconds": 700.0 + 40 * number,
                    "launch": launch,
                }
                if network == "control:dense":
                    row |= {**size, "heads_removed": 0.0, "neurons_removed": 0.0, **_speed(1.0, launch, draw)}
                elif algorithm == "imp":
                    row |= {**size, "weights_removed": gone, "launch": None}
                else:
                    row |= _cut(gone, blocks, heads, neurons, draw) | _speed(1 - gone, launch, draw)
                    row |= {name: round(value * (1 - gone)) for name, value in size.items()}
                if network == "rsst":
                    row |= {
                        "before_cut_val_accuracy": accuracy + 0.001,
                        "after_cut_val_accuracy": accuracy + 0.0009,
                        "lambda_end": 1.0,
                        "doomed_share": 1e-7 * (seed + 1),
                        "cut_moved_logits": 2e-6,
                    }
                found.append(Row(**{**row, **changed}))
    return found


def _cut(gone: float, blocks: int, heads: int, neurons: int, draw: random.Random) -> dict[str, Any]:
    left = [[size] * blocks for size in (heads, neurons)]
    removed = []
    for of_blocks, size, step in zip(left, (heads, neurons), (1, 8), strict=True):
        target = int(gone * size * blocks) // step * step
        taken = 0
        while taken < target:
            place = draw.randrange(blocks)
            if of_blocks[place] > step:
                of_blocks[place] -= step
                taken += step
        removed.append(taken / (size * blocks))
    return {
        "heads_removed": removed[0],
        "neurons_removed": removed[1],
        "weights_removed": gone,
        "heads_left": " ".join(map(str, left[0])),
        "neurons_left": " ".join(map(str, left[1])),
    }


def _speed(kept: float, launch: str, draw: random.Random, *, is_dense: bool = False) -> dict[str, Any]:
    fixed = {"batch1": 0.25, "batch256": 0.4}
    whole = {"batch1": 0.05, "batch256": 4.0}
    found: dict[str, Any] = {}
    for batch in fixed:
        ratio = (fixed[batch] + whole[batch]) / (fixed[batch] + whole[batch] * kept) * (1 + draw.gauss(0, 0.004))
        found[f"latency_ms_{batch}"] = (fixed[batch] + whole[batch]) / ratio
        found[f"speedup_{batch}"] = None if is_dense else ratio
        if launch != "eager":
            found[f"eager_ms_{batch}"] = 2.5 * (fixed[batch] + whole[batch])
            found[f"eager_speedup_{batch}"] = None if is_dense else 1 + (ratio - 1) / 3
    return found
