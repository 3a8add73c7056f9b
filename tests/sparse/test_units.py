"""Units: where they lie, how many are gone, and that a removed one stays removed."""

from __future__ import annotations

import json
import math

import pytest
import torch

from sparse.sparse_models import KINDS_OF_VIT, some_kept, vit
from vitscope.core.errors import ConfigError, InputError, UsageError
from vitscope.models.build import build_model
from vitscope.models.config import LSTMConfig, MAEConfig, SwinConfig
from vitscope.sparse.layout import groups_of
from vitscope.sparse.units import Units, removed_after, units_of

SOME = Units({"heads": ((True, False, True), (False, True, True)), "neurons": ((True, True), (True, False))})


def test_heads_lie_in_the_rows_of_q_k_v_and_the_columns_of_proj() -> None:
    model = vit()
    heads = groups_of(model)[0]
    tensors = model.state_dict()
    rows = torch.cat([torch.arange(8) + start for start in (8, 24 + 8, 48 + 8)])  # head 1 of 3, each 8 wide
    qkv, bias, proj = heads.pieces
    weight = tensors["blocks.0.attn.qkv.weight"]
    assert torch.equal(qkv.by_unit(weight)[1], weight[rows].flatten())
    assert torch.equal(bias.by_unit(tensors["blocks.0.attn.qkv.bias"])[1], tensors["blocks.0.attn.qkv.bias"][rows])
    out = tensors["blocks.0.attn.proj.weight"]
    assert torch.equal(proj.by_unit(out)[1].sort().values, out[:, 8:16].flatten().sort().values)
    assert [piece.name for piece in heads.pieces] == [
        f"blocks.0.attn.{n}" for n in ("qkv.weight", "qkv.bias", "proj.weight")
    ]


def test_a_gated_neuron_has_two_rows() -> None:
    model = vit(mlp="swiglu")
    neurons = groups_of(model)[1]
    weight = model.state_dict()["blocks.0.mlp.fc1.weight"]
    assert torch.equal(neurons.pieces[0].by_unit(weight)[7], weight[[7, 27]].flatten())


@pytest.mark.parametrize("kind", KINDS_OF_VIT)
def test_every_entry_of_a_prunable_tensor_is_one_unit_s(kind: str) -> None:
    model = vit(**KINDS_OF_VIT[kind])
    tensors = model.state_dict()
    for group in groups_of(model):
        for piece in group.pieces:
            tensor = tensors[piece.name]
            numbers = torch.arange(tensor.numel()).view(tensor.shape)
            assert sorted(piece.by_unit(numbers).flatten().tolist()) == list(range(tensor.numel())), piece.name
            kept = torch.arange(group.count) % 2 == 0
            assert torch.equal(piece.spread(kept, tensor.shape).sum(), kept.sum() * (tensor.numel() // group.count))
            shared = piece.cut(numbers, kept).flatten().sort().values
            assert torch.equal(shared, piece.by_unit(numbers)[kept].flatten().sort().values)


def test_networks_without_units_are_refused_in_words() -> None:
    swin = SwinConfig(img_size=32, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4, num_classes=3)
    masked = MAEConfig(encoder=vit(num_classes=0).config, decoder_embed_dim=8, decoder_depth=1, decoder_num_heads=1)
    for config in (LSTMConfig(img_size=8, embed_dim=4), masked, swin):
        with pytest.raises(UsageError, match=rf"expected a ViT .* received a model of the family '{config.family}'"):
            units_of(build_model(config))


def test_counts_and_shares() -> None:
    assert (SOME.counts("heads"), SOME.totals("heads"), SOME.removed("heads")) == ((2, 2), (3, 3), 2)
    assert SOME.share_removed("heads") == pytest.approx(1 / 3)
    assert SOME.share_removed("neurons") == 0.25
    whole = units_of(vit(num_heads=(3, 2), head_dim=8))
    assert whole.totals("heads") == (3, 2)
    assert whole.share_removed("heads") == 0


def test_union_intersection_and_what_goes() -> None:
    other = Units({"heads": ((True, True, False), (False, False, True)), "neurons": ((False, True), (True, True))})
    both, any_of = SOME & other, SOME | other
    assert both.of("heads") == ((True, False, False), (False, False, True))
    assert any_of.of("heads") == ((True, True, True), (False, True, True))
    assert SOME.without(both).of("heads") == ((False, False, True), (False, True, False))
    assert both.is_within(SOME)
    assert not SOME.is_within(both)
    with pytest.raises(InputError, match="units of one network"):
        _ = SOME & units_of(vit())


def test_a_removed_unit_stays_removed() -> None:
    SOME.require_within(SOME)
    with pytest.raises(InputError, match=r"head 1 of block 0 is back and 2 more"):
        (SOME | SOME.with_kept("heads", [[1, 1, 1], [1, 1, 1]]).with_kept("neurons", [[1, 1], [1, 1]])).require_within(
            SOME
        )


def test_units_of_the_small_network_and_back() -> None:
    model = vit()
    outer = some_kept(model)
    inner = outer & some_kept(model, seed=9)
    assert outer.refined(outer.narrowed(inner)) == inner
    assert outer.narrowed(inner).totals("neurons") == outer.counts("neurons")
    assert outer.narrowed(inner).counts("neurons") == inner.counts("neurons")
    with pytest.raises(InputError, match="units of block 0: expected"):
        outer.refined(units_of(model))


def test_units_are_plain_data_and_can_be_keys() -> None:
    written = json.dumps(SOME.to_json())
    assert Units.from_json(json.loads(written)) == SOME
    assert {SOME: 1}[Units.from_json(json.loads(written))] == 1
    assert SOME.to_json()["heads"] == ["101", "011"]
    with pytest.raises(InputError, match="texts of 0 and 1"):
        Units.from_json({"heads": ["102"], "neurons": ["1"]})


def test_the_schedule_counts_from_the_original() -> None:
    assert [removed_after(3, 0.2, k) for k in range(1, 6)] == [0, 1, 1, 1, 2]
    assert [removed_after(10, 0.5, k) for k in range(5)] == [0, 5, 7, 8, 9]
    assert removed_after(7, 1.0, 1) == 7
    with pytest.raises(ConfigError, match="a share from 0 to 1"):
        removed_after(3, 1.2, 1)


def test_rounding_takes_no_unit_less() -> None:
    # 10 * (1 - (1 - 0.3)) is 3 on paper and 3.0000000000000004 or 2.9999999999999996 in floats.
    assert [removed_after(count, 0.3, 1) for count in (10, 20, 30, 100, 1000)] == [3, 6, 9, 30, 300]
    assert all(removed_after(1000, rate / 1000, 1) == rate for rate in range(1001))
    assert any(math.floor(1000 * (1 - (1 - rate / 1000))) != rate for rate in range(1001)), "floats would do"
