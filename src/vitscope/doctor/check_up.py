"""The Python door: any `nn.Module` and loader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, get_args

import torch
from torch import nn

from vitscope.doctor.check import Stage
from vitscope.doctor.checks import CHECKS
from vitscope.doctor.chosen import chosen
from vitscope.doctor.examination import OnCheck, Report, examine
from vitscope.doctor.module_patient import Step, module_patient
from vitscope.doctor.patient import Loss
from vitscope.doctor.uncompiled import run_as_written


@run_as_written()
def check_up(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    val_loader: Iterable[Any] | None = None,
    step: Step | None = None,
    evaluate: Callable[[], Any] | None = None,
    evaluated: nn.Module | None = None,
    num_classes: int | None = None,
    clip_norm: float | None = None,
    epochs: int | None = None,
    warmup_steps: int | None = None,
    dtype: torch.dtype | None = None,
    pretrained: bool = False,
    quick: bool = False,
    only: Collection[str] = (),
    on_check: OnCheck | None = None,
) -> Report:
    """Examine any model with the batches it trains on. It is given back exactly as it came: weights, optimiser, its
    schedulers, random numbers, modes; not what a step of yours holds besides, such as a scaler. The more is given, the
    more can be found: without an optimiser nothing can be said of it. `loss(logits, labels)` is given the logits, or,
    where it wants the model's answer, an object with them.

    `step(images, labels)` is your training step, update included. It is called about 30 times where `quick`, else 80,
    and more where something is looked for; its own counters, files and logs see every call. `evaluate()` is your
    evaluation, `evaluated` the module it evaluates, where that is a running mean of the weights; `pretrained` says
    that the weights have learnt before, and may be frozen on purpose. What was compiled is examined uncompiled.
    `quick` leaves the dear checks out, `only` all but those of these names or stages.

    print(report) shows what was found; report.verdict, report.findings, report.as_json(), report.save_page(path)."""
    only = chosen(only, [check.name for check in CHECKS], get_args(Stage))
    patient = module_patient(
        model,
        loader,
        loss=loss,
        optimizer=optimizer,
        val_loader=val_loader,
        step=step,
        evaluate=evaluate,
        evaluated=evaluated,
        num_classes=num_classes,
        clip_norm=clip_norm,
        epochs=epochs,
        warmup_steps=warmup_steps,
        dtype=dtype,
        pretrained=pretrained,
    )
    parameters = sum(parameter.numel() for parameter in patient.model.parameters())
    subject = {"model": type(patient.model).__name__, "parameters": parameters, "classes": patient.num_classes}
    return examine(patient, CHECKS, quick=quick, only=only, on_check=on_check, subject=subject)
