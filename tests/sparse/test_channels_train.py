"""Networks with masked, doomed and removed channels train, save, load, export and cost what they should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vitscope
from sparse.convolutions import CONFIGS, ROADS, convolutional, entries
from sparse.sparse_models import pictures, some_kept
from train.tiny_runs import batch, state_of, take, tiny, weights
from vitscope.core.errors import ConfigError
from vitscope.models.accounting.account import Account
from vitscope.models.config import CNNConfig, ResNetConfig
from vitscope.models.model import VisionModel
from vitscope.sparse.growth import Growth, GrowthHook, doomed_share
from vitscope.sparse.mask_hook import MaskHook
from vitscope.sparse.masks import apply_masks, by_units
from vitscope.sparse.rewind import RewindPoint
from vitscope.sparse.surgery import cut_tensors, shrink, slice_optimizer_state
from vitscope.sparse.units import units_of
from vitscope.train import finish
from vitscope.train.config import CheckpointConfig
from vitscope.train.fit import fit
from vitscope.train.state import TrainState
from vitscope.weights.formats.timm_spelling import spelled

# --- hooks, optimisers, the rewind point ------------------------------------------------------------------------------


@pytest.mark.parametrize("optim", ["adamw", "sgd"])
@pytest.mark.parametrize("name", ["bottleneck", "cnn"])
def test_training_goes_on_as_if_the_large_one_were_masked(name: str, optim: str) -> None:
    """In float64: where a channel is dead for a batch its gradient is only rounding, and Adam makes that large."""
    model = convolutional(name).double()
    units = some_kept(model)
    apply_masks(model, by_units(model, units))
    chosen: dict[str, Any] = {"name": optim, "momentum": 0.9, "weight_decay": 0.0}
    settings: dict[str, Any] = {"lr": 1e-3, "optim": chosen, "clip_norm": 1.0}
    large, hook = state_of(model.train(), **settings), MaskHook(by_units(model, units))

    def step(state: TrainState, number: int, hooks: list[MaskHook]) -> float:
        images, labels = batch(seed=number)
        return take(state, images.double(), labels, after=hooks)["train/loss"]

    for number in range(3):
        step(large, number, [hook])
    small = state_of(shrink(model, units), **settings)
    small.optimizer.load_state_dict(slice_optimizer_state(model, large.optimizer.state_dict(), units))
    fresh = state_of(shrink(model, units), **settings)
    for number in range(3, 6):
        wanted = step(large, number, [hook])
        assert step(small, number, []) == pytest.approx(wanted, abs=1e-6)
        step(fresh, number, [])
    wanted = cut_tensors(model, model.state_dict(), units)
    apart = [
        max(float((one.model.state_dict()[key] - tensor).abs().max()) for key, tensor in wanted.items())
        for one in (small, fresh)
    ]
    assert apart[0] < 1e-6
    assert apart[1] > 100 * apart[0], "else the optimiser's memory means nothing here"


@pytest.mark.parametrize("name", ["bottleneck", "cnn"])
def test_doomed_channels_are_drawn_to_0_and_the_cut_changes_nothing(name: str) -> None:
    model = convolutional(name)
    whole, after = units_of(model), some_kept(model)
    doomed = whole.without(after)
    before = weights(model)
    state = state_of(model.train(), lr=1e-3, optim={"name": "adamw"})
    hook = GrowthHook(doomed, Growth(steps=60))
    for number in range(60):
        take(state, *batch(seed=number), after=[hook])
    going = {key: ~mask for key, mask in by_units(model, after).items()}
    largest = max(float(weights(model)[key][mark].abs().max()) for key, mark in going.items() if bool(mark.any()))
    rest = torch.cat([weights(model)[key][~mark].abs() for key, mark in going.items()])
    assert doomed_share(model, doomed) == pytest.approx(largest / float(rest.median()), rel=1e-4)
    assert doomed_share(model, doomed) < 1e-3
    assert float(rest.median()) > 0.3 * float(torch.cat([before[k][~m].abs() for k, m in going.items()]).median())
    was, now = (one.eval()(pictures()).detach() for one in (model, shrink(model, after)))
    assert float((now - was).abs().max() / was.abs().max()) < 1e-3


def test_growth_feels_rows_and_columns_of_the_same_convolution() -> None:
    model = convolutional("bottleneck")
    flags = [[True] * count for count in units_of(model).totals("channels")]
    flags[0][1] = flags[1][2] = False  # an input and an output of layer1.0.conv2
    kept = units_of(model).with_kept("channels", flags)
    before = weights(model)["layer1.0.conv2.weight"]
    state = state_of(model.train(), lr_table=torch.zeros(100))  # only the hook moves anything
    hook = GrowthHook(units_of(model).without(kept), Growth(steps=1))
    for number in range(2):
        take(state, *batch(seed=number), after=[hook])
    moved = weights(model)["layer1.0.conv2.weight"] != before
    wanted = torch.zeros_like(moved)
    wanted[:, 1] = wanted[2] = True
    assert torch.equal(moved, wanted)


def test_the_rewind_point_keeps_the_running_statistics() -> None:
    model = convolutional("cnn")
    point, before = RewindPoint.of(model), {key: tensor.clone() for key, tensor in model.state_dict().items()}
    state = state_of(model.train(), lr=0.1)
    take(state, *batch())
    assert not torch.equal(model.state_dict()["stages.0.bn1.running_mean"], before["stages.0.bn1.running_mean"])
    point.restore(model)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


# --- a model like any other -------------------------------------------------------------------------------------------


def convolution_macs(model: VisionModel) -> int:
    """Counted by hand from what each convolution is given."""
    total = 0

    def count(module: Any, given: Any, said: Tensor) -> None:
        nonlocal total
        total += said[0].numel() * module.weight[0].numel()

    hooks = [one.register_forward_hook(count) for one in model.modules() if isinstance(one, torch.nn.Conv2d)]
    model(pictures(1))
    for hook in hooks:
        hook.remove()
    return total


@pytest.mark.parametrize("name", CONFIGS)
def test_costs_follow_the_widths(name: str) -> None:
    model = convolutional(name)
    units = some_kept(model)
    small = shrink(model, units)
    for (filters, _, reader), left in zip(ROADS[name], units.counts("channels"), strict=True):
        assert small.get_parameter(f"{filters}.weight").shape[0] == left
        assert small.get_parameter(f"{reader}.weight").shape[1] == left
    lost = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in small.parameters())
    gone = sum(int((~mask).sum()) for mask in by_units(model, units).values())
    assert lost == gone, "each entry of a removed channel, once"
    account = Account(small.config)
    assert account.parameters == sum(p.numel() for p in small.parameters())
    assert account.macs == convolution_macs(small) + small.num_features * 4


@pytest.mark.parametrize("name", ["bottleneck", "cnn"])
def test_it_saves_loads_and_exports(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnxruntime")
    from vitscope.infer.export.export import export_model

    model = convolutional(name)
    small = shrink(model, some_kept(model))
    vitscope.save_model(small, tmp_path / "small")
    loaded: Any = vitscope.load_model(tmp_path / "small")
    assert loaded.config == small.config
    assert torch.equal(loaded.eval()(pictures()), small(pictures()))
    export_model(small, tmp_path / "small.onnx")  # compares, and refuses what is off


def test_it_trains_masked_and_small_in_the_ordinary_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    model = convolutional("basic")
    units = some_kept(model)
    hook = MaskHook(by_units(model, units))
    config = tiny(CONFIGS["basic"], loop={"ema_decay": 0.9})
    run = fit(config, out=tmp_path / "run", quiet=True, after_step=[hook], between_steps=[hook])
    trained: Any = vitscope.load_model(run.model_folder).eval()
    for group, flags in enumerate(units.of("channels")):
        for unit, kept in enumerate(flags):
            parts = entries("basic", trained.state_dict(), group, unit)
            assert kept or all(bool((part == 0).all()) for part in parts)
    small = shrink(trained, units)
    torch.testing.assert_close(small(pictures()), trained(pictures()), atol=1e-5, rtol=0)
    vitscope.save_model(small, tmp_path / "small")
    again = tiny(small.config, checkpoint=CheckpointConfig(init_from=str(tmp_path / "small")), optim={"lr": 1e-12})
    went_on: Any = vitscope.load_model(fit(again, out=tmp_path / "again", quiet=True).model_folder)
    assert went_on.config == small.config


def test_timm_has_no_such_resnet() -> None:
    settings: dict[str, Any] = {"img_size": 32, "depths": (1, 1, 1, 1), "num_classes": 3}
    plain = ResNetConfig(**settings)
    assert plain.block_widths == (64, 128, 256, 512)
    assert spelled(ResNetConfig(**settings, inner_widths=(64, 128, 256, 512))) == spelled(plain)
    with pytest.raises(ConfigError, match="timm has no model with channels inside the blocks"):
        spelled(ResNetConfig(**settings, inner_widths=(64, 100, 256, 512)))


def test_widths_are_checked() -> None:
    with pytest.raises(ConfigError, match="inner_widths: expected 8 numbers, one for each inner convolution"):
        ResNetConfig(depths=(2, 2), block="bottleneck", inner_widths=(8,) * 4)
    with pytest.raises(ConfigError, match="inner_widths: expected positive integers"):
        CNNConfig(widths=(8, 8), inner_widths=(8, 0))
