"""From a network of a round to its row: what is gone, what is left, how large, how fast, how good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitscope.infer.benchmark.peers import short
from vitscope.models.accounting.account import Account
from vitscope.models.config import ModelConfig
from vitscope.sparse.masks import by_units, density, prunable
from vitscope.sparse.measure import Stopwatch, Timing
from vitscope.sparse.outcome import Outcome
from vitscope.sparse.rows import DENSE, Row
from vitscope.sparse.trial import Trial
from vitscope.sparse.units import Units, units_of

SAME = (
    "epochs",
    "val_accuracy",
    "test_accuracy",
    "test_count",
    "before_cut_val_accuracy",
    "after_cut_val_accuracy",
    "lambda_end",
    "doomed_share",
    "cut_moved_logits",
    "rewind_hash",
    "seconds",
)
"""What an outcome and a row both have."""
TWO_OF_FOUR = "2of4"


def row_of(
    trial: Trial, number: int, network: str, outcome: Outcome, *, root: Path, stopwatch: Stopwatch | None = None
) -> Row:
    """`root` is where rounds.csv lies. Without a stopwatch, and for what is only masked, nothing is timed. 2:4 is,
    on the units it is meant for."""
    dense = trial.dense_model
    config: ModelConfig = trial.ground.load(outcome.model).config
    account = Account(config)
    facts: dict[str, Any] = {name: getattr(outcome, name) for name in SAME}
    if outcome.masks is not None:
        facts |= {"weights_removed": 1 - density(outcome.masks)}
    facts |= _of_units(trial, outcome.units or units_of(dense), is_given=outcome.units is not None)
    if stopwatch is not None and outcome.masks is None:
        speed = _of_speed(stopwatch.time(dense.config, config))
        # Beside itself the dense network is as fast as itself; what is measured of that is noise.
        of_both = ("speedup", "dense_ms")
        facts |= {key: v for key, v in speed.items() if network != DENSE or not any(part in key for part in of_both)}
    elif stopwatch is not None and network == TWO_OF_FOUR:
        facts |= _of_two_of_four(trial, stopwatch, config)
    return Row(
        seed=trial.ground.seed,
        round=number,
        network=network,
        params=account.parameters,
        macs=account.macs,
        model=str(outcome.model.relative_to(root)),
        **facts,
    )


def _of_units(trial: Trial, units: Units, *, is_given: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in units.kinds:
        found[f"{kind}_removed"] = units.share_removed(kind)
        found[f"{kind}_left"] = " ".join(map(str, units.counts(kind)))
    if is_given:
        masks, names = by_units(trial.dense_model, units), prunable(trial.dense_model)
        found["weights_removed"] = 1 - density({name: masks[name] for name in names if name in masks})
    return found


def _of_two_of_four(trial: Trial, stopwatch: Stopwatch, config: ModelConfig) -> dict[str, Any]:
    """Only what was timed. Whatever goes wrong in kernels that few devices have costs the figures, not the round."""
    try:
        return _of_speed(stopwatch.time_two_of_four(config))
    except Exception as error:
        trial.ground.say(f"the 2:4 network is masked, and was not timed: {short(error)}")
        return {}


def _of_speed(timing: Timing) -> dict[str, Any]:
    speed, eager = timing.launched, timing.eager
    found: dict[str, Any] = {
        "launch": timing.launch,
        "latency_ms_batch1": speed.ms_batch1,
        "latency_ms_batch256": speed.ms_batch256,
        "speedup_batch1": speed.speedup_batch1,
        "speedup_batch256": speed.speedup_batch256,
        "dense_ms_batch1": speed.dense_ms_batch1,
        "dense_ms_batch256": speed.dense_ms_batch256,
    }
    if eager is not None:
        found |= {
            "eager_ms_batch1": eager.ms_batch1,
            "eager_ms_batch256": eager.ms_batch256,
            "eager_speedup_batch1": eager.speedup_batch1,
            "eager_speedup_batch256": eager.speedup_batch256,
        }
    return found
