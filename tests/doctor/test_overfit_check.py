"""A batch learnt by heart: healthy networks do, at one rung of the ladder at least; what cannot is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from doctor.broken import small_cnn, small_resnet
from doctor.conftest import CLASSES, pictures, small_vit
from doctor.seen import causes, notes
from doctor.test_as_it_came import fingerprint
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.checks.training import overfit as check
from vitscope.doctor.checks.training.overfit import one_batch
from vitscope.doctor.config_patient import config_patient
from vitscope.doctor.experiments.overfit import Attempt, nothing_dropped, overfit, random_batch
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.training import HOPELESS_STEPS, OVERFIT_LRS, OVERFIT_LRS_OF_LARGE, OVERFIT_STEPS

Make = Callable[..., Patient]


@pytest.mark.parametrize("model", [small_vit, small_cnn, small_resnet], ids=["vit", "cnn", "resnet"])
def test_healthy_models_have_every_picture_right(patient: Make, model: Callable[[], nn.Module]) -> None:
    one = patient(model())
    before = fingerprint(one)
    with as_it_came(one):  # as the examination does
        seen = one_batch(one)
    assert causes(seen) == []
    assert notes(seen) == []
    assert seen.measured["accuracy"] == 1.0
    assert seen.measured["pictures"] == 32
    assert seen.measured["check_up_passed"] is True
    assert fingerprint(one) == before


def test_dropout_and_decay_do_not_stand_in_the_way(patient: Make) -> None:
    model = small_vit(drop_rate=0.9)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=10.0)
    seen = one_batch(patient(model, optimizer=optimizer))
    assert seen.measured["accuracy"] == 1.0


class Averages(nn.Module):
    """Every picture becomes the mean of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = small_cnn()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inside(images.mean(0, keepdim=True).expand_as(images))


def test_a_model_that_cannot_is_named_after_every_rung(patient: Make) -> None:
    one = patient(Averages())
    before = fingerprint(one)
    with as_it_came(one):  # as the examination does
        seen = one_batch(one)
    (finding,) = seen.findings
    assert causes(seen) == ["cannot_overfit"]
    assert finding.ends
    assert finding.confidence == 0.9
    assert finding.numbers["lrs"] == "0.001, 0.005, 0.0003"
    assert finding.numbers["accuracy"] < 0.6
    assert set(seen.measured["tried"]) == {"0.001", "0.005", "0.0003"}
    assert seen.measured["check_up_passed"] is False
    assert seen.picture is not None
    assert all(len(line.y) < OVERFIT_STEPS for line in seen.picture.lines)  # given up early
    assert fingerprint(one) == before


def test_one_picture_under_two_names_is_a_note(patient: Make) -> None:
    images, labels = pictures(32)
    images[1] = images[0]
    labels[:2] = torch.tensor([0, 1])
    seen = one_batch(patient(small_cnn(), images=images, labels=labels))
    assert causes(seen) == []
    assert notes(seen) == ["almost_by_heart"]
    assert seen.measured["accuracy"] == 31 / 32
    assert seen.measured["check_up_passed"] is True


def test_pictures_in_the_order_of_their_classes_are_drawn_from_all(patient: Make) -> None:
    images, labels = pictures(256)
    order = labels.argsort()
    one = patient(images=images[order], labels=labels[order])
    one.train = lambda: iter([(images[order], labels[order])])
    assert len(random_batch(one, 32)[1].unique()) == CLASSES


def test_one_class_and_labels_out_of_range_are_left_out(patient: Make) -> None:
    images, labels = pictures(64)
    assert one_batch(patient(images=images, labels=torch.zeros_like(labels))).left_out == "one_class_to_overfit"
    assert one_batch(patient(images=images, labels=labels + 7)).left_out == "labels_do_not_fit_outputs"


def test_a_rung_that_had_no_time_proves_nothing(patient: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    short = (Attempt(1e-3, (2.0, 1.9), (0.2, 0.3), was_cut_short=True),)
    monkeypatch.setattr(check, "overfit", lambda *_, **__: list(short))
    seen = one_batch(patient())
    assert causes(seen) == []
    assert seen.left_out == "overfit_had_no_time"


def test_large_models_begin_at_the_lowest_rung(patient: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def note(*_: object, lrs: tuple[float, ...], **__: object) -> list[Attempt]:
        tried.append(lrs)
        return [Attempt(lrs[0], (1.0,), (1.0,))]

    monkeypatch.setattr(check, "overfit", note)
    one_batch(patient())
    one_batch(patient(small_vit(embed_dim=320, num_heads=5)))
    assert tried == [OVERFIT_LRS, OVERFIT_LRS_OF_LARGE]
    assert sorted(OVERFIT_LRS) == sorted(OVERFIT_LRS_OF_LARGE) == [3e-4, 1e-3, 5e-3]


def test_the_guide_s_own_model_is_asked_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    from vitscope.data.config import DataConfig
    from vitscope.data.dataset import open_dataset
    from vitscope.train.config import TrainConfig, named_model

    config = TrainConfig(model=named_model("guide_overfit"), data=DataConfig(name="shapes", batch_size=64))
    one = config_patient(config, open_dataset(config.data), torch.device("cpu"))
    asked = {}

    def spy(*given: object, **settings: object) -> list[Attempt]:
        asked.update(settings)
        return overfit(*given, **settings)  # pyright: ignore

    monkeypatch.setattr(check, "overfit", spy)
    try:
        seen = one_batch(one)
    finally:
        one.close()
    assert (asked["lrs"], asked["steps"], asked["goal"], asked["pictures"]) == ((5e-3,), 200, 1.0, 32)
    assert asked["gives_up"] is False
    assert causes(seen) == []
    assert seen.measured["accuracy"] == 1.0
    assert list(seen.measured["tried"]) == ["0.005"]


def test_a_rung_that_still_comes_down_is_not_given_up(patient: Make) -> None:
    (attempt,) = overfit(patient(small_cnn()), lrs=[1e-4], steps=3 * HOPELESS_STEPS, goal=1.1)
    assert attempt.steps == 3 * HOPELESS_STEPS
    assert attempt.first_above(0.0) == 0
    assert attempt.first_above(1.0) is None


def test_nothing_is_dropped_and_rates_come_back() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.MultiheadAttention(4, 1, dropout=0.5))
    with nothing_dropped(model):
        assert not model[0].training
        assert model[1].dropout == 0.0
    assert model[1].dropout == 0.5
