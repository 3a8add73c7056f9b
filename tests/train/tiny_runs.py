"""The smallest runs that are still runs: settings, states and batches that cost milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitscope.data.config import DataConfig
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, ViTConfig
from vitscope.train.config import LoopConfig, LossConfig, OptimConfig, ScheduleConfig, TrainConfig, named_model
from vitscope.train.objective import Objective
from vitscope.train.optim.optimizer import Optimizer
from vitscope.train.state import TrainState
from vitscope.train.step import AfterStep, train_step

K = 4
VIT = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=K, embed_dim=16, depth=2, num_heads=2)
DATA = f"synthetic:size=8,count=120,classes={K},channels=1"
"""72 pictures to train on, 24 to choose by, 24 to test: a step an epoch unless a smaller batch is asked for."""


def tiny(model: ModelConfig = VIT, *, data: dict[str, Any] | None = None, **sections: Any) -> TrainConfig:
    """Settings of a run of a few steps. Sections are dicts of settings: `loop={"epochs": 3}`."""
    made = {
        "optim": OptimConfig(**{"lr": 3e-3, **sections.pop("optim", {})}),
        "schedule": ScheduleConfig(**{"name": "constant", "warmup": "0 steps", **sections.pop("schedule", {})}),
        "loss": LossConfig(**sections.pop("loss", {})),
        "loop": LoopConfig(**{"epochs": 2, "device": "cpu", **sections.pop("loop", {})}),
    }
    pictures = {"name": DATA, "batch_size": 72, "pool_shares": (0.6, 0.2, 0.2), **(data or {})}
    return TrainConfig(model=named_model(model.family, model), data=DataConfig(**pictures), **made, **sections)


def network(config: ModelConfig = VIT, *, seed: int = 0, large: bool = True) -> Any:
    """A model whose every tensor matters; fresh ones have heads and biases near 0, which hides errors."""
    torch.manual_seed(seed)
    model = build_model(config).train()
    if large:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def state_of(model: Any, *, lr: float = 0.1, optim: dict[str, Any] | None = None, **settings: Any) -> TrainState:
    """Plain SGD unless something else is asked for: its step is the gradient, so that tests can see it."""
    plain = {"name": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "lr": lr}
    optimizer = Optimizer(model, OptimConfig(**{**plain, **(optim or {})}))
    given = {"lr_table": torch.full((100,), lr), "device": torch.device("cpu"), "ledger_rows": 8, **settings}
    return TrainState(model, optimizer, **given)


def objective_of(state: TrainState, config: LossConfig | None = None, **settings: Any) -> Objective:
    return Objective(state.model, config or LossConfig(), decayed=state.optimizer.decayed, **settings)


def batch(count: int = 10, *, shares: bool = False, seed: int = 5) -> tuple[Tensor, Tensor]:
    """Noise in the size of VIT, and its classes in turn (or shares of them)."""
    rng = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 8, 8, generator=rng)
    if shares:
        return images, torch.randn(count, K, generator=rng).mul(3).softmax(-1)
    return images, torch.arange(count) % K


def take(
    state: TrainState, images: Tensor, labels: Tensor, objective: Any = None, *, after: Sequence[AfterStep] = ()
) -> dict[str, float]:
    """One step, and what it left."""
    train_step(state, images, labels, objective=objective or objective_of(state), after=after)
    return state.ledger.read()[-1]


def weights(model: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def differing(first: dict[str, Tensor], second: dict[str, Tensor]) -> set[str]:
    """Names of the tensors that are not the same bits."""
    assert first.keys() == second.keys()
    return {name for name, value in first.items() if not torch.equal(value, second[name])}


def assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor], *, atol: float, rtol: float) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, atol=atol, rtol=rtol, msg=lambda text, n=name: f"{n}: {text}")
