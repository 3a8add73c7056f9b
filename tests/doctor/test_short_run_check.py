"""A short run: regularisers that hold a model back are found by switching them off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.broken import small_cnn, small_resnet
from doctor.conftest import small_vit
from doctor.seen import causes, notes
from doctor.test_as_it_came import fingerprint
from vitscope.core.config import updated
from vitscope.data.dataset import open_dataset
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.checks.training.short_run import short_run
from vitscope.doctor.config_patient import EngineTrainer, config_patient
from vitscope.doctor.experiments.short_run import largest_dropout, nothing_drawn
from vitscope.doctor.patient import Patient
from vitscope.recipes import find_recipe

Make = Callable[..., Patient]


@pytest.mark.parametrize("model", [small_vit, small_cnn, small_resnet], ids=["vit", "cnn", "resnet"])
def test_healthy_models_give_nothing_and_validation_is_looked_at(patient: Make, model: Callable[[], nn.Module]) -> None:
    one = patient(model(), clip_norm=1.0)
    before = fingerprint(one)
    with as_it_came(one):
        seen = short_run(one)
    assert causes(seen) == []
    assert notes(seen) == []
    assert seen.measured["way"] == "falls"
    assert 20 <= seen.measured["steps"] <= 40
    assert seen.measured["val_accuracy_after"] > seen.measured["val_accuracy_before"]
    assert seen.measured["val_loss_after"] != seen.measured["val_loss_before"]
    assert fingerprint(one) == before


def test_without_a_validation_part_nothing_is_said_of_one(patient: Make) -> None:
    one = patient(small_cnn(), val_loader=None)
    assert not any(key.startswith("val_") for key in short_run(one).measured)


def test_weight_decay_that_wins_over_gradients(patient: Make) -> None:
    model = small_vit()
    seen = short_run(patient(model, optimizer=torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=20.0)))
    assert "weight_decay_too_high" in causes(seen)
    numbers = next(one for one in seen.findings if one.cause == "weight_decay_too_high").numbers
    assert numbers["weight_decay"] == 20.0
    assert numbers["half_life"] == pytest.approx(0.693 / (20.0 * 1e-2), rel=1e-2)
    assert numbers["better_end"] < numbers["end"]


def test_usual_weight_decay_is_no_suspect(patient: Make) -> None:
    model = small_vit()
    seen = short_run(patient(model, optimizer=torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.3)))
    assert causes(seen) == []


def test_dropout_that_leaves_nothing(patient: Make) -> None:
    seen = short_run(patient(small_vit(drop_rate=0.95)))
    assert causes(seen) == ["dropout_too_high"]
    assert seen.findings[0].numbers["drop_rate"] == 0.95
    assert seen.findings[0].numbers["better_end"] < seen.findings[0].numbers["end"]


def test_usual_dropout_is_no_suspect(patient: Make) -> None:
    assert causes(short_run(patient(small_cnn(drop_rate=0.5)))) == []


def test_clipping_that_stops_sgd_is_found_by_its_harm(patient: Make) -> None:
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    seen = short_run(patient(model, optimizer=optimizer, clip_norm=1e-5))
    assert causes(seen) == ["clip_too_small"]
    numbers = seen.findings[0].numbers
    assert numbers["clip_norm"] == 1e-5
    assert numbers["grad_norm"] > 0.01
    assert numbers["better_end"] < numbers["end"]


def test_clipping_that_adam_does_not_feel_is_a_note(patient: Make) -> None:
    seen = short_run(patient(small_cnn(), clip_norm=1e-4, lr=1e-3))
    assert causes(seen) == []
    assert notes(seen) == ["clip_small"]


def test_what_nothing_explains_is_told_with_the_rates_that_were_tried(patient: Make) -> None:
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        """The update is forgotten."""
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        return loss.detach()

    seen = short_run(patient(model, optimizer=optimizer, step=step, clip_norm=1.0))
    assert causes(seen) == ["does_not_learn"]
    numbers = seen.findings[0].numbers
    assert numbers["highest"] / numbers["lowest"] == pytest.approx(1e4)


def test_a_rate_of_zero_is_not_divided_by(patient: Make) -> None:
    model = small_cnn()
    seen = short_run(patient(model, optimizer=torch.optim.AdamW(model.parameters(), 0.0, weight_decay=1.0)))
    assert causes(seen) == []


def test_rates_come_back_after_a_run_without_drops() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.MultiheadAttention(4, 1, dropout=0.7))
    with nothing_drawn(model):
        assert (model[0].p, model[1].dropout) == (0.0, 0.0)
    assert (model[0].p, model[1].dropout) == (0.5, 0.7)


def decays(trainer: EngineTrainer) -> set[float]:
    return {group["weight_decay"] for part in trainer.state.optimizer._parts for group in part.param_groups}


def test_the_engine_s_trainer_can_be_relaxed() -> None:
    config = find_recipe("digits_vit")()
    optim = updated(config.optim, name="adamw", weight_decay=2.0, clip_norm=1e-3)
    config = updated(config, optim=optim, model=config.model.changed(depth=1))
    one = config_patient(config, open_dataset(config.data), torch.device("cpu"))
    try:
        assert one.make_trainer is not None
        assert largest_dropout(one) == 0.0
        trainer = one.make_trainer()
        assert isinstance(trainer, EngineTrainer)
        assert (trainer.weight_decay, trainer.state.clip_norm) == (2.0, 1e-3)
        moved = trainer.moved
        trainer.relax(clip=True)
        assert trainer.state.clip_norm is None
        assert decays(trainer) == {0.0, 2.0}
        trainer.relax(decay=True, clip=True)
        assert decays(trainer) == {0.0}
        assert trainer.moved == moved
        trainer.hold_lr(0.0)
        with as_it_came(one):
            first = [parameter.detach().clone() for parameter in one.model.parameters()]
            trainer.step(*one.sample(8))
            assert all(torch.equal(a, b) for a, b in zip(first, one.model.parameters(), strict=True))
            trainer.hold_lr(1e-2)
            trainer.step(*one.sample(8))
            assert not all(torch.equal(a, b) for a, b in zip(first, one.model.parameters(), strict=True))
    finally:
        one.close()
