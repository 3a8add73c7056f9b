"""The patient is given back to the last bit."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from doctor.conftest import CLASSES, loader_of, pictures, small_vit
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.module_patient import module_patient
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def fingerprint(patient: Patient) -> str:
    """Of everything an examination could leave behind."""
    held = io.BytesIO()
    model, optimizer = patient.model, patient.optimizer
    torch.save([tensor.detach() for tensor in (*model.parameters(), *model.buffers())], held)
    torch.save([None if one.grad is None else one.grad for one in model.parameters()], held)
    torch.save(None if optimizer is None else optimizer.state_dict(), held)
    torch.save([generator.get_state() for generator in patient.generators], held)
    torch.save(torch.get_rng_state(), held)
    words = [
        [one.requires_grad for one in model.parameters()],
        [one.training for one in model.modules()],
        [len(one._forward_hooks) + len(one._forward_pre_hooks) + len(one._backward_hooks) for one in model.modules()],
        random.getstate(),
        np.random.get_state()[1].tolist(),  # pyright: ignore
    ]
    return hashlib.sha256(held.getvalue() + repr(words).encode()).hexdigest()


def upset(patient: Patient) -> None:
    """Trains, freezes, hooks, draws: all that a check might do."""
    assert patient.make_trainer is not None
    trainer = patient.make_trainer()
    trainer.hold_lr(0.1)
    for images, labels in patient.train():
        trainer.step(images, labels)
    patient.model.eval()
    for module in patient.model.modules():
        module.register_forward_hook(lambda *_: None)
    for parameter in patient.model.parameters():
        parameter.requires_grad_(False)
        parameter.grad = torch.ones_like(parameter)
    random.random()
    np.random.rand()
    torch.rand(1)


@pytest.mark.parametrize("has_trained", [False, True])
def test_nothing_is_left_behind(patient: Make, has_trained: bool) -> None:
    one = patient()
    if has_trained:
        assert one.make_trainer is not None
        trainer = one.make_trainer()
        trainer.step(*next(one.train()))
    before = fingerprint(one)
    with as_it_came(one):
        upset(one)
        assert fingerprint(one) != before
    assert fingerprint(one) == before


def test_an_error_leaves_nothing_behind_either(patient: Make) -> None:
    one = patient()
    before = fingerprint(one)
    with contextlib.suppress(KeyError), as_it_came(one):
        upset(one)
        raise KeyError
    assert fingerprint(one) == before


def test_becoming_a_patient_leaves_no_trace() -> None:
    model, loader = small_vit(drop_rate=0.5).train(), loader_of(*pictures())
    torch.manual_seed(7)
    state, drawn = torch.get_rng_state(), loader.generator.get_state()
    one = module_patient(model, loader)
    assert one.num_classes == CLASSES
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(loader.generator.get_state(), drawn)
    assert all(module.training for module in model.modules())
