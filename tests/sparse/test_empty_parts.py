"""Blocks that have lost all heads, or all neurons: what is left is a bias, and it is all the masked network says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

import vitscope
from sparse.sparse_models import KINDS_OF_VIT, batches, pictures, vit
from train.tiny_runs import batch, state_of, take
from vitscope.core.errors import ConfigError, InputError
from vitscope.infer.explain.explain import explain
from vitscope.infer.explain.rollout import Rollout
from vitscope.infer.predictor import Predictor
from vitscope.models.accounting.account import Account, count_parameters
from vitscope.models.config import ViTConfig
from vitscope.models.trace import trace_shapes
from vitscope.models.vit import ViT
from vitscope.sparse.choose import choose, gone_after
from vitscope.sparse.criteria import CRITERIA, criterion
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.sparse.layout import groups_of
from vitscope.sparse.mask_hook import MaskHook
from vitscope.sparse.masks import all_kept, apply_masks, by_magnitude, by_units
from vitscope.sparse.refill import gone_by_masks
from vitscope.sparse.surgery import cut_tensors, shrink, slice_optimizer_state
from vitscope.sparse.units import Units, units_of

EMPTIED = {
    "attention": ((0,), ()),
    "mlp": ((), (1,)),
    "one of each": ((1,), (0,)),
    "a whole block": ((0,), (0,)),
    "everything": ((0, 1), (0, 1)),
}
"""Blocks that lose their heads, and their neurons."""
NO_HEADS: dict[str, Any] = {"num_heads": (3, 0), "head_dim": 8}


def emptied(model: ViT, which: str) -> Units:
    whole = units_of(model)
    units = whole
    for kind, blocks in zip(("heads", "neurons"), EMPTIED[which], strict=True):
        flags = [
            [block not in blocks and unit != 1 for unit in range(count)]
            for block, count in enumerate(whole.totals(kind))
        ]
        units = units.with_kept(kind, flags)
    return units


@pytest.mark.parametrize("which", EMPTIED)
@pytest.mark.parametrize("kind", KINDS_OF_VIT)
def test_masked_and_small_say_the_same(kind: str, which: str) -> None:
    model = vit(**KINDS_OF_VIT[kind])
    units = emptied(model, which)
    small = shrink(model, units)
    apply_masks(model, by_units(model, units))
    for training in (False, True):
        said, wanted = (one.train(training)(pictures()) for one in (small, model))
        torch.testing.assert_close(said, wanted, atol=1e-5, rtol=0)
    assert (small.config.block_heads, small.config.block_mlp_dims) == (units.counts("heads"), units.counts("neurons"))
    assert all(tensor.numel() for tensor in small.state_dict().values())


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    spread = (x.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()
    return (x - x.mean(-1, keepdim=True)) / spread * scale + shift


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_an_empty_block_by_hand(norm_order: str) -> None:
    model = vit(layer_scale=0.3, norm_order=norm_order, mlp_dim=(20, 0), **NO_HEADS)
    own, x = dict(model.blocks[1].named_parameters()), torch.randn(2, 5, 24)
    wanted = x
    for number, bias in ((1, own["attn.proj.bias"]), (2, own["mlp.fc2.bias"])):
        wanted = wanted + bias * own[f"ls{number}.gamma"]
        if norm_order == "post":
            wanted = layer_norm(wanted, own[f"norm{number}.weight"], own[f"norm{number}.bias"])
    torch.testing.assert_close(model.blocks[1](x), wanted)
    norms = {f"norm{n}.{leaf}" for n in (1, 2) for leaf in ("weight", "bias")} if norm_order == "post" else set()
    assert set(own) == {"attn.proj.bias", "mlp.fc2.bias", "ls1.gamma", "ls2.gamma"} | norms, "and no other weights"


def test_dropout_acts_on_the_bias_as_it_did() -> None:
    model = vit(drop_rate=0.5, mlp_dim=(20, 0), **NO_HEADS).train()
    x = torch.zeros(1, 2000, 24)
    for part, bias in (("attn", "attn.proj.bias"), ("mlp", "mlp.fc2.bias")):
        said, bias = model.blocks[1].get_submodule(part)(x)[0], model.blocks[1].get_parameter(bias)
        kept = said != 0
        torch.testing.assert_close(said[kept], (2 * bias).expand_as(said)[kept])
        assert kept.float().mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_costs_are_the_formula_s(norm_order: str) -> None:
    config = ViTConfig(img_size=16, patch_size=4, embed_dim=24, depth=3, num_classes=4, norm_order=norm_order,
                       num_heads=(3, 0, 2), head_dim=8, mlp_dim=(0, 20, 0))  # fmt: skip
    d, dh, t = 24, 8, 17
    macs, parameters = 16 * 3 * 16 * d + d * 4, 0
    for h, m in ((3, 0), (0, 20), (2, 0)):
        macs += 4 * t * d * dh * h + 2 * t**2 * dh * h + 2 * t * d * m
        parameters += 4 * d + 4 * d * dh * h + 3 * dh * h + d + 2 * d * m + m + d
        # A norm before a part that reads nothing is not there; the formula counts two a block.
        parameters -= 2 * d * ((h == 0) + (m == 0)) if norm_order == "pre" else 0
    account = Account(config)
    assert account.macs == macs
    assert sum(parameter.numel() for parameter in account.network.blocks.parameters()) == parameters
    assert sum(part.parameters for part in account.parts) == account.parameters == count_parameters(config)
    assert account.memory.total > 0


def test_the_road_says_where_nothing_is_left() -> None:
    stages = {stage.name: stage for stage in trace_shapes(vit(mlp_dim=(20, 0), **NO_HEADS).config)}
    assert stages["blocks.1.attn"].about == "no heads are left"
    assert stages["blocks.1.mlp"].about == "no neurons are left"
    assert stages["blocks.1.attn.proj"].about.startswith("a bias alone")
    assert stages["blocks.0.attn.proj"].about == "heads put together again"
    assert not {"blocks.1.norm1", "blocks.1.norm2", "blocks.1.attn.qkv", "blocks.1.mlp.fc1"} & set(stages)


# --- a model like any other -------------------------------------------------------------------------------------------


def test_it_saves_and_loads(tmp_path: Path) -> None:
    model = vit(in_chans=3, num_registers=1)
    small = shrink(model, emptied(model, "one of each"))
    vitscope.save_model(small, tmp_path / "small")
    loaded: Any = vitscope.load_model(tmp_path / "small")
    assert loaded.config == small.config
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(loaded.eval()(images), small(images))


@pytest.mark.parametrize("name", ["small.onnx", "small.pt2"])
def test_it_exports(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnxruntime")
    from vitscope.infer.export.export import export_model

    model = vit(in_chans=3)
    export_model(shrink(model, emptied(model, "a whole block")), tmp_path / name)  # compares, and refuses what is off
    assert (tmp_path / name).stat().st_size > 0


def test_other_libraries_have_no_such_model(tmp_path: Path) -> None:
    for which, words in (("attention", "heads"), ("mlp", "neurons"), ("everything", "heads")):
        model = vit(in_chans=3)
        vitscope.save_model(shrink(model, emptied(model, which)), tmp_path / which)
        with pytest.raises(ConfigError, match=rf"timm has no model with .*no {words}"):
            vitscope.convert(tmp_path / which, tmp_path / "out", to="timm")
        with pytest.raises(ConfigError, match=rf"cannot hold this model: .*lost all their {words}"):
            vitscope.convert(tmp_path / which, tmp_path / "out", to="huggingface")


def test_maps_are_of_blocks_that_have_heads() -> None:
    model = vit(**NO_HEADS)
    assert list(model.attention_maps(pictures())) == [0]
    with pytest.raises(InputError, match="expected blocks whose attention has heads, received block 1, without"):
        model.attention_maps(pictures(), [0, -1])
    with pytest.raises(InputError, match="none of whose blocks has any"):
        vit(num_heads=(0, 0), head_dim=8).attention_maps(pictures())


def test_explaining_goes_past_a_block_without_heads(tmp_path: Path) -> None:
    model = vit(in_chans=3, depth=3, num_heads=(3, 0, 2), head_dim=8)
    asked, picture = Predictor(model, device="cpu"), Image.new("RGB", (8, 8), (200, 90, 30))
    maps = asked.attention(picture)
    assert {layer: len(weights) for layer, weights in maps.layers.items()} == {0: 3, 2: 2}
    with pytest.raises(InputError, match="block 1, without"):
        explain(asked, picture, layer=1)
    rollout = Rollout(model.config.num_tokens)
    for weights in maps.layers.values():
        rollout.through(weights)
    found = explain(asked, picture, "rollout", draws=None)
    torch.testing.assert_close(torch.from_numpy(found.map), rollout.reached[0, 1:].view(2, 2), atol=1e-6, rtol=1e-5)
    assert explain(asked, picture, "gradient_rollout", draws=None).map.shape == (2, 2)
    assert found.save_sheet(tmp_path / "sheet.png").stat().st_size > 0
    without = Predictor(vit(in_chans=3, num_heads=(0, 0), head_dim=8), device="cpu")
    with pytest.raises(InputError, match="none of whose blocks has any"):
        explain(without, picture, "rollout")


# --- training on, and once more ---------------------------------------------------------------------------------------


def test_training_goes_on_as_if_the_large_one_were_masked() -> None:
    model = vit()
    units = emptied(model, "one of each")
    apply_masks(model, by_units(model, units))
    settings: dict[str, Any] = {"lr": 1e-3, "optim": {"name": "adamw", "weight_decay": 0.0}}
    large, hook = state_of(model.train(), **settings), MaskHook(by_units(model, units))
    for number in range(3):
        take(large, *batch(seed=number), after=[hook])
    small = state_of(shrink(model, units), **settings)
    small.optimizer.load_state_dict(slice_optimizer_state(model, large.optimizer.state_dict(), units))
    for number in range(3, 6):
        told = [take(one, *batch(seed=number), after=hooks) for one, hooks in ((large, [hook]), (small, []))]
        assert told[1]["train/loss"] == pytest.approx(told[0]["train/loss"], abs=1e-5)
    wanted = cut_tensors(model, model.state_dict(), units)
    assert set(wanted) == set(small.model.state_dict())
    for name, tensor in small.model.state_dict().items():
        if not name.endswith("qkv.bias"):  # softmax does not feel the keys' biases
            torch.testing.assert_close(tensor, wanted[name], atol=1e-5, rtol=0)


def test_every_number_that_is_left_learns() -> None:
    model = vit(mlp_dim=(20, 0), qk_norm=True, **NO_HEADS).train()
    model(pictures()).square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_what_is_empty_can_be_scored_and_cut_again() -> None:
    model = vit(depth=3, num_heads=(3, 0, 2), head_dim=8, mlp_dim=(0, 20, 12))
    masks, whole = by_magnitude(model, all_kept(model), 0.5), units_of(model)
    assert whole.totals("heads") == (3, 0, 2)
    assert sorted(masks) == sorted(
        [f"blocks.{b}.attn.{layer}.weight" for b in (0, 2) for layer in ("qkv", "proj")]
        + [f"blocks.{b}.mlp.{layer}.weight" for b in (1, 2) for layer in ("fc1", "fc2")]
    )
    gone = gone_by_masks(groups_of(model), masks)
    assert gone["heads"][1] == gone["neurons"][0] == 0  # type: ignore[index]
    for name in CRITERIA:
        scores = criterion(name)(Evidence(model=model, batches=batches(), masks=masks))
        assert [len(row) for row in scores["heads"]] == [3, 0, 2]
        chosen = choose(whole, scores, gone_after(whole, rate=0.5, rounds=1), allow_empty=True)
        assert (chosen.removed("heads"), chosen.removed("neurons")) == (2, 16)
        small = shrink(model, chosen)
        masked = vit(depth=3, num_heads=(3, 0, 2), head_dim=8, mlp_dim=(0, 20, 12))
        apply_masks(masked, by_units(masked, chosen))
        torch.testing.assert_close(small(pictures()), masked(pictures()), atol=1e-5, rtol=0)
    none = units_of(vit(num_heads=(0, 0), head_dim=8))
    assert (none.share_removed("heads"), none.counts("heads")) == (0, (0, 0))


def test_all_heads_at_once_are_a_slip_of_the_finger() -> None:
    for name in ("num_heads", "mlp_dim"):
        with pytest.raises(ConfigError, match=f"{name}: expected positive .*, received 0") as refused:
            ViTConfig(**{name: 0})
        assert "0s in a list" in str(refused.value.fix)
    with pytest.raises(ConfigError, match="head_dim: expected a number, as 0 heads say none"):
        ViTConfig(depth=2, num_heads=(0, 0))
    with pytest.raises(ConfigError, match="positive numbers, or 0 for a bias alone"):
        ViTConfig(depth=2, num_heads=(3, -1), head_dim=8)
