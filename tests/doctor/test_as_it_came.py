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
from vitscope.core.errors import InputError
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


class Counting(torch.nn.Module):
    """Counts its passes, in evaluation mode too, and makes a buffer in the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(768, CLASSES)
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("scale", None)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        self.scale = torch.ones(()) if self.scale is None else self.scale
        return self.layer(images.flatten(1)) * self.scale


def test_even_the_first_look_at_the_outputs_is_undone() -> None:
    model = Counting()
    module_patient(model, loader_of(*pictures()))
    assert float(model.passes) == 0
    assert model.scale is None


def test_a_model_that_learns_its_sizes_in_its_first_pass_can_come() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(CLASSES))
    assert module_patient(model, loader_of(*pictures())).num_classes == CLASSES


def test_gradients_stay_where_they_were(patient: Make) -> None:
    """Others may hold them: a parameter's gradient may be a view of something larger."""
    one = patient()
    weight = next(one.model.parameters())
    weight.grad = held = torch.full_like(weight, 3.0)
    with as_it_came(one):
        upset(one)
    assert weight.grad is held
    assert bool((held == 3.0).all())


def test_a_part_that_is_in_another_mode_stays_in_it() -> None:
    """A frozen BatchNorm, say."""
    model = small_vit().train()
    model.blocks[0].eval()  # pyright: ignore
    module_patient(model, loader_of(*pictures()))
    assert model.training
    assert not model.blocks[0].training  # pyright: ignore


def test_handles_of_the_owners_hooks_still_remove_them(patient: Make) -> None:
    one = patient()
    handle = one.model.register_forward_hook(lambda *_: None)
    with as_it_came(one):
        upset(one)
    assert len(one.model._forward_hooks) == 1
    handle.remove()
    assert len(one.model._forward_hooks) == 0


class Warm(torch.nn.Module):
    """A loss with a temperature that is learnt, and a buffer that is given anew at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(logits * self.temperature, labels)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss


def test_what_the_loss_learns_is_given_back(patient: Make) -> None:
    model, loss = small_vit(), Warm()
    optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()], 1e-2)
    one = patient(model, loss=loss, optimizer=optimizer)
    with as_it_came(one):
        upset(one)
        assert float(loss.temperature.detach()) != 1.0
        assert float(loss.mean) != 0.0
    assert float(loss.temperature.detach()) == 1.0
    assert float(loss.mean) == 0.0
    assert loss.temperature.grad is None


def test_the_optimisers_memory_keeps_its_precision(patient: Make) -> None:
    one = patient()
    assert one.optimizer is not None
    weight = next(one.model.parameters())
    memory = torch.ones(3, dtype=torch.float64)
    one.optimizer.state[weight]["memory"] = memory
    with as_it_came(one):
        memory.zero_()
    assert one.optimizer.state[weight]["memory"] is memory
    assert memory.tolist() == [1.0, 1.0, 1.0]
    assert memory.dtype == torch.float64


def test_a_loader_without_a_batch_is_told() -> None:
    images, labels = pictures(8)
    rows = torch.utils.data.TensorDataset(images, labels)
    with pytest.raises(InputError, match="at least one batch"):
        module_patient(small_vit(), torch.utils.data.DataLoader(rows, 32, drop_last=True))
