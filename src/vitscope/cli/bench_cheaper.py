"""`vitscope bench MODEL --cheaper`: every way of asking a model, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from vitscope.cli.console import console, in_bytes, print_table
from vitscope.cli.progress import progress_bar
from vitscope.data.dataset import open_dataset
from vitscope.infer.cheaper.report import fastest, measure_ways
from vitscope.infer.cheaper.sample import Sample, sample_of_dataset, sample_of_pictures
from vitscope.infer.cheaper.sensitivity import layers_to_keep, sensitivities
from vitscope.infer.cheaper.way import Way, ways_for
from vitscope.infer.labelled import SURE
from vitscope.infer.predictor import Predictor
from vitscope.models.model import VisionModel
from vitscope.train.classes import said_of_numbers

SENSITIVITY_PICTURES = 64
"""Every layer is tried on these; the divergence of probabilities needs far fewer than a share of answers does."""


def ways_report(
    command: Any, model: VisionModel, device: torch.device, *, say: Callable[[str], None]
) -> dict[str, Any]:
    """Plain data: a line for each way, the layers by what 8 bits do to them, and what is proposed."""
    batch_size = max(command.batch)
    sample, bad = _sample(command, Predictor(model, device="cpu", batch_size=batch_size), say)
    ways, left_out = ways_for(device)
    if command.ways:
        ways, left_out = [Way.named(name) for name in command.ways], []
    told: dict[str, Any] = {"pictures": len(sample), "bad_pictures": bad, "left_out": left_out}
    if command.sensitivity:
        ways += _sensitivity(command, model, sample, device, ways, told)
    outcomes = measure_ways(model, ways, sample, device=device, batch_size=batch_size, rounds=command.rounds, say=say)
    told["ways"] = [outcome.to_dict(outcomes[0]) for outcome in outcomes]
    told["proposed"] = {
        "for_many": asdict(fastest(outcomes, at_least=command.agreement).way),
        "for_one": asdict(fastest(outcomes, at_least=command.agreement, for_one=True).way),
    }
    return told


def print_ways(command: Any, facts: dict[str, Any], told: dict[str, Any]) -> None:
    out = console()
    out.print(f"{command.title} on {facts['hardware']}\n{facts['versions']}\n", markup=False)
    if "sensitivity" in told:
        _print_sensitivity(command, told)
    batch = max(command.batch)
    many = f"images/s at {batch}"
    columns = [
        "way",
        "same answers",
        "accuracy",
        "lost / won",
        "size",
        many,
        "speed",
        "p50 ms at 1",
        "p95",
        "speed at 1",
    ]
    rows = [_cells(way) for way in told["ways"]]
    if all(not row[2] for row in rows):  # nobody said what the pictures show
        columns, rows = columns[:2] + columns[4:], [row[:2] + row[4:] for row in rows]
    print_table(columns, rows, numbers=columns[1:], drop=("p95", "size"))
    for way in told["ways"]:
        if "problem" in way:
            out.print(f"{way['way']}: {way['problem']}", markup=False)
        elif way["chance_worse"] is not None and way["chance_worse"] < SURE:
            balance = f"{way['worse']} pictures lost for {way['better']} won"
            said = f"{way['way']} is really worse: {balance} is hardly chance ({way['chance_worse']:.0e})"
            out.print(said, markup=False)
    for reason in told["left_out"]:
        out.print(f"left out: {reason}", markup=False)
    for reason in told["bad_pictures"][:3]:
        out.print(f"not read: {reason}", markup=False)
    many, one = (Way(**{**way, "keep_float": tuple(way["keep_float"])}) for way in told["proposed"].values())
    ask = "vitscope predict MODEL IMAGES"
    out.print(
        f"\nSame answers: the first class is that of plain fp32, on {told['pictures']} pictures. Fastest with at least "
        f"{100 * command.agreement:g} % of them:\n"
        f"  many pictures  {many}: `{ask} {many.flags()} --batch-size {batch}`\n"
        f"  one picture    {one}: `{ask} {one.flags()} --batch-size 1`",
        markup=False,
    )


def _cells(way: dict[str, Any]) -> list[str]:
    if "problem" in way:
        return [way["way"], "-", *[""] * 8]
    return [
        way["way"],
        f"{way['agreement']:.2%}",
        "" if way["accuracy"] is None else f"{way['accuracy']:.2%}",
        "" if way["worse"] is None else f"{way['worse']} / {way['better']}",
        in_bytes(way["size_bytes"]),
        f"{way['images_per_s']:,.1f}",
        f"{way['speedup']:.2f}x",
        f"{way['latency_ms_p50']:.2f}",
        f"{way['latency_ms_p95']:.2f}",
        f"{way['latency_speedup']:.2f}x",
    ]


def _sample(command: Any, predictor: Predictor, say: Callable[[str], None]) -> tuple[Sample, list[str]]:
    if command.images is not None:
        return sample_of_pictures(predictor, command.images, most=command.most)
    dataset = open_dataset(command.data)
    by_number = said_of_numbers(predictor.model.labels, dataset.class_names)
    if by_number is not None:
        say(by_number)
    return sample_of_dataset(predictor, dataset, "val", most=command.most)


def _sensitivity(
    command: Any, model: VisionModel, sample: Sample, device: torch.device, ways: list[Way], told: dict[str, Any]
) -> list[Way]:
    """Fill `told`; the ways with layers kept in floats, where some must be."""
    few = sample.spread(SENSITIVITY_PICTURES)
    batch_size = max(command.batch)
    with progress_bar("layer by layer") as progress:
        ranked = sensitivities(model, few, "int8", device=device, batch_size=batch_size, progress=progress)
    kept, reached = layers_to_keep(
        model, sample, "int8", ranked, at_least=command.agreement, device=device, batch_size=batch_size
    )
    told["sensitivity"] = [asdict(one) for one in ranked]
    told["keep_float"] = {"layers": list(kept), "agreement": reached, "pictures": len(sample)}
    told["sensitivity_pictures"] = len(few)
    return [Way("int8", way.launch, kept) for way in ways if way.dtype == "int8" and kept]


def _print_sensitivity(command: Any, told: dict[str, Any]) -> None:
    kept = told["keep_float"]
    columns = ("layer", "divergence", "same answers", "accuracy")
    rows = []
    for one in told["sensitivity"][:10]:
        change = "" if one["accuracy_change"] is None else f"{one['accuracy_change']:+.2%}"
        rows.append((one["layer"], f"{one['divergence']:.2e}", f"{one['agreement']:.2%}", change))
    print_table(columns, rows, numbers=columns[1:])
    out = console()
    out.print(
        f"\nThe ten of {len(told['sensitivity'])} linear layers that 8 bits (int8) hurt most, each alone, on "
        f"{told['sensitivity_pictures']} pictures.",
        markup=False,
    )
    if kept["layers"]:
        out.print(
            f"For {100 * command.agreement:g} % of answers {len(kept['layers'])} must stay floats "
            f"({kept['agreement']:.2%} reached): {' '.join(kept['layers'])}\n",
            markup=False,
        )
    else:
        out.print(f"All may have 8 bits at once: {kept['agreement']:.2%} of answers stay the same.\n", markup=False)
