"""A run's settings as a patient: what trains it is what `fit` would train it with."""

from __future__ import annotations

import torch
from torch import nn

from train.tiny_runs import K, tiny
from vitscope.data.dataset import open_dataset
from vitscope.doctor.config_patient import config_patient
from vitscope.models.config import CNNConfig


def test_a_frozen_batch_norm_stays_frozen_in_the_doctors_steps() -> None:
    model = CNNConfig(img_size=8, in_chans=1, widths=(4, 8), num_classes=K)
    config = tiny(model, optim={"freeze": ("stages.0",)})
    patient = config_patient(config, open_dataset(config.data), torch.device("cpu"))
    assert patient.make_trainer is not None
    trainer = patient.make_trainer()
    norms = {name: one for name, one in patient.model.named_modules() if isinstance(one, nn.BatchNorm2d)}
    before = {name: one.running_mean.clone() for name, one in norms.items() if one.running_mean is not None}
    trainer.step(*patient.sample(8))
    moved = {name for name, mean in before.items() if not torch.equal(mean, norms[name].running_mean)}  # type: ignore[arg-type]
    assert moved == {name for name in norms if not name.startswith("stages.0")} != set()
    patient.close()
