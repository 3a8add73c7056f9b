"""`vitscope eval --calibrate --swap-test`: is a model as sure as it should be, and its preprocessing the right one?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from vitscope.cli.console import console, print_table
from vitscope.data.config import DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.infer.calibration import calibrate
from vitscope.infer.labelled import labelled_logits, swap_test
from vitscope.infer.predictor import Predictor


def trust_report(command: Any, folder: Path, data: DataConfig) -> dict[str, Any]:
    """Plain data, under `calibration` and `swap_test`, of what was asked for."""
    predictor = Predictor.load(folder, device=command.device, batch_size=command.batch_size)
    dataset = open_dataset(data)
    told: dict[str, Any] = {}
    if command.calibrate:
        chosen_on = labelled_logits(predictor, dataset, "val")
        told["calibration"] = asdict(calibrate(chosen_on, labelled_logits(predictor, dataset, command.part)))
    if command.swap_test:
        found = swap_test(predictor, dataset, command.part)
        told["swap_test"] = [{**asdict(swap), "is_better": swap.is_better} for swap in found]
    return told


def print_trust(told: dict[str, Any]) -> None:
    out = console()
    if "calibration" in told:
        found = told["calibration"]
        out.print(
            f"calibration error {found['ece_before']:.2%}; with temperature {found['temperature']:.3f}, chosen on "
            f"validation, {found['ece_after']:.2%} (loss {found['loss_before']:.4f} -> {found['loss_after']:.4f})\n"
            f"to use it: `vitscope predict MODEL IMAGES --temperature {found['temperature']:.3f}`\n",
            markup=False,
        )
    if "swap_test" in told:
        rows = [
            (swap["name"], f"{swap['accuracy']:.2%}", f"{swap['better']:,}", f"{swap['worse']:,}")
            for swap in told["swap_test"]
        ]
        columns = ("normalisation", "accuracy", "right only so", "right only by its own")
        print_table(columns, rows, numbers=columns[1:])
        for swap in told["swap_test"]:
            if swap["is_better"]:
                out.print(
                    f"warning: pictures normalised by '{swap['name']}' suit this model better than its own "
                    f"preprocessing (by chance: {swap['chance']:.1g}); was it trained with another?",
                    markup=False,
                )
