"""How advice looks on a screen and as JSON."""

from __future__ import annotations

from typing import Any

from vitscope.cli.console import console, in_bytes, in_millions, print_table
from vitscope.core.config import to_dict
from vitscope.models.advice import FITTING_BATCH, Advice, Candidate
from vitscope.models.measured import HARDWARE


def advice_data(advice: Advice) -> dict[str, Any]:
    return {
        "model": advice.chosen.name,
        "why": advice.why,
        "cautions": advice.cautions,
        "candidates": [_candidate_data(candidate) for candidate in (advice.chosen, *advice.others)],
    }


def print_advice(advice: Advice) -> None:
    out = console()
    chosen = advice.chosen
    out.print(
        f"take [bold]{chosen.name}[/bold] at img_size {chosen.config.img_size}, patch_size {chosen.config.patch_size}\n"
    )
    for reason in advice.why:
        out.print(f"  because  {reason}")
    for caution in advice.cautions:
        out.print(f"  careful  {caution}")
    out.print()
    numbers = (
        "parameters",
        "tokens",
        f"memory,\nbatch {FITTING_BATCH}",
        "largest\nbatch",
        "guide,\nGB",
        "measured,\nGB",
        "measured,\nimages/s",
    )
    print_table(
        ("model", *numbers),
        [_cells(candidate, candidate is chosen) for candidate in (chosen, *advice.others)],
        numbers=numbers,
        drop=("tokens", "guide,\nGB", "measured,\nGB", "measured,\nimages/s"),
    )
    out.print(
        "\nmemory: estimate for training in bf16 with Adam. "
        "guide: the tuning guide's minimum / recommended, a rule of thumb."
    )
    out.print(f"measured: training on {HARDWARE} at the batch in brackets (docs/benchmarks.md).")


def _cells(candidate: Candidate, is_chosen: bool) -> list[str]:
    measured, guide = candidate.measured, candidate.guide
    return [
        f"[bold]{candidate.name}[/bold]" if is_chosen else candidate.name,
        in_millions(candidate.parameters),
        str(candidate.config.num_tokens),
        in_bytes(candidate.memory_bytes),
        "" if candidate.largest_batch is None else str(candidate.largest_batch),
        f"{guide.minimum} / {guide.recommended}" if guide else "",
        f"{measured.train_memory_gb:.1f} ({measured.memory_batch})" if measured else "",
        f"{measured.train_images_per_s:,} ({measured.speed_batch})" if measured else "",
    ]


def _candidate_data(candidate: Candidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "config": to_dict(candidate.config),
        "parameters": candidate.parameters,
        "training_memory_bytes": candidate.memory_bytes,
        "batch": FITTING_BATCH,
        "largest_batch": candidate.largest_batch,
        "guide_memory_gb": list(candidate.guide) if candidate.guide else None,
        "measured": candidate.measured._asdict() if candidate.measured else None,
    }
