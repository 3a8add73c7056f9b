"""Channels of ResNets and CNNs: where they lie, what they are worth, and that masked is shrunk, in training too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from sparse.convolutions import CONFIGS, ROADS, convolutional, entries
from sparse.sparse_models import batches, pictures, some_kept
from train.tiny_runs import differing, weights
from vitscope.core.errors import UsageError
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig
from vitscope.models.model import VisionModel
from vitscope.sparse.choose import choose, gone_after
from vitscope.sparse.criteria import CRITERIA, criterion
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.sparse.layout import groups_of
from vitscope.sparse.masks import all_kept, apply_masks, by_magnitude, by_units, density, prunable
from vitscope.sparse.refill import gone_by_masks
from vitscope.sparse.surgery import cut_tensors, shrink
from vitscope.sparse.units import Units, units_of


def each_unit(name: str, model: VisionModel) -> list[tuple[int, int]]:
    totals = units_of(model).totals("channels")
    assert len(totals) == len(ROADS[name])
    return [(group, unit) for group, count in enumerate(totals) for unit in range(count)]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_channel_is_a_filter_its_norm_and_what_is_read_of_it(name: str) -> None:
    model = convolutional(name)
    tensors = model.state_dict()
    for number, (group, (filters, norm, reader)) in enumerate(zip(groups_of(model), ROADS[name], strict=True)):
        assert (group.kind, group.block, group.count) == ("channels", number, len(tensors[f"{norm}.bias"]))
        owned = [f"{filters}.weight", f"{norm}.weight", f"{norm}.bias", f"{reader}.weight"]
        assert [piece.name for piece in group.own] == owned
        gone = [piece.name for piece in group.pieces if not piece.is_own]
        assert gone == [f"{norm}.running_mean", f"{norm}.running_var"]
    assert units_of(model).kinds == ("channels",)


def test_the_residual_stream_and_the_stem_stay() -> None:
    for name in ("basic", "bottleneck"):
        model = convolutional(name)
        small = shrink(model, some_kept(model))
        before, after = model.state_dict(), small.state_dict()
        last = "conv2" if name == "basic" else "conv3"
        for key in before:
            if any(part in key for part in ("downsample", "fc.")) or key.startswith(("conv1", "bn1")):
                assert torch.equal(after[key], before[key]), key
            if last in key:
                assert after[key].shape[0] == before[key].shape[0], key


# --- masked is shrunk -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_masked_and_small_say_the_same(name: str) -> None:
    model = convolutional(name)
    units, whole = some_kept(model), model(pictures()).detach()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    small = shrink(model, units)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    apply_masks(model, by_units(model, units))
    for group, unit in each_unit(name, model):
        kept = units.of("channels")[group][unit]
        assert kept or all(bool((part == 0).all()) for part in entries(name, model.state_dict(), group, unit))
    masked = model(pictures()).detach()
    torch.testing.assert_close(small(pictures()), masked, atol=1e-5, rtol=0)
    assert float((masked - whole).abs().max()) > 1e-2, "else nothing of weight was removed"
    assert units_of(small).totals("channels") == units.counts("channels")
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", CONFIGS)
def test_masked_and_small_learn_the_same_from_a_batch(name: str) -> None:
    model = convolutional(name)
    units = some_kept(model)
    apply_masks(model, by_units(model, units))
    small = shrink(model, units).train()
    said = {}
    for key, one in (("small", small), ("large", model.train())):
        said[key] = one(pictures(8))
        said[key].square().sum().backward()
    torch.testing.assert_close(said["small"], said["large"], atol=1e-5, rtol=1e-5)
    slopes = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
    for key, wanted in cut_tensors(model, slopes, units).items():
        torch.testing.assert_close(small.get_parameter(key).grad, wanted, atol=1e-4, rtol=1e-4)
    for key, wanted in cut_tensors(model, model.state_dict(), units).items():  # the running statistics too
        torch.testing.assert_close(small.state_dict()[key], wanted, atol=1e-5, rtol=1e-5)


def test_a_masked_channel_is_exactly_0_by_either_statistics() -> None:
    model = convolutional("basic")
    units = units_of(model).with_kept("channels", [[False] * 5 + [True], [True] * 6, [True] * 12])
    apply_masks(model, by_units(model, units))
    told: list[Tensor] = []
    model.get_submodule("layer1.0.bn1").register_forward_hook(lambda *given: told.append(given[2]))
    for training in (False, True):
        model.train(training)(pictures())
    assert all(bool((said[:, :5] == 0).all()) and bool((said[:, 5] != 0).any()) for said in told)


def test_small_ones_shrink_again() -> None:
    for name in ("bottleneck", "cnn"):
        model = convolutional(name)
        outer = some_kept(model)
        rows = zip(outer.of("channels"), some_kept(model, seed=8).of("channels"), strict=True)
        both = [tuple(a and b for a, b in zip(*row, strict=True)) for row in rows]
        inner = outer.with_kept(
            "channels", [b if any(b) else o for b, o in zip(both, outer.of("channels"), strict=True)]
        )
        twice, once = shrink(shrink(model, outer), outer.narrowed(inner)), shrink(model, inner)
        assert twice.config == once.config
        assert differing(weights(twice), weights(once)) == set()
        same = shrink(model, units_of(model))
        assert same.config == model.config
        assert Units.from_json(outer.to_json()) == outer


def test_what_cannot_be_is_refused_in_words() -> None:
    model = convolutional("basic")
    whole = units_of(model)
    with pytest.raises(UsageError, match="group 1 of channels has none left"):
        shrink(model, whole.with_kept("channels", [[True] * 6, [False] * 6, [True] * 12]))
    with pytest.raises(UsageError, match="kind of units: expected channels, which this network has, received heads"):
        gone_after(whole, rate=0.5, rounds=1, kinds=["heads"])
    scores = {"channels": [torch.zeros(6), torch.ones(6), torch.ones(12)]}
    chosen = choose(whole, scores, {"channels": 24}, allow_empty=True)
    assert chosen.counts("channels") == (1, 1, 1), "nothing would come through none"
    assert choose(whole, scores, {"channels": [1, 3, 5]}, round_to=4).counts("channels") == (6, 4, 8)


def test_features_without_a_head_stay() -> None:
    model = build_model(CNNConfig(img_size=8, num_classes=0, widths=(6, 10), drop_rate=0.0)).eval()
    units = some_kept(model)
    assert units.totals("channels") == (6, 6, 10), "what comes out is nobody's to remove"
    small = shrink(model, units)
    apply_masks(model, by_units(model, units))
    torch.testing.assert_close(small(pictures()), model(pictures()), atol=1e-5, rtol=0)
    assert small.config.widths[-1] == 10


# --- what a channel is worth ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_magnitude_and_remain_count_all_entries(name: str) -> None:
    model = convolutional(name)
    masks = by_magnitude(model, all_kept(model), 0.6)
    found = {key: criterion(key)(Evidence(model=model, masks=masks))["channels"] for key in ("magnitude", "remain")}
    tensors, none = (
        model.state_dict(),
        {k: torch.zeros_like(t, dtype=torch.bool) for k, t in model.state_dict().items()},
    )
    for group, unit in each_unit(name, model):
        wanted = sum(float(part.abs().sum()) for part in entries(name, tensors, group, unit))
        assert float(found["magnitude"][group][unit]) == pytest.approx(wanted, rel=1e-5)
        left = sum(int(part.sum()) for part in entries(name, none | masks, group, unit))
        assert int(found["remain"][group][unit]) == left


@pytest.mark.parametrize("name", ["bottleneck", "cnn"])
def test_saliency_is_the_squared_slope_of_a_gate_on_the_channel(name: str) -> None:
    model, given = convolutional(name), batches()
    scores = criterion("saliency")(Evidence(model=model.train(), batches=given))["channels"]
    assert model.training
    model.eval()
    parameters = {key: parameter.detach() for key, parameter in model.named_parameters()}
    for group, unit in each_unit(name, model)[::5]:
        own = {key: torch.zeros_like(tensor) for key, tensor in parameters.items()}
        for part in entries(name, own, group, unit):
            part.fill_(1)
        total = 0.0
        for images, labels in given:
            gate = torch.ones((), requires_grad=True)
            gated = {key: w * (1 + own[key] * (gate - 1)) for key, w in parameters.items()}
            loss = F.cross_entropy(functional_call(model, gated, (images,)), labels)
            total += float(torch.autograd.grad(loss, gate)[0]) ** 2
        assert float(scores[group][unit]) == pytest.approx(total / len(given), rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("name", ["basic", "bottleneck", "cnn"])
def test_activations_are_what_the_next_layer_reads(name: str) -> None:
    model, given = convolutional(name), batches(11, 4)
    found = {key: criterion(key)(Evidence(model=model, batches=given))["channels"] for key in ("l1", "l2")}
    normed: dict[str, Tensor] = {}
    for _, norm, _ in ROADS[name]:
        model.get_submodule(norm).register_forward_hook(lambda *said, key=norm: normed.__setitem__(key, said[2]))
    model(torch.cat([images for images, _ in given]))
    for group, (_, norm, reader) in enumerate(ROADS[name]):
        said = F.relu(normed[norm])
        if name == "cnn" and norm.endswith("bn2"):
            said = F.max_pool2d(said, 2)
        if reader == "head":
            said = said.mean((2, 3))
        said = said.transpose(0, 1).flatten(1)
        for key, wanted in (("l1", said.abs().mean(1)), ("l2", said.square().mean(1).sqrt())):
            torch.testing.assert_close(found[key][group].float(), wanted, rtol=1e-4, atol=1e-6)


def test_all_criteria_choose_and_lots_are_drawn_by_the_seed() -> None:
    model = convolutional("cnn")
    whole, masks = units_of(model), by_magnitude(model, all_kept(model), 0.5)
    for name in CRITERIA:
        scores = criterion(name)(Evidence(model=model, batches=batches(), masks=masks))
        assert choose(whole, scores, gone_after(whole, rate=0.5, rounds=1)).removed("channels") == 16
    gone = gone_by_masks(groups_of(model), masks, fillback=0.2)
    first = torch.cat([masks["stages.0.conv1.weight"].flatten(), masks["stages.0.conv2.weight"].flatten()])
    kept = float(first.float().mean()) * 6
    assert gone["channels"][0] == 6 - round(kept + 0.2 * (6 - kept))  # type: ignore[index]


def test_every_convolution_is_prunable_and_no_head() -> None:
    for name in CONFIGS:
        model = convolutional(name)
        layers = {key for key, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)}
        assert set(prunable(model)) == {f"{key}.weight" for key in layers}
        assert prunable(model, patch_embed=True) == prunable(model)
        masks = by_magnitude(model, by_magnitude(model, all_kept(model), 0.2), 0.2)
        assert density(masks) == pytest.approx(0.64, abs=0.01)
