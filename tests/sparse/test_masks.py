"""Masks: exact counts by magnitude, and weights that are exactly 0 after every step of the engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sparse.sparse_models import some_kept, vit
from train.test_step import NoLooking
from train.tiny_runs import batch, differing, network, state_of, take, tiny, weights
from vitscope.core.errors import InputError
from vitscope.sparse.mask_hook import MaskHook
from vitscope.sparse.masks import all_kept, apply_masks, by_magnitude, by_units, density, prunable
from vitscope.train import finish
from vitscope.train.ema import Ema
from vitscope.train.fit import fit
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState


def masked_part(tensors: dict[str, Tensor], masks: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensors[name][~mask] for name, mask in masks.items()])


def test_only_the_four_layers_of_the_blocks_are_prunable() -> None:
    model = vit()
    names = prunable(model)
    assert len(names) == 8
    assert all(name.startswith("blocks.") and name.endswith(".weight") for name in names)
    assert prunable(model, patch_embed=True) == ["patch_embed.proj.weight", *names]


def test_the_density_falls_by_the_schedule_and_the_smallest_go() -> None:
    model = vit()
    masks = all_kept(model)
    total = sum(mask.numel() for mask in masks.values())
    left = total
    for wanted in (0.8, 0.64, 0.512, 0.4096, 0.32768):
        before, masks = masks, by_magnitude(model, masks, 0.2)
        left -= math.floor(left * 0.2 + 1e-9)
        assert sum(int(mask.sum()) for mask in masks.values()) == left
        assert density(masks) == pytest.approx(wanted, abs=2 / total * 5)
        assert all(bool((mask <= before[name]).all()) for name, mask in masks.items()), "gone is gone"
        state = model.state_dict()
        largest = max(
            float(state[n][before[n] & ~m].abs().max()) for n, m in masks.items() if bool((before[n] & ~m).any())
        )
        smallest = min(float(state[name][mask].abs().min()) for name, mask in masks.items())
        assert largest < smallest


def test_equal_weights_go_in_their_order_and_not_one_more() -> None:
    model = vit()
    with torch.no_grad():
        for name in prunable(model):
            model.get_parameter(name).fill_(0.5)
    masks = by_magnitude(model, all_kept(model), 0.5)
    assert density(masks) == 0.5
    assert density({n: m for n, m in masks.items() if n.startswith("blocks.0")}) == 0
    again = by_magnitude(model, all_kept(model), 0.5)
    assert differing(masks, again) == set()
    assert differing(by_magnitude(model, masks, 0.0), masks) == set()


def test_masks_of_units_hold_their_biases_too() -> None:
    model = vit()
    units = some_kept(model)
    masks = by_units(model, units)
    assert set(masks) > {"blocks.0.attn.qkv.bias", "blocks.1.mlp.fc1.bias"}
    assert not any(name.endswith(("proj.bias", "fc2.bias")) for name in masks)
    relative = vit(position="relative")
    assert by_units(relative, units).keys() == masks.keys(), "a head's relative positions are cut with it, never masked"
    apply_masks(model, masks)
    bias = model.state_dict()["blocks.0.mlp.fc1.bias"]
    assert ((bias != 0) == torch.tensor(units.of("neurons")[0])).all()


def test_masks_of_another_model_are_refused() -> None:
    with pytest.raises(InputError, match=r"mask of blocks\.0\.attn\.qkv\.weight: expected yes or no of shape"):
        apply_masks(vit(embed_dim=48), all_kept(vit()))
    state = state_of(network())
    with pytest.raises(InputError, match="no parameter of the model fits"):
        take(state, *batch(), after=[MaskHook(all_kept(vit()))])


@pytest.mark.parametrize("optim", ["sgd", "adamw", "muon"])
def test_masked_weights_are_0_after_every_step_and_others_move(optim: str) -> None:
    model = network()
    masks = by_magnitude(model, all_kept(model), 0.5)
    apply_masks(model, masks)
    start = weights(model)
    state, ema = state_of(model, lr=0.01, optim={"name": optim, "weight_decay": 0.1}), Ema(model, 0.9)
    hook = MaskHook(masks)
    for number in range(3):
        take(state, *batch(seed=number), after=[hook, ema])
        assert float(masked_part(weights(model), masks).abs().max()) == 0
        assert float(masked_part(ema.state_dict(), masks).abs().max()) == 0, "the running mean too"
    assert differing(weights(model), start) == set(start)


def test_masking_moves_no_other_weight() -> None:
    moved = []
    for hooks in ([], [MaskHook(all_kept(network()))]):
        model = network()
        state = state_of(model)
        for number in range(2):
            take(state, *batch(seed=number), after=hooks)
        moved.append(weights(model))
    assert differing(*moved) == set()


def test_a_skipped_step_leaves_the_masked_weights_as_they_are() -> None:
    model = network()
    masks = by_magnitude(model, all_kept(model), 0.5)
    apply_masks(model, masks)
    before = weights(model)
    state = state_of(model)
    images, labels = batch()
    take(state, images * math.inf, labels, after=[MaskHook(masks)])
    assert float(state.skipped) == 1
    assert differing(weights(model), before) == set()


def test_the_hook_works_in_place_and_the_host_never_looks() -> None:
    """What a captured step may do. The first call lays everything out: that is in the warm-up."""
    model = network()
    hook, state = MaskHook(all_kept(model)), state_of(model)
    take(state, *batch(), after=[hook])
    places = [parameter.data_ptr() for parameter in model.parameters()]
    factors = [factor.data_ptr() for factor in hook._factors]
    with NoLooking():
        hook(state)
    hook.load_state_dict(by_magnitude(model, all_kept(model), 0.5))
    hook(state)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    assert [factor.data_ptr() for factor in hook._factors] == factors
    assert float(masked_part(weights(model), hook.masks).abs().max()) == 0, "loaded masks count at once"
    with pytest.raises(InputError, match="masks the run began with"):
        hook.load_state_dict({})


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_run_masks_what_it_begins_with_and_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ema: float | None
) -> None:
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    config = tiny(loop={"epochs": 4, "ema_decay": ema}, optim={"lr": 1e-2})
    masks = by_magnitude(network(), all_kept(network()), 0.5)

    def run(out: Path, **more: Any) -> Any:
        hook = MaskHook(masks)
        extra = more.pop("extra", [])
        return fit(config, out=out, quiet=True, after_step=[hook, *extra], between_steps=[hook], **more)

    stop = StopFlag()

    def enough(state: TrainState) -> None:
        if int(state.updates) == 2:
            stop.raise_flag()

    run(tmp_path / "whole")
    assert run(tmp_path / "halves", extra=[enough], stop=stop).state == "stopped"
    run(tmp_path / "halves", resume=True)
    found = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "halves")]
    assert differing(*found) == set()
    assert float(masked_part(found[0], masks).abs().max()) == 0
    assert all(bool((found[0][name] != 0).any()) for name in masks)
