"""The door before training: a run's settings, and nothing else yet."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from vitscope.core.device import pick_device
from vitscope.core.seed import preserved_rng
from vitscope.data.dataset import open_dataset
from vitscope.doctor.check import Stage
from vitscope.doctor.checks import CHECKS
from vitscope.doctor.chosen import chosen
from vitscope.doctor.config_patient import config_patient
from vitscope.doctor.examination import OnCheck, Report, examine
from vitscope.doctor.patient import Patient
from vitscope.doctor.uncompiled import run_as_written
from vitscope.train.config import TrainConfig
from vitscope.train.precision import using_precision


@run_as_written()
def examine_settings(
    config: TrainConfig,
    *,
    quick: bool = False,
    only: Collection[str] = (),
    on_check: OnCheck | None = None,
    source: str | None = None,
) -> Report:
    """Examine a run that has not begun: its pictures, model, loss, gradients and a little training. Nothing is written.
    `source` is what the settings are called in the report."""
    only = chosen(only, [check.name for check in CHECKS], get_args(Stage))
    device = pick_device(config.loop.device)
    dataset = open_dataset(config.data)
    with preserved_rng(), using_precision(config.precision):
        patient = config_patient(config, dataset, device)
        try:
            subject = _subject(config, patient, source)
            return examine(patient, CHECKS, quick=quick, only=only, on_check=on_check, subject=subject)
        finally:
            patient.close()


def _subject(config: TrainConfig, patient: Patient, source: str | None) -> dict[str, Any]:
    given = {} if source is None else {"source": source}
    return {
        **given,
        "data": config.data.name,
        "pictures": patient.facts.train_pictures,
        "classes": patient.num_classes,
        "model": config.model.name,
        "parameters": sum(parameter.numel() for parameter in patient.model.parameters()),
        "batch_size": config.data.batch_size,
        "optimizer": config.optim.name,
        "lr": config.lr,
        "epochs": config.loop.epochs,
        "device": str(patient.device),
        "seed": str(config.loop.seed),
    }
