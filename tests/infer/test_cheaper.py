"""Smaller numbers: what they change, which layers they hurt, and which way is proposed."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from vitscope import Predictor, create_model
from vitscope.core.errors import UsageError
from vitscope.data.dataset import open_dataset
from vitscope.infer.cheaper.dtypes import in_dtype, linear_layers, size_bytes
from vitscope.infer.cheaper.report import Outcome, fastest, measure_ways
from vitscope.infer.cheaper.sample import Sample, sample_of_dataset, sample_of_pictures
from vitscope.infer.cheaper.sensitivity import agreement, divergence, layers_to_keep, sensitivities
from vitscope.infer.cheaper.way import PLAIN, Way, ways_for
from vitscope.models.model import VisionModel

pytest.importorskip("torchao")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> VisionModel:
    torch.manual_seed(0)
    made = create_model("vit_tiny", depth=2, embed_dim=64, num_heads=2, num_classes=10).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return made


@pytest.fixture(scope="module")
def sample() -> Sample:
    torch.manual_seed(1)
    return Sample(torch.randn(96, 3, 32, 32), torch.arange(96) % 10)


def test_bits_cost_a_quarter_and_the_given_model_stays(model: VisionModel) -> None:
    before = deepcopy(model.state_dict())
    small, dtype = in_dtype(model, "int8", CPU)
    assert dtype == torch.float32
    linear = sum(model.get_submodule(name).weight.numel() for name in linear_layers(model))  # type: ignore[misc]
    saved = size_bytes(model) - size_bytes(small)
    rows = sum(model.get_submodule(name).weight.shape[0] for name in linear_layers(model))  # type: ignore[index]
    assert 3 * linear - 16 * rows <= saved <= 3 * linear  # a scale, and at most a little more, for every row
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_eight_bits_are_near_floats_and_not_equal_to_them(model: VisionModel, sample: Sample) -> None:
    for kind in ("int8", "int8_weights"):
        small, dtype = in_dtype(model, kind, CPU)
        plain, other = (sample.logits(one, batch_size=32, device=CPU, dtype=dtype) for one in (model, small))
        error = (plain - other).abs().max() / plain.abs().max()
        assert 1e-5 < error < 0.1, kind


def test_layers_that_are_named_stay_floats(model: VisionModel) -> None:
    small, _ = in_dtype(model, "int8", CPU, keep_float=("head", "blocks.0.*"))
    kinds = {name: type(small.get_submodule(name).weight) for name in linear_layers(small)}
    kept = {name for name, kind in kinds.items() if kind is torch.nn.Parameter}
    assert kept == {name for name in kinds if name == "head" or name.startswith("blocks.0.")}
    with pytest.raises(UsageError, match=r"(?s)name of a linear layer.*did you mean 'head'"):
        in_dtype(model, "int8", CPU, keep_float=("haed",))
    with pytest.raises(UsageError, match="keep_float is for 8 bits"):
        in_dtype(model, "bf16", CPU, keep_float=("head",))


def test_the_layer_that_suffers_is_found_and_kept(sample: Sample) -> None:
    """One weight of a row a thousand times the others: 8 bits leave nothing of those."""
    torch.manual_seed(2)
    hurt = create_model("vit_tiny", depth=2, embed_dim=64, num_heads=2, num_classes=10).eval()
    with torch.no_grad():
        for parameter in hurt.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        hurt.get_submodule("blocks.1.mlp.fc1").weight[:, 0] = 300.0  # type: ignore[index]
        hurt.get_submodule("blocks.1.norm2").weight[0] = 0.0  # type: ignore[index]
        hurt.get_submodule("blocks.1.norm2").bias[0] = 0.0  # type: ignore[index]
    before = deepcopy(hurt.state_dict())
    ranked = sensitivities(hurt, sample, "int8", device=CPU, batch_size=32)
    assert ranked[0].layer == "blocks.1.mlp.fc1"
    assert ranked[0].divergence > 5 * ranked[1].divergence
    assert len(ranked) == len(linear_layers(hurt))
    assert all(torch.equal(tensor, before[name]) for name, tensor in hurt.state_dict().items())
    without, reached = layers_to_keep(hurt, sample, "int8", ranked, at_least=0.9, device=CPU, batch_size=32)
    small, dtype = in_dtype(hurt, "int8", CPU)
    plain, other = (sample.logits(one, batch_size=32, device=CPU, dtype=dtype) for one in (hurt, small))
    assert agreement(plain, other) < 0.9 <= reached
    assert without[0] == "blocks.1.mlp.fc1"
    assert len(without) < len(ranked)


def test_nothing_is_kept_where_nothing_must_be(model: VisionModel, sample: Sample) -> None:
    ranked = sensitivities(model, sample.spread(8), "int8", device=CPU, batch_size=32)
    assert layers_to_keep(model, sample, "int8", ranked, at_least=0.5, device=CPU, batch_size=32)[0] == ()


def test_agreement_and_divergence() -> None:
    plain = torch.tensor([[2.0, 1.0], [0.0, 1.0]])
    assert agreement(plain, plain) == 1.0
    assert agreement(plain, plain.flip(1)) == 0.0
    assert divergence(plain, plain + 5.0) == pytest.approx(0.0, abs=1e-12)
    half = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    expected = torch.nn.functional.kl_div(half.log_softmax(-1), plain.softmax(-1), reduction="batchmean").item()
    assert divergence(plain, half) == pytest.approx(expected, rel=1e-5)
    broken = torch.full_like(plain, float("nan"))
    assert divergence(plain, broken) == float("inf")
    assert agreement(torch.tensor([[2.0, 1.0]] * 2), broken) == 0.0  # though the largest of no numbers is the first
    assert Sample(torch.zeros(2, 3, 4, 4), torch.tensor([0, 0])).accuracy(broken) == 0.0


def test_ways_are_measured_side_by_side(model: VisionModel, sample: Sample) -> None:
    ways = [Way("bf16"), Way("int8"), Way("fp32", "graph")]
    found = measure_ways(model, ways, sample, device=CPU, batch_size=16, rounds=2, least_seconds=0.001)
    assert [str(one.way) for one in found] == ["fp32 eager", "bf16 eager", "int8 eager", "fp32 graph"]
    plain, half, eight, graph = found
    assert (plain.agreement, plain.better, plain.worse) == (1.0, 0, 0)
    assert half.size_bytes * 2 == plain.size_bytes > 2 * eight.size_bytes
    assert "no CUDA graphs" in str(graph.problem)
    for one in (plain, half, eight):
        assert len(one.batch_seconds) == 2
        assert one.latency_ms(0.95) >= one.latency_ms(0.5) > 0
        assert one.accuracy is not None
        assert plain.accuracy is not None
        assert round(96 * (one.accuracy - plain.accuracy)) == (one.better or 0) - (one.worse or 0)
        assert one.to_dict(plain)["images_per_s"] > 0
    assert "problem" in graph.to_dict(plain)


def test_the_fastest_way_that_agrees_is_proposed() -> None:
    def outcome(way: str, speed: float, latency: float, share: float) -> Outcome:
        return Outcome(
            Way.named(way), agreement=share, batch_size=8, batch_seconds=[8 / speed], single_seconds=[latency]
        )

    found = [
        outcome("fp32", 10, 5.0, 1.0),
        outcome("bf16", 20, 4.0, 0.995),
        outcome("int8 compiled", 40, 9.0, 0.97),
        Outcome(Way.named("fp16"), problem="cannot"),
    ]
    assert fastest(found, at_least=0.99).way == Way("bf16")
    assert fastest(found, at_least=0.9).way == Way("int8", "compiled")
    assert fastest(found, at_least=0.9, for_one=True).way == Way("bf16")
    assert fastest(found, at_least=1.0).way == PLAIN


def test_names_of_ways() -> None:
    assert Way.named("int8 compiled") == Way("int8", "compiled")
    assert Way.named("bf16") == Way("bf16", "eager")
    assert Way("int8", "compiled", ("head",)).flags() == "--dtype int8 --launch compiled --keep-float head"
    with pytest.raises(UsageError, match=r"(?s)int4.*did you mean 'int8 compiled'"):
        Way.named("int4 compiled")
    ways, _ = ways_for(CPU)
    assert ways[0] == PLAIN
    assert len(set(ways)) == len(ways)
    assert not any(way.launch.endswith("graph") for way in ways)


def test_samples_carry_the_labels_of_the_models_classes() -> None:
    dataset = open_dataset("digits")
    torch.manual_seed(0)
    model = create_model("guide_tiny", img_size=8, patch_size=4, in_chans=1, num_classes=10, embed_dim=32, num_heads=2)
    model.labels = list(reversed(dataset.class_names))
    predictor = Predictor(model, device="cpu")
    sample, bad = sample_of_dataset(predictor, dataset, "val", most=40)
    assert bad == []
    assert sample.images.shape == (40, 1, 8, 8)
    assert sample.labels is not None
    rows = dataset.splits["val"]
    expected = [9 - int(dataset.source.labels[rows[int(place)]]) for place in torch.arange(40) * len(rows) // 40]
    assert sample.labels.tolist() == expected


def test_samples_of_pictures_leave_out_what_cannot_be_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from PIL import Image

    for number in range(5):
        Image.new("RGB", (32, 32), (40 * number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "5.png").write_bytes(b"not a picture")
    predictor = Predictor(create_model("vit_tiny", depth=1), device="cpu")
    sample, bad = sample_of_pictures(predictor, tmp_path, most=10)
    assert len(sample) == 5
    assert sample.labels is None
    assert len(bad) == 1
    assert "5.png" in bad[0]


def test_samples_are_from_all_over() -> None:
    sample = Sample(torch.zeros(280, 1, 2, 2), torch.arange(280) // 40)
    labels = sample.spread(64).labels
    assert labels is not None
    counts = torch.bincount(labels, minlength=7)
    assert counts.min() >= 8
    assert counts.sum() == 64


def test_predictors_of_one_model_in_other_numbers_do_not_meet(model: VisionModel) -> None:
    before = deepcopy(model.state_dict())
    images = torch.randn(2, 3, 32, 32)
    plain = Predictor(model, device="cpu")
    (first, _) = plain.classify(images)
    half = Predictor(model, device="cpu", dtype="bf16")
    assert half.classify(images)[0].confidence != first.confidence
    assert plain.classify(images)[0] == first
    assert Predictor(model, device="cpu").classify(images)[0] == first
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_predicting_while_a_model_trains_changes_nothing_of_it() -> None:
    torch.manual_seed(0)
    resnet = create_model("resnet18", num_classes=3, img_size=32)
    predictor = Predictor(resnet, device="cpu")
    images = torch.randn(3, 3, 32, 32)
    alone = predictor.classify(images[:1])
    before = deepcopy(resnet.state_dict())
    resnet.train()
    assert predictor.classify(images)[0].confidence == pytest.approx(alone[0].confidence, abs=1e-6)
    assert resnet.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in resnet.state_dict().items())


def test_a_predictor_in_eight_bits_leaves_the_callers_model_alone(model: VisionModel) -> None:
    predictor = Predictor(model, device="cpu", dtype="int8", keep_float=("head",))
    assert predictor.model is not model
    images = torch.randn(2, 3, 32, 32)
    (found, _), (plain, _) = (p.classify(images) for p in (predictor, Predictor(model, device="cpu")))
    assert found.confidence == pytest.approx(plain.confidence, abs=0.1)
    assert found.confidence != plain.confidence
