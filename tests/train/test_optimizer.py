"""The optimiser of a run against torch's plain ones; skipped steps; state that is complete, exact and in place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.twins import twin
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.model import VisionModel
from vitscope.models.variants import model_config
from vitscope.train.config import OptimConfig
from vitscope.train.optim.groups import freeze, parameter_groups
from vitscope.train.optim.optimizer import Optimizer

NAMES = ["adamw", "adam", "sgd", "muon"]
GO = torch.zeros(())
SKIP = torch.ones(())


def network(seed: int = 0) -> VisionModel:
    torch.manual_seed(seed)
    return build_model(
        ViTConfig(img_size=8, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=5, layer_scale=0.1)
    )


def settings(name: Any, **more: Any) -> OptimConfig:
    return OptimConfig(name=name, **more)


def give_gradients(model: nn.Module, seed: int) -> None:
    """The same for models of the same shapes, whatever they hold."""
    draws = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draws)


def run(optimizer: Optimizer, model: nn.Module, steps: range, lr: float = 0.01) -> None:
    for step in steps:
        give_gradients(model, step)
        optimizer.step(torch.tensor(lr / (1 + step)), GO)


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def copied(state: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    return {name: {key: tensor.clone() for key, tensor in tensors.items()} for name, tensors in state.items()}


def same(a: dict[str, dict[str, Tensor]], b: dict[str, dict[str, Tensor]]) -> bool:
    return a.keys() == b.keys() and all(
        a[name].keys() == b[name].keys() and all(torch.equal(a[name][key], b[name][key]) for key in a[name])
        for name in a
    )


def plain(config: OptimConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """torch's optimiser, not fused, with numbers for rates."""
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=1.0, momentum=config.momentum, nesterov=config.nesterov, foreach=False)
    cls = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.name]
    return cls(groups, lr=1.0, betas=config.betas, eps=config.eps, foreach=False)


@pytest.mark.parametrize(
    "config",
    [
        settings("adamw", weight_decay=0.1),
        settings("adamw", weight_decay=0.1, layer_decay=0.6, betas=(0.8, 0.95)),
        settings("adam", weight_decay=0.1, eps=1e-3),
        settings("sgd", weight_decay=0.1),
        settings("sgd", weight_decay=0.1, momentum=0.5, nesterov=False, layer_decay=0.5),
        settings("sgd", momentum=0.0, nesterov=False),
        *(settings(name) for name in ("adamw", "adam", "sgd")),
    ],
    ids=lambda config: f"{config.name}-{config.layer_decay}-{config.momentum}-{config.weight_decay}",
)
def test_agrees_with_torchs_plain_optimisers(config: OptimConfig) -> None:
    ours, theirs = network(), network()
    optimizer = Optimizer(ours, config)
    groups = parameter_groups(theirs, config)
    usual = {"adamw": 0.05, "adam": 1e-4, "sgd": 1e-4}[config.name]
    decay = usual if config.weight_decay is None else config.weight_decay
    reference = plain(
        config,
        [{"params": list(group.params), "weight_decay": decay if group.decays else 0.0} for group in groups],
    )
    begin = values(ours)
    for step in range(5):
        lr = 0.02 / (1 + step)
        for settled, group in zip(reference.param_groups, groups, strict=True):
            settled["lr"] = lr * group.lr_scale
        give_gradients(ours, step)
        give_gradients(theirs, step)
        optimizer.step(torch.tensor(lr), GO)
        reference.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6), name
        assert not torch.allclose(a, begin[name], atol=1e-3), name


