"""Criteria: each against a plain recomputation that knows nothing of views and groups."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from sparse.sparse_models import batches, pictures, vit
from vitscope.core.errors import UsageError
from vitscope.models.vit import ViT
from vitscope.sparse.choose import choose
from vitscope.sparse.criteria import CRITERIA, criterion
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.sparse.masks import all_kept, apply_masks, by_magnitude, by_units
from vitscope.sparse.units import units_of

VARIANTS = {
    "plain": {},
    "swiglu": {"mlp": "swiglu", "qkv_bias": False},
    "qk_norm": {"qk_norm": True, "num_heads": (3, 2), "head_dim": 8},
}


def entries(model: ViT, tensors: dict[str, Tensor], kind: str, block: int, unit: int) -> list[Tensor]:
    """All entries of one unit, by slices written out."""
    at = f"blocks.{block}."
    if kind == "heads":
        heads = model.config.block_heads[block]
        found = []
        for part in range(3):
            rows = slice((part * heads + unit) * 8, (part * heads + unit) * 8 + 8)
            found += [
                tensors[at + f"attn.qkv.{n}"][rows] for n in ("weight", "bias") if at + f"attn.qkv.{n}" in tensors
            ]
        return [*found, tensors[at + "attn.proj.weight"][:, unit * 8 : unit * 8 + 8]]
    neurons = model.config.block_mlp_dims[block]
    rows = [unit, neurons + unit] if model.config.mlp == "swiglu" else [unit]
    fc1 = [tensors[at + f"mlp.fc1.{name}"][row] for name in ("weight", "bias") for row in rows]
    return [*fc1, tensors[at + "mlp.fc2.weight"][:, unit]]


def each_unit(model: ViT) -> list[tuple[str, int, int]]:
    units = units_of(model)
    return [
        (kind, block, unit)
        for kind in ("heads", "neurons")
        for block, count in enumerate(units.totals(kind))
        for unit in range(count)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_magnitude_is_the_sum_of_all_entries(variant: str) -> None:
    model = vit(**VARIANTS[variant])
    scores = criterion("magnitude")(Evidence(model=model))
    for kind, block, unit in each_unit(model):
        wanted = sum(part.abs().sum() for part in entries(model, model.state_dict(), kind, block, unit))
        assert float(scores[kind][block][unit]) == pytest.approx(float(wanted), rel=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_remain_counts_what_the_mask_has_left(variant: str) -> None:
    model = vit(**VARIANTS[variant])
    masks = by_magnitude(model, all_kept(model), 0.6)
    scores = criterion("remain")(Evidence(model=model, masks=masks))
    none = {name: torch.zeros_like(tensor, dtype=torch.bool) for name, tensor in model.state_dict().items()}
    for kind, block, unit in each_unit(model):
        wanted = sum(int(part.sum()) for part in entries(model, none | masks, kind, block, unit))
        assert int(scores[kind][block][unit]) == wanted
    with pytest.raises(UsageError, match="needs an unstructured mask"):
        criterion("remain")(Evidence(model=model))


@pytest.mark.parametrize("variant", VARIANTS)
def test_saliency_is_the_squared_slope_of_a_gate_on_the_unit(variant: str) -> None:
    model = vit(**VARIANTS[variant]).train()
    given = batches()
    scores = criterion("saliency")(Evidence(model=model, batches=given))
    assert model.training, "the mode is given back"
    assert all(parameter.grad is None for parameter in model.parameters())
    model.eval()
    for kind, block, unit in each_unit(model)[::5]:
        own = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
        for part in entries(model, own, kind, block, unit):
            part.fill_(1)
        total = 0.0
        for images, labels in given:
            gate = torch.ones((), requires_grad=True)
            gated = {name: w * (1 + own[name] * (gate - 1)) for name, w in model.state_dict().items()}
            loss = F.cross_entropy(functional_call(model, gated, (images,)), labels)
            total += float(torch.autograd.grad(loss, gate)[0]) ** 2
        assert float(scores[kind][block][unit]) == pytest.approx(total / len(given), rel=1e-3, abs=1e-12)


def test_a_unit_without_saliency_can_go_and_nothing_changes() -> None:
    model = vit()
    with torch.no_grad():
        model.get_parameter("blocks.0.attn.proj.weight")[:, 8:16] = 0  # head 1 says nothing
        model.get_parameter("blocks.1.mlp.fc2.weight")[:, 4] = 0
    scores = criterion("saliency")(Evidence(model=model, batches=batches()))
    assert float(scores["heads"][0][1]) == 0
    assert float(scores["neurons"][1][4]) == 0
    whole = units_of(model)
    chosen = choose(whole, scores, {"heads": 1, "neurons": 1})
    assert whole.without(chosen).counts("heads") == (1, 0)
    assert not chosen.of("neurons")[1][4]
    before = model(pictures())
    apply_masks(model, by_units(model, chosen))
    torch.testing.assert_close(model(pictures()), before)


@pytest.mark.parametrize("variant", VARIANTS)
def test_activations_are_those_that_proj_and_fc2_read(variant: str) -> None:
    model = vit(**VARIANTS[variant], drop_rate=0.3).train()
    given = batches(11, 4)
    found = {name: criterion(name)(Evidence(model=model, batches=given)) for name in ("l1", "l2")}
    assert not any(module._forward_pre_hooks for module in model.modules()), "nothing is left behind"
    model.eval()
    images = torch.cat([images for images, _ in given])
    tokens = model.place(model.patch_embed(images))
    for number, block in enumerate(model.blocks):
        x = block.norm1(tokens)
        _, _, v = block.attn._heads(block.attn.qkv(x), None)
        heads = (block.attn.weights(x) @ v).transpose(0, 1).flatten(1)  # (heads, all of it)
        tokens = tokens + block.attn(x)
        hidden = block.mlp.fc1(block.norm2(tokens))
        if model.config.mlp == "swiglu":
            gate, value = hidden.chunk(2, -1)
            neurons = F.silu(gate) * value
        else:
            neurons = F.gelu(hidden)
        neurons = neurons.flatten(0, 1).T
        tokens = tokens + block.mlp(block.norm2(tokens))
        for kind, said in (("heads", heads), ("neurons", neurons)):
            for name, wanted in (("l1", said.abs().mean(1)), ("l2", said.square().mean(1).sqrt())):
                torch.testing.assert_close(found[name][kind][number].float(), wanted, rtol=1e-4, atol=1e-6)


def test_lots_are_drawn_by_the_seed() -> None:
    model = vit()
    first, again, other = (criterion("random")(Evidence(model=model, seed=seed)) for seed in (0, 0, 1))
    for kind in ("heads", "neurons"):
        assert all(map(torch.equal, first[kind], again[kind]))
        assert not any(map(torch.equal, first[kind], other[kind]))
        assert not torch.equal(*first[kind]), "each block has its own"


def test_ten_batches_or_a_refusal() -> None:
    model = vit()
    for name in ("l1", "l2", "saliency"):
        with pytest.raises(UsageError, match="at least 10, received 9"):
            criterion(name)(Evidence(model=model, batches=batches(9)))
        with pytest.raises(UsageError, match="needs batches of pictures"):
            criterion(name)(Evidence(model=model))
    with pytest.raises(UsageError, match="did you mean 'saliency'"):
        criterion("salience")
    assert list(CRITERIA) == ["remain", "magnitude", "l1", "l2", "saliency", "random"]
