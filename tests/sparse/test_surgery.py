"""Surgery: the small network says what the masked one says, costs what the formula says, is a model like any other,
and trains on from where the large one was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vitscope
from sparse.sparse_models import KINDS_OF_VIT, pictures, some_kept, vit
from train.tiny_runs import batch, differing, state_of, take, tiny, weights
from vitscope.core.errors import InputError
from vitscope.models.accounting.account import Account
from vitscope.models.config import ViTConfig
from vitscope.models.vit import ViT
from vitscope.sparse.choose import choose
from vitscope.sparse.mask_hook import MaskHook
from vitscope.sparse.masks import apply_masks, by_units
from vitscope.sparse.surgery import cut_tensors, shrink, slice_optimizer_state
from vitscope.sparse.units import units_of
from vitscope.train import finish
from vitscope.train.config import CheckpointConfig
from vitscope.train.fit import fit
from vitscope.train.state import TrainState


@pytest.mark.parametrize("kind", KINDS_OF_VIT)
def test_masked_and_small_say_the_same(kind: str) -> None:
    model = vit(**KINDS_OF_VIT[kind])
    units, whole = some_kept(model), model(pictures()).detach()
    before = weights(model)
    small = shrink(model, units)
    assert differing(weights(model), before) == set(), "the large one stays as it is"
    apply_masks(model, by_units(model, units))
    masked = model(pictures()).detach()
    torch.testing.assert_close(small(pictures()), masked, atol=1e-5, rtol=0)
    assert float((masked - whole).abs().max()) > 1e-2, "else nothing of weight was removed"
    assert small.config.block_heads == units.counts("heads")
    assert small.config.block_mlp_dims == units.counts("neurons")
    assert small.config.dim_per_head == model.config.dim_per_head
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


def test_the_small_one_shares_nothing_and_takes_along_what_a_model_carries() -> None:
    model = vit(distilled=True).train()
    model.labels, model.distilled_training = ["a", "b", "c", "d"], True
    model.get_parameter("blocks.0.norm1.weight").requires_grad_(False)
    model.blocks[1].eval()
    small = shrink(model, some_kept(model))
    owned = {parameter.data_ptr() for parameter in model.parameters()}
    assert not any(parameter.data_ptr() in owned for parameter in small.parameters())
    assert not any(tensor.is_meta for tensor in (*small.parameters(), *small.buffers()))
    assert small.labels == model.labels
    assert small.labels is not model.labels
    assert small.distilled_training
    frozen = [name for name, parameter in small.named_parameters() if not parameter.requires_grad]
    assert frozen == ["blocks.0.norm1.weight"]
    assert [small.blocks[0].training, small.blocks[1].training] == [True, False]


def test_all_units_give_the_same_network_and_small_ones_shrink_again() -> None:
    model = vit()
    same = shrink(model, units_of(model))
    assert differing(weights(same), weights(model)) == set()
    outer = some_kept(model)
    inner = outer & outer.with_kept("neurons", some_kept(model, seed=8).of("neurons"))
    rows = zip(inner.of("neurons"), outer.of("neurons"), strict=True)
    inner = inner.with_kept("neurons", [some if any(some) else every for some, every in rows])
    twice = shrink(shrink(model, outer), outer.narrowed(inner))
    assert differing(weights(twice), weights(shrink(model, inner))) == set()


def test_blocks_that_stay_alike_need_no_list() -> None:
    model = vit()
    alike = choose(units_of(model), {"heads": [torch.rand(3), torch.rand(3)]}, {"heads": [1, 1]})
    assert (shrink(model, alike).config.num_heads, shrink(model, alike).config.head_dim) == (2, 8)


def test_units_of_another_network_are_refused() -> None:
    with pytest.raises(InputError, match="units are of another network"):
        shrink(vit(mlp_dim=24), units_of(vit()))


def formula(config: ViTConfig) -> tuple[int, int]:
    """Multiply-adds and parameters of the blocks as the specification has them, by hand."""
    d, dh, t, n = config.embed_dim, config.dim_per_head, config.num_tokens, config.num_patches
    assert isinstance(config.patch_size, int)
    macs = n * config.in_chans * config.patch_size**2 * d + d * config.num_classes
    parameters = 0
    for h, m in zip(config.block_heads, config.block_mlp_dims, strict=True):
        macs += 4 * t * d * dh * h + 2 * t**2 * dh * h + 2 * t * d * m
        parameters += 4 * d + 4 * d * dh * h + 3 * dh * h + d + 2 * d * m + m + d
    return macs, parameters


def test_costs_are_the_formula_s() -> None:
    model = vit(img_size=16)
    small = shrink(model, some_kept(model))
    macs, parameters = formula(small.config)
    assert Account(small.config).macs == macs
    assert sum(parameter.numel() for parameter in small.blocks.parameters()) == parameters
    assert macs < formula(model.config)[0]


def test_it_is_a_model_like_any_other(tmp_path: Path) -> None:
    model = vit(in_chans=3, position="relative")
    small = shrink(model, some_kept(model))
    vitscope.save_model(small, tmp_path / "small")
    loaded: Any = vitscope.load_model(tmp_path / "small")
    assert loaded.config == small.config
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(loaded.eval()(images), small(images))


def test_it_exports(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from vitscope.infer.export.export import export_model

    model = vit(in_chans=3, depth=2)
    small = shrink(model, some_kept(model))
    export_model(small, tmp_path / "small.onnx")
    images = torch.randn(2, 3, 8, 8)
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx", providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {"images": images.numpy()})[0])
    torch.testing.assert_close(found, small(images), atol=1e-4, rtol=1e-4)


def test_it_trains_on_in_the_ordinary_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    model = vit()
    small = shrink(model, some_kept(model))
    assert isinstance(small.config.mlp_dim, tuple)
    vitscope.save_model(small, tmp_path / "small")
    config = tiny(small.config, checkpoint=CheckpointConfig(init_from=str(tmp_path / "small")), optim={"lr": 1e-12})
    run = fit(config, out=tmp_path / "run", quiet=True)
    trained: Any = vitscope.load_model(run.model_folder)
    assert trained.config == small.config
    torch.testing.assert_close(trained.eval()(pictures()), small(pictures()))


# --- training on -----------------------------------------------------------------------------------------------------

NARROW = {"embed_dim": 48, "num_heads": 3, "head_dim": 4, "mlp_dim": 20}
"""48 is the longer side of every matrix, before and after: Muon's steps are then equally long."""


