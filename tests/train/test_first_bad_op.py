"""The operation that made the first value that is not finite is named, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from vitscope.train.first_bad_op import BadOperation, FirstBadOperation


class Layer(nn.Module):
    """One function of a linear layer's output."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x))


class RootGradient(torch.autograd.Function):
    """Finite forward, and a gradient that divides by zero."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad / torch.zeros_like(grad)


def masked(x: Tensor) -> Tensor:
    """Infinity on purpose, as attention masks are made; softmax makes it finite again."""
    hidden = torch.zeros_like(x, dtype=torch.bool)
    hidden[:, 0] = True
    x = x.masked_fill(hidden, -math.inf)
    x = torch.where(hidden, torch.full_like(x, -math.inf), x)
    return x.softmax(-1)


def watched(model: nn.Module, images: Tensor, loss: Callable[[Tensor], Tensor] = Tensor.sum) -> FirstBadOperation:
    watch = FirstBadOperation(model)
    with watch:
        loss(model(images)).backward()
    return watch


def model_of(*functions: Callable[[Tensor], Tensor]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(function) for function in functions))


IMAGES = torch.ones(2, 4)


@pytest.mark.parametrize(
    ("function", "name", "gave"),
    [
        (lambda x: (x * 0 + 1000).exp(), "exp", "infinity"),
        (lambda x: (x * 0 - 1).log(), "log", "NaN"),
        (lambda x: (x * 0 - 1).sqrt(), "sqrt", "NaN"),
        (lambda x: x / (x * 0), "div", "infinity"),
        (lambda x: (masked(x) + 1) / (x * 0), "div", "infinity"),
        (lambda x: (x * 0 + 1e30) @ (x.new_ones(4, 4) * 1e30), "mm", "infinity"),
        (lambda x: x * math.nan, "mul", "NaN"),
    ],
    ids=["exp", "log", "sqrt", "div", "after a mask", "matrices", "told"],
)
def test_the_forward_operation_and_its_layer(function: Callable[[Tensor], Tensor], name: str, gave: str) -> None:
    watch = watched(model_of(torch.tanh, masked, function, torch.tanh), IMAGES)
    found = watch.found()
    assert watch.first_bad_module == "2"
    assert found is not None
    assert (found.name, found.layer, found.phase, found.gave) == (name, "2", "forward", gave)


def test_the_largest_value_it_was_given() -> None:
    found = watched(model_of(lambda x: (x * 0 + 1000).exp()), IMAGES).found()
    assert found is not None
    assert found.largest_input == 1000.0


def test_a_weight_that_is_too_large_is_found_inside_its_layer() -> None:
    model = model_of(torch.ones_like, torch.tanh)
    model.get_submodule("1.fc").weight.data.fill_(3e38)  # type: ignore[union-attr]
    watch = watched(model, IMAGES * 1e3)
    assert watch.first_bad_module == "1.fc"
    assert watch.found() == BadOperation("addmm", "1.fc", "forward", "infinity", pytest.approx(3e38, rel=1e-3))


def test_between_two_layers_it_is_the_model_that_holds_them() -> None:
    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.second((self.first(masked(x)) * 0 + 100).exp())

    watch = watched(nn.Sequential(Parent()), IMAGES)
    found = watch.found()
    assert watch.first_bad_module == "0.second"  # the first whose output shows it
    assert found is not None
    assert (found.name, found.layer) == ("exp", "0")


@pytest.mark.parametrize("function", [RootGradient.apply, lambda x: (x * 0).sqrt()], ids=["own", "sqrt"])
def test_the_backward_operation_and_its_layer(function: Callable[[Tensor], Tensor]) -> None:
    watch = watched(model_of(masked, torch.tanh, function, torch.tanh), IMAGES)
    found = watch.found()
    assert watch.first_bad_module is None
    assert found is not None
    assert (found.name, found.layer, found.phase) == ("div", "2", "backward")


def test_gradients_that_overflow_when_they_are_added_up() -> None:
    model = nn.Linear(1, 1, bias=False)
    watch = FirstBadOperation(model)
    with watch:
        for _ in range(2):
            (model(torch.ones(1, 1)) * 3e38).sum().backward()
    found = watch.found()
    assert found is not None
    assert (found.name, found.phase) == ("add", "backward")


def test_the_loss_is_no_layer() -> None:
    watch = watched(model_of(torch.tanh), IMAGES, lambda x: (x * 0).log().sum())
    assert watch.first_bad_module is None
    found = watch.found()
    assert found is not None
    assert (found.name, found.layer, found.phase) == ("log", "", "forward")


def test_a_layer_that_is_computed_again_in_the_backward_pass() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Layer(RootGradient.apply)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[return-value]

    found = watched(nn.Sequential(nn.Linear(4, 4), Again()), IMAGES).found()
    assert found is not None
    assert (found.name, found.layer, found.phase) == ("div", "1.inner", "backward")


def test_pictures_that_are_not_finite_blame_no_operation() -> None:
    watch = watched(model_of(torch.tanh), IMAGES * math.nan)
    assert watch.first_bad_module == "0.fc"
    assert watch.found() is None


def test_a_sound_step_finds_nothing_and_leaves_no_hooks() -> None:
    model = model_of(masked, F.gelu)
    watch = watched(model, IMAGES)
    assert (watch.first_bad_module, watch.found()) == (None, None)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
