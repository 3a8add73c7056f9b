"""A run's settings as a patient: what trains it is what `fit` would train it with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from train.tiny_runs import K, tiny
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.loader import Loader
from vitscope.doctor import config_patient as module
from vitscope.doctor.config_patient import config_patient
from vitscope.models.config import CNNConfig
from vitscope.train.basis import Basis


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


@pytest.mark.parametrize(("fails", "made"), [("loader", ["train"]), ("facts", ["train", "val"])])
def test_where_there_will_be_no_patient_its_loaders_are_closed(
    fails: str, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    closed: list[str] = []
    make = Basis.loader

    def watched(basis: Basis, part: str, **settings: Any) -> Loader:
        if fails == "loader" and part == "val":
            raise MemoryError
        loader = make(basis, part, **settings)
        close = loader.close

        def told() -> None:
            closed.append(part)
            close()

        monkeypatch.setattr(loader, "close", told)
        opened.append(part)
        return loader

    def no_facts(*args: object, **settings: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Basis, "loader", watched)
    if fails == "facts":
        monkeypatch.setattr(module, "_facts", no_facts)
    config = tiny()
    with pytest.raises(MemoryError):
        config_patient(config, open_dataset(config.data), torch.device("cpu"))
    assert opened == made
    assert sorted(closed) == made