def test_muon_turns_matrices_and_adamw_the_rest() -> None:
    config = settings("muon", lr=0.01, muon_lr=0.03, weight_decay=0.1)
    ours, theirs = network(), network()
    optimizer = Optimizer(ours, config)
    groups = parameter_groups(theirs, config)
    matrices = [parameter for group in groups if group.kind == "matrix" for parameter in group.params]
    muon = torch.optim.Muon(matrices, lr=1.0, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(
        [
            {"params": list(group.params), "weight_decay": 0.1 if group.decays else 0.0}
            for group in groups
            if group.kind == "rest"
        ],
        foreach=False,
    )
    begin = values(ours)
    for step, lr in enumerate((0.01, 0.005, 0.001)):
        muon.param_groups[0]["lr"] = 3 * lr
        for settled in adamw.param_groups:
            settled["lr"] = lr
        give_gradients(ours, step)
        give_gradients(theirs, step)
        optimizer.step(torch.tensor(lr), GO)
        muon.step()
        adamw.step()
    turned = {id(parameter) for parameter in matrices}
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        way = (b - begin[name]).norm()
        assert (a - b).norm() < (0.03 if id(b) in turned else 1e-4) * way, name
    assert len(turned) == 8


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps_before", [0, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1.0])
def test_a_skipped_step_changes_no_bit(name: str, steps_before: int, bad: float) -> None:
    model = network()
    optimizer = Optimizer(model, settings(name))
    run(optimizer, model, range(steps_before))
    weights, state = values(model), copied(optimizer.state_dict())
    give_gradients(model, 7)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.view(-1)[0] = bad
    optimizer.step(torch.tensor(0.1), SKIP)
    assert all(torch.equal(value, weights[name]) for name, value in values(model).items())
    assert same(optimizer.state_dict(), state)

    give_gradients(model, 7)
    optimizer.step(torch.tensor(0.1), GO)
    assert not any(torch.equal(value, weights[name]) for name, value in values(model).items())


@pytest.mark.parametrize("name", NAMES)
def test_a_skipped_step_leaves_no_trace_in_later_ones(name: str) -> None:
    with_skips, without = network(), network()
    a, b = Optimizer(with_skips, settings(name)), Optimizer(without, settings(name))
    for step in range(4):
        give_gradients(with_skips, 100 + step)
        a.step(torch.tensor(0.5), SKIP)
        run(a, with_skips, range(step, step + 1))
        run(b, without, range(step, step + 1))
    assert all(torch.equal(value, values(without)[name]) for name, value in values(with_skips).items())
    assert same(a.state_dict(), b.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_making_one_changes_nothing_and_its_state_is_complete(name: str) -> None:
    model = network()
    before = values(model)
    optimizer = Optimizer(model, settings(name))
    assert all(torch.equal(value, before[name]) for name, value in values(model).items())
    assert all(parameter.grad is None for parameter in model.parameters())
    state = optimizer.state_dict()
    assert set(state) == set(before)
    assert all(tensors and not tensor.any() for tensors in state.values() for tensor in tensors.values())
    keys = {name: {key: tensor.shape for key, tensor in tensors.items()} for name, tensors in state.items()}
    run(optimizer, model, range(2))
    later = optimizer.state_dict()
    assert keys == {name: {key: tensor.shape for key, tensor in tensors.items()} for name, tensors in later.items()}
    assert all(tensors[key].any() for tensors in later.values() for key in tensors)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_state_goes_on_bit_for_bit(name: str) -> None:
    whole, part = network(), network()
    config = settings(name, layer_decay=0.7)
    a, b = Optimizer(whole, config), Optimizer(part, config)
    run(a, whole, range(6))
    run(b, part, range(3))
    saved, weights = copied(b.state_dict()), values(part)

    again = network(seed=1)
    c = Optimizer(again, config)
    run(c, again, range(10, 12))  # a state and weights of its own, to be overwritten
    c.load_state_dict(saved)
    with torch.no_grad():
        for name, parameter in again.named_parameters():
            parameter.copy_(weights[name])
    run(c, again, range(3, 6))
    assert all(torch.equal(value, values(whole)[name]) for name, value in values(again).items())
    assert same(c.state_dict(), a.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_memory_stays_where_it_is(name: str) -> None:
    """A captured graph reads and writes these addresses."""
    model = network()
    optimizer = Optimizer(model, settings(name, layer_decay=0.7))

    def places() -> list[int]:
        state = [tensor.data_ptr() for tensors in optimizer.state_dict().values() for tensor in tensors.values()]
        rates = [group["lr"].data_ptr() for part in optimizer._parts for group in part.param_groups]
        return state + rates + [parameter.data_ptr() for parameter in model.parameters()]

    before = places()
    run(optimizer, model, range(2))
    optimizer.load_state_dict(copied(optimizer.state_dict()))
    run(optimizer, model, range(2))
    assert places() == before


@pytest.mark.parametrize("name", NAMES)
def test_each_group_learns_at_its_own_rate(name: str) -> None:
    model = network()
    config = settings(name, lr=1e-3, muon_lr=4e-3, layer_decay=0.5)
    optimizer = Optimizer(model, config)
    give_gradients(model, 0)
    optimizer.step(torch.tensor(0.25), GO)
    rates = {
        id(parameter): group["lr"].item()
        for part in optimizer._parts
        for group in part.param_groups
        for parameter in group["params"]
    }
    for group in optimizer.groups:
        for parameter in group.params:
            faster = 4 if group.kind == "matrix" else 1
            assert rates[id(parameter)] == pytest.approx(0.25 * group.lr_scale * faster)
    assert len(set(rates.values())) > 3


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    model = network()
    optimizer = Optimizer(model, settings("adamw"))
    run(optimizer, model, range(2))
    before, good = copied(optimizer.state_dict()), copied(optimizer.state_dict())
    for tensors in good.values():
        for tensor in tensors.values():
            tensor.add_(1)
    head = good["head.weight"]
    cases: list[tuple[Any, str]] = [
        ({name: tensors for name, tensors in good.items() if name != "head.weight"}, "head.weight missing"),
        ({**good, "tail.weight": head}, "tail.weight unknown"),
        ({**good, "head.weight": {"step": head["step"], "exp_avg": head["exp_avg"]}}, "exp_avg_sq missing"),
        ({**good, "head.weight": {**head, "momentum_buffer": head["exp_avg"]}}, "momentum_buffer unknown"),
        ({**good, "head.weight": {**head, "exp_avg": head["exp_avg"][:3]}}, r"head.weight, exp_avg: .*\(5, 16\)"),
        ({**good, "head.weight": {**head, "step": 3}}, "head.weight, step"),
        ({}, "and .* more missing"),
    ]
    for state, message in cases:
        with pytest.raises(VitscopeError, match=message):
            optimizer.load_state_dict(state)
        assert same(optimizer.state_dict(), before)
    optimizer.load_state_dict(good)
    assert same(optimizer.state_dict(), good)


def test_frozen_parameters_neither_move_nor_have_state() -> None:
    model = network()
    frozen = freeze(model, ("blocks.0", "pos_embed"))
    optimizer = Optimizer(model, settings("muon"))
    before = values(model)
    run(optimizer, model, range(2))
    assert {name for name, value in values(model).items() if torch.equal(value, before[name])} == set(frozen)
    assert not set(frozen) & set(optimizer.state_dict())


def test_lists_for_clipping_and_l1() -> None:
    model = network()
    freeze(model, ("blocks.0",))
    optimizer = Optimizer(model, settings("adamw", weight_decay=0.0))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert len(optimizer.params) == len({id(parameter) for parameter in optimizer.params})
    assert {names[id(parameter)] for parameter in optimizer.params} == set(optimizer.state_dict())
    assert sorted(names[id(parameter)] for parameter in optimizer.decayed) == [
        "blocks.1.attn.proj.weight",
        "blocks.1.attn.qkv.weight",
        "blocks.1.mlp.fc1.weight",
        "blocks.1.mlp.fc2.weight",
        "head.weight",
        "patch_embed.proj.weight",
    ]
    give_gradients(model, 0)
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in optimizer.params)


@pytest.mark.parametrize("name", ["resnet18", "mnist_cnn", "mnist_lstm"])
def test_muon_is_refused_where_it_has_nothing_to_turn(name: str) -> None:
    with pytest.raises(ConfigError, match="muon turns matrices"):
        Optimizer(build_model(twin(model_config(name))), settings("muon"))


@pytest.mark.parametrize("name", NAMES)
def test_learns_one_batch_by_heart(name: str) -> None:
    model = network()
    draws = torch.Generator().manual_seed(5)
    images, labels = torch.randn(10, 3, 8, 8, generator=draws), torch.arange(10) % 5
    optimizer = Optimizer(model, settings(name, lr=0.03 if name == "sgd" else 0.01, weight_decay=0.01))
    for _ in range(150 if name == "sgd" else 60):
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step(torch.tensor(optimizer.config.lr), GO)
        optimizer.zero_grad()
    assert (model(images).argmax(1) == labels).all()


@pytest.mark.parametrize(("name", "decay"), [("adamw", 0.05), ("muon", 0.05), ("adam", 1e-4), ("sgd", 1e-4)])
def test_weight_decay_that_is_not_given_is_that_of_the_optimiser(name: str, decay: float) -> None:
    """As part of the gradient 0.05 would be far too much."""
    assert settings(name).weight_decay is None
    assert settings(name).decay == decay
    assert (settings(name, weight_decay=0.0).decay, settings(name, weight_decay=0.3).decay) == (0.0, 0.3)
    assert f"weight decay {decay:g} except for" in Optimizer(network(), settings(name)).describe()
    with pytest.raises(ConfigError, match="weight_decay: expected 0 or more"):
        settings(name, weight_decay=-0.1)


@pytest.mark.parametrize("muon_lr", [None, 0.03])
def test_the_rate_of_matrices_is_what_it_says_whatever_the_batch(muon_lr: float | None) -> None:
    """A rate scaled to 0.04 at the top of the schedule: the matrices have theirs, not four times that."""
    config = settings("muon", lr=0.01, muon_lr=muon_lr, weight_decay=0.0)
    scaled, plain_one = network(), network()
    top = Optimizer(scaled, config, lr=0.04)
    groups = top.groups
    peer = Optimizer(plain_one, settings("muon", lr=0.04, muon_lr=muon_lr, weight_decay=0.0))
    for optimizer, model in ((top, scaled), (peer, plain_one)):
        give_gradients(model, 1)
        optimizer.step(torch.tensor(0.04), GO)
    assert all(torch.equal(value, values(plain_one)[name]) for name, value in values(scaled).items())
    matrix = next(group.params[0] for group in groups if group.kind == "matrix")
    # Steps are scaled to 0.2 in the root of the mean square, so the rate can be read from the way.
    name = next(name for name, parameter in scaled.named_parameters() if parameter is matrix)
    way = (matrix.detach() - values(network())[name]).square().mean().sqrt()
    assert float(way) == pytest.approx(0.2 * (muon_lr or 0.04), rel=0.2)
    assert f"matrices with lr {muon_lr or 0.04:g}, AdamW the rest with 0.04" in top.describe()


def test_says_what_it_does() -> None:
    model = network()
    total = sum(parameter.numel() for parameter in model.parameters())
    groups = parameter_groups(model, settings("muon"))
    free = sum(parameter.numel() for group in groups if not group.decays for parameter in group.params)
    line = Optimizer(model, settings("muon")).describe()
    assert line.startswith(f"muon: {total:,} parameters in 3 groups, weight decay 0.05 except for {free:,} of them; ")
    assert "; Muon updates " in line
    assert "8 matrices" in line
    assert "\n" not in line
    assert "matrices" not in Optimizer(model, settings("adamw")).describe()
