"""The objective: parts of a batch add up to the whole, and every share of the loss is what its formula says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.data.config import half_normalised
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.train.config import LossConfig
from vitscope.train.losses import class_weights
from vitscope.train.objective import Objective
from vitscope.train.teacher import Teacher

K = 7
SMALL = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2, "num_classes": K}
WEIGHTS = torch.tensor([0.2, 3.0, 1.0, 0.5, 2.0, 0.1, 1.5])


def network(seed: int = 0, *, large: bool = True, **settings: Any) -> Any:
    torch.manual_seed(seed)
    model = build_model(ViTConfig(**{**SMALL, **settings}))
    if large:  # fresh heads answer nearly nothing, which hides errors
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.train()


def teacher_of(model: Any) -> Teacher:
    return Teacher(model, student_preprocess=half_normalised((8, 8), 3))


def batch(count: int = 10, *, shares: bool = False) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(5)
    images = torch.randn(count, 3, 8, 8, generator=rng)
    if shares:
        return images, torch.randn(count, K, generator=rng).mul(3).softmax(-1)
    return images, torch.randint(0, K, (count,), generator=rng)


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize(
    ("settings", "extra"),
    [
        ({}, {}),
        ({"smoothing": 0.1}, {"class_weights": WEIGHTS}),
        ({"name": "binary_cross_entropy", "smoothing": 0.1}, {}),
        ({"distill": "soft"}, {"teacher": True, "class_weights": WEIGHTS}),
        ({"distill": "hard"}, {"teacher": True}),
        ({}, {"l1": 0.01}),
    ],
)
def test_parts_of_a_batch_add_up_to_the_whole(settings: Any, extra: Any, shares: bool) -> None:
    model = network()
    extra = dict(extra)
    if extra.pop("teacher", False):
        extra["teacher"] = teacher_of(network(1))
    objective = Objective(model, LossConfig(**settings), decayed=[model.head.weight], **extra)
    images, labels = batch(shares=shares)

    whole, _ = objective(images, labels)
    whole.backward()
    wanted = gradients(model)
    model.zero_grad()
    total = torch.zeros(())
    for x, y in zip(images.split(4), labels.split(4), strict=True):  # 4, 4, 2
        part, logits = objective(x, y)
        (part * len(x) / len(images)).backward()
        total += part.detach() * len(x) / len(images)
        assert logits.shape == (len(x), K)
        assert not logits.requires_grad

    assert whole.dtype == torch.float32
    assert whole.shape == ()
    torch.testing.assert_close(total, whole.detach())
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}")


def test_labels_alone_are_torchs_cross_entropy() -> None:
    model, (images, labels) = network(), batch()
    loss, logits = Objective(model, LossConfig(smoothing=0.2))(images, labels)
    torch.testing.assert_close(loss, F.cross_entropy(model(images), labels, label_smoothing=0.2))
    torch.testing.assert_close(logits, model(images).detach())


def test_class_weights_multiply_a_pictures_loss_and_nothing_divides_by_them() -> None:
    model, (images, labels) = network(), batch()
    by_hand = (F.cross_entropy(model(images), labels, reduction="none") * WEIGHTS[labels]).mean()
    loss, _ = Objective(model, LossConfig(), class_weights=WEIGHTS)(images, labels)
    torch.testing.assert_close(loss, by_hand)
    hot, _ = Objective(model, LossConfig(), class_weights=WEIGHTS)(images, F.one_hot(labels, K).float())
    torch.testing.assert_close(hot, by_hand)
    torchs = F.cross_entropy(model(images), labels, weight=WEIGHTS)
    assert abs(loss.item() - torchs.item()) > 0.01  # so the two means could be told apart


def test_over_all_pictures_the_two_weighted_means_are_one() -> None:
    model, (images, labels) = network(), batch(60)
    weights = class_weights(torch.bincount(labels, minlength=K).numpy(), power=1.0)
    loss, _ = Objective(model, LossConfig(), class_weights=weights)(images, labels)
    torch.testing.assert_close(loss, F.cross_entropy(model(images), labels, weight=weights))


def test_l1_adds_the_sum_of_absolute_weights_and_their_signs() -> None:
    model, (images, labels) = network(), batch()
    decayed = [model.head.weight, model.blocks[0].mlp.fc1.weight]
    plain, _ = Objective(model, LossConfig())(images, labels)
    plain.backward()
    before = gradients(model)
    model.zero_grad()
    loss, _ = Objective(model, LossConfig(), l1=0.05, decayed=decayed)(images, labels)
    loss.backward()
    torch.testing.assert_close(loss - plain, 0.05 * sum(p.abs().sum() for p in decayed))
    for name, gradient in gradients(model).items():
        penalised = name in ("head.weight", "blocks.0.mlp.fc1.weight")
        wanted = before[name] + (0.05 * model.get_parameter(name).sign() if penalised else 0)
        torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_soft_distillation_by_its_formula(share: float, smoothing: float) -> None:
    model, other, (images, labels) = network(), network(1), batch()
    heat = 2.5
    config = LossConfig(distill="soft", distill_share=share, distill_temperature=heat, smoothing=smoothing)
    loss, _ = Objective(model, config, teacher=teacher_of(other))(images, labels)
    p, q = (other(images) / heat).softmax(-1), (model(images) / heat).softmax(-1)
    divergence = (p * (p / q).log()).sum(-1).mean() * heat**2
    by_labels = F.cross_entropy(model(images), labels, label_smoothing=smoothing)
    torch.testing.assert_close(loss, (1 - share) * by_labels + share * divergence)


def test_hard_distillation_is_cross_entropy_with_the_teachers_choice_unsmoothed() -> None:
    model, other, (images, labels) = network(), network(1), batch()
    config = LossConfig(distill="hard", distill_share=0.4, smoothing=0.1)
    loss, _ = Objective(model, config, teacher=teacher_of(other))(images, labels)
    choice = other(images).argmax(-1)
    assert (choice != labels).any()
    wanted = 0.6 * F.cross_entropy(model(images), labels, label_smoothing=0.1)
    torch.testing.assert_close(loss, wanted + 0.4 * F.cross_entropy(model(images), choice))


def test_a_student_equal_to_its_teacher_has_nothing_to_learn_from_it() -> None:
    model, (images, labels) = network(), batch()
    config = LossConfig(distill="soft", distill_share=1.0)
    loss, _ = Objective(model, config, teacher=teacher_of(network()))(images, labels)
    assert loss.item() == pytest.approx(0, abs=1e-5)


def test_with_a_distillation_token_labels_and_teacher_teach_one_head_each() -> None:
    model, (images, labels) = network(distilled=True), batch()
    teacher = teacher_of(network(1))
    for share, silent, taught in ((0.0, "head_dist", "head"), (1.0, "head", "head_dist")):
        model.zero_grad()
        loss, _ = Objective(model, LossConfig(distill="hard", distill_share=share), teacher=teacher)(images, labels)
        loss.backward()
        assert model.get_parameter(f"{silent}.weight").grad.abs().max() == 0
        assert model.get_parameter(f"{taught}.weight").grad.abs().max() > 0
    _, logits = Objective(model, LossConfig(), teacher=teacher)(images, labels)
    torch.testing.assert_close(logits, model.eval()(images).detach())  # what evaluation goes by
    by_labels, by_teacher = model.train()(images)
    assert (by_labels - by_teacher).abs().max() > 0.1


def test_without_a_teacher_a_distilled_model_trains_the_mean_of_its_heads() -> None:
    model, (images, labels) = network(distilled=True), batch()
    Objective(model, LossConfig(), teacher=teacher_of(network(1)))
    loss, _ = Objective(model, LossConfig())(images, labels)  # the second objective takes the first one's mode back
    loss.backward()
    torch.testing.assert_close(loss, F.cross_entropy(model.eval()(images), labels))
    assert model.head.weight.grad.abs().max() > 0
    assert model.head_dist.weight.grad.abs().max() > 0


def test_the_teacher_learns_nothing() -> None:
    model, other, (images, labels) = network(), network(1), batch()
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    loss, _ = Objective(model, LossConfig(), teacher=teacher_of(other))(images, labels)
    loss.backward()
    assert all(p.grad is None and not p.requires_grad for p in other.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, math.log(K)),
        ({"smoothing": 0.1}, math.log(K)),
        ({"name": "binary_cross_entropy"}, K * math.log(2)),
        ({"distill": "hard", "distill_share": 0.5}, math.log(K)),
        (
            {"name": "binary_cross_entropy", "distill": "hard", "distill_share": 0.5},
            (K * math.log(2) + math.log(K)) / 2,
        ),
    ],
)
def test_chance_is_where_a_fresh_model_begins(settings: Any, wanted: float) -> None:
    model, (images, labels) = network(large=False), batch(64)
    teacher = teacher_of(network(1)) if "distill" in settings else None
    objective = Objective(model, LossConfig(**settings), teacher=teacher)
    assert objective.at_chance(K) == pytest.approx(wanted)
    assert objective(images, labels)[0].item() == pytest.approx(wanted, rel=0.05)
    with_l1 = Objective(model, LossConfig(**settings), teacher=teacher, l1=0.1, decayed=[model.head.weight])
    assert with_l1.at_chance(K) == pytest.approx(with_l1(images, labels)[0].item(), rel=0.05)
    assert with_l1.at_chance(K) > objective.at_chance(K)


def test_chance_under_soft_distillation_is_the_most_a_fresh_model_can_lose() -> None:
    model, (images, labels) = network(large=False), batch(64)
    sure = network(1)
    with torch.no_grad():
        sure.head.weight.mul_(1000)
    config = LossConfig(distill="soft", distill_share=0.5, distill_temperature=2.0)
    objective = Objective(model, config, teacher=teacher_of(sure))
    assert objective(images, labels)[0].item() == pytest.approx(objective.at_chance(K), rel=0.05)
    mild = Objective(model, config, teacher=teacher_of(network(1)))
    assert mild(images, labels)[0].item() < mild.at_chance(K)


@pytest.mark.parametrize("distilled", [False, True])
def test_one_graph_without_a_look_of_the_host(distilled: bool) -> None:
    """`fullgraph` refuses whatever would read a value back."""
    model, (images, labels) = network(distilled=distilled), batch()
    objective = Objective(
        model, LossConfig(), class_weights=WEIGHTS, teacher=teacher_of(network(1)), l1=0.01, decayed=[model.head.weight]
    )
    compiled = torch.compile(lambda x, y: objective(x, y), backend="eager", fullgraph=True)
    loss, logits = compiled(images, labels)
    plain, plain_logits = objective(images, labels)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(logits, plain_logits)
    torch.compiler.reset()


def test_under_autocast_the_loss_is_float32() -> None:
    model, (images, labels) = network(), batch()
    objective = Objective(
        model, LossConfig(), class_weights=WEIGHTS, teacher=teacher_of(network(1)), l1=0.01, decayed=[model.head.weight]
    )
    plain, _ = objective(images, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, logits = objective(images, labels)
    assert loss.dtype == torch.float32
    assert logits.dtype == torch.bfloat16
    assert loss.item() == pytest.approx(plain.item(), rel=0.03)
    loss.backward()
    assert model.head.weight.grad.dtype == torch.float32