def started(model: ViT, optim: str, **settings: Any) -> TrainState:
    chosen = {"name": optim, "momentum": 0.9, "weight_decay": 0.0}
    return state_of(model.train(), lr=1e-3, optim=chosen, **settings)


@pytest.mark.parametrize("optim", ["adamw", "adam", "sgd", "muon"])
def test_training_goes_on_as_if_the_large_one_were_masked(optim: str) -> None:
    model = vit(**NARROW)
    units = some_kept(model)
    apply_masks(model, by_units(model, units))
    large, hook = started(model, optim, clip_norm=1.0), MaskHook(by_units(model, units))
    for number in range(3):
        take(large, *batch(seed=number), after=[hook])

    small = started(shrink(model, units), optim, clip_norm=1.0)
    small.optimizer.load_state_dict(slice_optimizer_state(model, large.optimizer.state_dict(), units))
    fresh = started(shrink(model, units), optim, clip_norm=1.0)
    for number in range(3, 6):
        told = [
            take(state, *batch(seed=number), after=hooks)
            for state, hooks in ((large, [hook]), (small, []), (fresh, []))
        ]
        assert told[1]["train/loss"] == pytest.approx(told[0]["train/loss"], abs=1e-5)
    wanted = cut_tensors(model, model.state_dict(), units)
    off = apart(small.model.state_dict(), wanted)
    assert off < 1e-5
    assert apart(fresh.model.state_dict(), wanted) > 10 * off, "else the optimiser's memory means nothing here"


def test_the_optimiser_s_memory_is_copied() -> None:
    model = vit()
    state = started(model, "adamw")
    take(state, *batch())
    kept = state.optimizer.state_dict()
    sliced = slice_optimizer_state(model, kept, units_of(model))
    assert {name: set(tensors) for name, tensors in sliced.items()} == {n: set(t) for n, t in kept.items()}
    for name, tensors in kept.items():
        for key, tensor in tensors.items():
            assert torch.equal(sliced[name][key], tensor)
            assert sliced[name][key].data_ptr() != tensor.data_ptr()


def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """But for the biases of the keys: softmax does not feel them, so their gradient is only rounding, which Adam makes
    as large as any other."""

    def felt(name: str, tensor: Tensor) -> Tensor:
        return tensor.view(3, -1)[[0, 2]] if name.endswith("qkv.bias") else tensor

    return max(float((felt(name, first[name]) - felt(name, second[name])).abs().max()) for name in second)
