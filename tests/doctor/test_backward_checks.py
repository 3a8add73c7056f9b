"""What gradients and one watched step give away: each fault is named, and its healthy neighbour is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.conftest import CLASSES, small_vit
from doctor.healthy import PlainViT, healthy, plain_cnn
from doctor.seen import causes as seen_causes
from vitscope.doctor.causes import NOTES, cause_for
from vitscope.doctor.checks import backward
from vitscope.doctor.checks.backward.moved import moved
from vitscope.doctor.checks.backward.step_mode import step_mode
from vitscope.doctor.checks.backward.zeroed import zeroed
from vitscope.doctor.examination import Report, examine
from vitscope.doctor.finding import Finding
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def examined(one: Patient) -> Report:
    """Whatever is found can be said, in both languages."""
    report = examine(one, backward.CHECKS)
    for finding in report.findings:
        cause = cause_for(finding.cause, finding.numbers)
        for text in (cause.title, cause.evidence, cause.cost, cause.action, cause.effect):
            assert text.said("en", finding.numbers)
            assert text.said("zh", finding.numbers)
    for note in report.notes:
        assert NOTES[note.name].text.said("zh", note.numbers)
    return report


def causes(one: Patient) -> list[str]:
    return [finding.cause for finding in examined(one).findings]


def only(one: Patient) -> Finding:
    (finding,) = examined(one).findings
    return finding


def in_parts(model: nn.Module, optimizer: torch.optim.Optimizer, parts: int, *, divides: bool) -> Any:
    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
            loss = F.cross_entropy(model(x), y)
            (loss / parts if divides else loss).backward()
        optimizer.step()

    return step


def test_a_detached_layer_is_named(patient: Make) -> None:
    torch.manual_seed(0)
    model = PlainViT()
    model.blocks[1].register_forward_hook(lambda _module, _given, gave: gave.detach())
    found = next(one for one in examined(patient(model)).findings if one.cause == "no_gradient_for")
    assert found.confidence > 0.9
    assert "patch.weight" in found.numbers["names"]
    assert found.numbers["share"] > 0.5


def test_a_table_before_a_detached_layer_is_not_said_to_be_unused(patient: Make) -> None:
    torch.manual_seed(0)
    model = PlainViT()
    assert [name for name, _ in model.named_parameters() if "." not in name]
    model.blocks[0].register_forward_hook(lambda _module, _given, gave: gave.detach())
    report = examined(patient(model))
    assert report.findings[0].cause == "no_gradient_for"
    assert "unused_parameters" not in [note.name for note in report.notes]


def test_a_part_no_task_needs_is_a_note(patient: Make) -> None:
    model = PlainViT()
    model.pooler = nn.Linear(64, 64)
    report = examined(patient(model))
    assert report.findings == []
    assert [note.name for note in report.notes] == ["unused_parameters"]


def test_a_head_of_zeros_is_healthy(patient: Make) -> None:
    model = PlainViT()
    nn.init.zeros_(model.head.weight)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0)
    assert causes(patient(model, optimizer=optimizer)) == []


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_head_that_nothing_moves(patient: Make, is_frozen: bool) -> None:
    model = small_vit()
    if is_frozen:
        model.head.requires_grad_(False)  # pyright: ignore
    rest = [one for name, one in model.named_parameters() if not name.startswith("head")]
    found = only(patient(model, optimizer=torch.optim.AdamW(rest, 1e-3)))
    assert (found.cause, found.numbers["name"]) == ("head_frozen", "head")
    assert ("requires_grad" in found.numbers["how"]) == is_frozen


def test_a_backbone_that_nothing_moves(patient: Make) -> None:
    model = small_vit()
    optimizer = torch.optim.AdamW(model.head.parameters(), 1e-3)  # pyright: ignore
    found = only(patient(model, optimizer=optimizer))
    assert found.cause == "not_in_optimizer"
    assert found.numbers["share"] > 0.9
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.1)  # as training leaves it
    report = examined(patient(model, optimizer=optimizer))
    assert report.findings == []
    assert "linear_probe" in [note.name for note in report.notes]


def test_an_optimiser_that_was_made_for_another_model(patient: Make) -> None:
    old, model = small_vit(), small_vit()
    for has_learnt in (False, True):
        found = only(patient(model, optimizer=torch.optim.AdamW(old.parameters(), 1e-3), pretrained=has_learnt))
        assert (found.cause, found.numbers["given"]) == ("not_in_optimizer", len(list(old.parameters())))
        assert found.confidence > 0.95


def master_weights(model: nn.Module, *, are_copied_back: bool) -> dict[str, Any]:
    """The optimiser holds copies of the weights, as one in fp32 beside a model in halves does."""
    masters = [one.detach().clone() for one in model.parameters()]
    optimizer, calls = torch.optim.AdamW(masters, 1e-3), [0]

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        calls[0] += 1
        model.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        for master, one in zip(masters, model.parameters(), strict=True):
            master.grad = one.grad
        if calls[0] > 2:  # a scaler skips the first ones
            optimizer.step()
        with torch.no_grad():
            for master, one in zip(masters, model.parameters(), strict=True):
                if are_copied_back:
                    one.copy_(master)

    return {"optimizer": optimizer, "step": step}


def test_an_optimiser_of_copies_that_are_given_back_moves_the_model(patient: Make) -> None:
    model = small_vit()
    for are_copied_back, expected in ((True, []), (False, ["not_in_optimizer"])):
        one = patient(model, **master_weights(model, are_copied_back=are_copied_back))
        before = [weight.detach().clone() for weight in model.parameters()]
        looked = moved(one)
        assert [found.cause for found in looked.findings] == expected
        assert all(torch.equal(weight, kept) for weight, kept in zip(model.parameters(), before, strict=True))


def test_what_an_own_step_forgets_is_still_said(patient: Make) -> None:
    model = healthy("resnet18")
    optimizer = forgetting(model, "layer3")

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    (found,) = moved(patient(model, optimizer=optimizer, step=step)).findings
    assert found.cause == "not_in_optimizer"


def test_a_head_of_zeros_that_is_forgotten_is_not_said_to_cut_off_the_rest(patient: Make) -> None:
    model = small_vit()
    nn.init.zeros_(model.head.weight)  # pyright: ignore
    assert only(patient(model, optimizer=forgetting(model, "head"))).cause == "head_frozen"


@pytest.mark.parametrize("has_step", [False, True])
def test_a_head_that_was_replaced_after_the_optimiser_was_made(patient: Make, has_step: bool) -> None:
    model = PlainViT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    model.head = nn.Linear(model.head.in_features, CLASSES)
    step = in_parts(model, optimizer, 1, divides=True) if has_step else None
    (found,) = moved(patient(model, optimizer=optimizer, step=step)).findings
    assert (found.cause, found.numbers["strangers"]) == ("not_in_optimizer", 2)
    cause = cause_for(found.cause, found.numbers)
    assert "head.weight" in cause.evidence.said("en", found.numbers)
    assert "head.weight" in cause.evidence.said("zh", found.numbers)
    assert "requires_grad" not in cause.action.en


def test_layers_that_have_no_gradient_at_first_are_no_slow_beginning(patient: Make) -> None:
    """Branches that end in a scale of zero, as residual networks are often begun."""
    model = PlainViT()
    for block in model.blocks:
        for name, one in block.named_parameters():
            if "proj" in name or "fc2" in name or "out" in name:
                nn.init.zeros_(one)
    report = examined(patient(model, optimizer=torch.optim.Adam(model.parameters(), 1e-3)))
    assert report.findings == []
    assert [note.name for note in report.notes] == []


def test_a_head_that_is_forgotten_with_most_of_the_rest(patient: Make) -> None:
    model = small_vit()
    some = [one for name, one in model.named_parameters() if name.startswith("blocks.0")]
    found = only(patient(model, optimizer=torch.optim.AdamW(some, 1e-3)))
    assert found.cause == "not_in_optimizer"
    assert found.numbers["count"] == len(list(model.parameters())) - len(some)


def forgetting(model: nn.Module, start: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for name, one in model.named_parameters() if not name.startswith(start)], 1e-3)


def test_a_fresh_stage_that_was_forgotten(patient: Make) -> None:
    model = healthy("resnet18")
    found = only(patient(model, optimizer=forgetting(model, "layer3")))
    assert found.cause == "not_in_optimizer"
    assert 0.15 < found.numbers["share"] < 0.2
    assert "layer3.0.conv1.weight" in found.numbers["names"]


def test_a_fresh_stage_in_a_model_that_learnt_otherwise(patient: Make) -> None:
    model = healthy("resnet18")
    for name, one in model.named_parameters():
        if "bn" in name and not name.startswith("layer3"):
            nn.init.normal_(one, 1.0, 0.1)  # as training leaves it
    found = only(patient(model, optimizer=forgetting(model, "layer3")))
    assert found.cause == "not_in_optimizer"


def test_a_stage_that_stays_as_it_was_trained_is_a_note(patient: Make) -> None:
    model = healthy("resnet18")
    for name, one in model.named_parameters():
        if "bn" in name:
            nn.init.normal_(one, 1.0, 0.1)
    report = examined(patient(model, optimizer=forgetting(model, "layer3")))
    assert report.findings == []
    assert [note.name for note in report.notes if "optimizer" in note.name] == ["some_not_in_optimizer"]
    fresh = healthy("resnet18")
    report = examined(patient(fresh, optimizer=forgetting(fresh, "layer3"), pretrained=True))
    assert "not_in_optimizer" not in [finding.cause for finding in report.findings]


def test_what_the_loss_does_not_reach_may_be_left_out(patient: Make) -> None:
    model = PlainViT()
    model.beside = nn.Linear(64, 128)
    assert "not_in_optimizer" not in causes(patient(model, optimizer=forgetting(model, "beside")))


class ListViT(PlainViT):
    """Blocks in a plain list, which no module knows of."""

    def __init__(self) -> None:
        super().__init__()
        blocks = list(self.blocks)
        del self.blocks
        self.blocks = blocks


def test_layers_in_a_plain_list(patient: Make) -> None:
    torch.manual_seed(0)
    model = ListViT()
    found = next(one for one in examined(patient(model)).findings if one.cause == "not_in_optimizer")
    assert found.numbers["share"] > 0.8
    assert "blocks[0].norm1.weight" in found.numbers["names"]
    assert "nn.ModuleList" in cause_for(found.cause, found.numbers).action.en


def test_hidden_layers_that_are_trained_or_know_something_are_no_fault(patient: Make) -> None:
    torch.manual_seed(0)
    model = ListViT()
    hidden = [one for block in model.blocks for one in block.parameters()]
    optimizer = torch.optim.AdamW([*model.parameters(), *hidden], 1e-3)
    assert "not_in_optimizer" not in causes(patient(model, optimizer=optimizer))
    for block in model.blocks:
        nn.init.normal_(block.norm1.weight, 1.0, 0.1)  # pyright: ignore
    report = examined(patient(model))
    assert "not_in_optimizer" not in [one.cause for one in report.findings]
    assert "hidden_weights" in [note.name for note in report.notes]


def test_a_loss_that_learns_hides_nothing(patient: Make) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(CLASSES, 2000))

        def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(logits * self.scale.mean(1), labels)

    assert causes(patient(PlainViT(), loss=Scaled())) == []


def test_gradients_that_vanish_on_their_way(patient: Make) -> None:
    torch.manual_seed(0)
    deep = nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.Sigmoid())
    for _ in range(20):
        deep += nn.Sequential(nn.Linear(32, 32), nn.Sigmoid())
    deep.append(nn.Linear(32, CLASSES))
    assert "gradients_vanishing" in causes(patient(deep))


def test_gradients_that_explode(patient: Make) -> None:
    model = healthy("plain cnn")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(50)
    report = examined(patient(model))
    assert "gradients_exploding" in [finding.cause for finding in report.findings]
    assert "large_gradient" in [note.name for note in report.notes]


def test_a_frozen_head_that_is_a_convolution_is_named(patient: Make) -> None:
    torch.manual_seed(0)
    head = nn.Conv2d(16, CLASSES, 1).requires_grad_(False)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), head, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert "head_frozen" in causes(patient(model))


def test_gradients_of_short_weights_before_batchnorm_do_not_explode(patient: Make) -> None:
    """They are as long as the weights are short, whatever the model computes."""

    model = healthy("resnet18")
    with torch.no_grad():
        next(weight for weight in model.parameters() if weight.ndim == 4).mul_(0.01)
    report = examined(patient(model))
    (asked,) = [asked for asked in report.asked if asked.check.name == "gradient_norms"]
    assert asked.seen.measured["total"] > 1000
    assert "gradients_exploding" not in [finding.cause for finding in report.findings]
    assert {"large_gradient", "large_gradients"} <= {note.name for note in report.notes}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_told_before_batchnorm_too(patient: Make, value: float) -> None:
    model = healthy("resnet18")
    first = next(weight for weight in model.parameters() if weight.ndim == 4)
    first.register_hook(lambda grad: torch.full_like(grad, value))
    assert "gradients_exploding" in causes(patient(model))


def test_units_that_no_picture_wakes(patient: Make) -> None:
    model = plain_cnn()
    for layer in (model[0], model[3], model[7]):  # pyright: ignore
        layer.bias.data.sub_(20)
    found = next(one for one in examined(patient(model)).findings if one.cause == "dead_units")
    assert found.numbers["mean"] == 1.0


@pytest.mark.parametrize("name", ["vit_tiny", "plain cnn", "resnet18"])
@pytest.mark.parametrize("divides", [True, False])
def test_accumulation(patient: Make, name: str, divides: bool) -> None:
    model = healthy(name)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    report = examined(patient(model, optimizer=optimizer, step=in_parts(model, optimizer, 4, divides=divides)))
    assert [one.cause for one in report.findings] == ([] if divides else ["accumulation_not_divided"])
    assert [one.numbers["parts"] for one in report.findings] == ([] if divides else [4])


@pytest.mark.parametrize("divides", [True, False])
@pytest.mark.parametrize("already", [0, 1, 2])
def test_accumulation_over_several_calls(patient: Make, divides: bool, already: int) -> None:
    """Where the owner's counter is when the measurement begins does not matter."""
    model, calls = small_vit(), [already]
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(images: Tensor, labels: Tensor) -> None:
        loss = F.cross_entropy(model(images), labels)
        (loss / 3 if divides else loss).backward()
        calls[0] += 1
        if calls[0] % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()

    found = examined(patient(model, optimizer=optimizer, step=step)).findings
    assert [one.cause for one in found] == ([] if divides else ["accumulation_not_divided"])
    assert [one.numbers["times"] for one in found] == ([] if divides else [pytest.approx(3, rel=0.01)])


@pytest.mark.parametrize("already", [0, 1, 2])
@pytest.mark.parametrize("zeroes", ["after the update", "in every call", "after every call"])
@pytest.mark.parametrize("name", ["vit_tiny", "plain cnn"])
def test_collected_gradients_that_are_thrown_away(patient: Make, name: str, zeroes: str, already: int) -> None:
    model, calls = healthy(name), [already]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> None:
        if zeroes == "in every call":
            optimizer.zero_grad()
        (F.cross_entropy(model(images), labels) / 3).backward()
        calls[0] += 1
        if calls[0] % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if zeroes == "after every call":
            optimizer.zero_grad()

    found = examined(patient(model, optimizer=optimizer, step=step)).findings
    assert [one.cause for one in found] == ([] if zeroes == "after the update" else ["accumulation_forgets"])
    assert [one.numbers["lost"] for one in found] == ([] if zeroes == "after the update" else [2])


def test_an_update_that_was_passed_over_once_is_no_cycle_of_calls(patient: Make) -> None:
    """As a scaler does where the gradients are not finite."""
    model, calls = small_vit(), [0]
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        calls[0] += 1
        if calls[0] > 1:
            optimizer.step()

    looked = zeroed(patient(model, optimizer=optimizer, step=step))
    assert (seen_causes(looked), looked.measured) == ([], {"calls": 2})


@pytest.mark.parametrize("keeps", ["gradients", "pictures", "nothing"])
def test_gradients_kept_elsewhere_and_batches_passed_over_are_not_thrown_away(patient: Make, keeps: str) -> None:
    model, kept = small_vit(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    sums = {name: torch.zeros_like(one) for name, one in model.named_parameters()}

    def step(images: Tensor, labels: Tensor) -> None:
        kept.append((images, labels))
        whole = len(kept) % 3 == 0
        if keeps == "gradients":
            optimizer.zero_grad()
            (F.cross_entropy(model(images), labels) / 3).backward()
            for name, one in model.named_parameters():
                assert one.grad is not None
                sums[name] += one.grad
                if whole:
                    one.grad.copy_(sums[name])
                    sums[name].zero_()
        elif whole:
            optimizer.zero_grad()
            batches = kept[-3:] if keeps == "pictures" else kept[-1:]
            F.cross_entropy(model(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])).backward()
        if whole:
            optimizer.step()

    assert "accumulation_forgets" not in causes(patient(model, optimizer=optimizer, step=step))


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [
        ("resnet18", "eval", 0.9),
        ("resnet18", "train", None),
        ("resnet18", "frozen and pretrained", None),
        ("plain cnn", "eval", 0.9),
    ],
)
def test_a_step_in_evaluation_mode(patient: Make, name: str, mode: str, said: float | None) -> None:
    model = healthy(name)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> None:
        model.train(mode == "train")
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    one = patient(model, optimizer=optimizer, step=step, pretrained="pretrained" in mode)
    found = [one.confidence for one in examined(one).findings if one.cause == "trained_in_eval_mode"]
    assert found == ([] if said is None else [said])


@pytest.mark.parametrize("sets_train", ["at its beginning", "at its end", "never"])
@pytest.mark.parametrize("pretrained", [False, True])
def test_a_step_that_leaves_the_model_in_evaluation_mode(patient: Make, sets_train: str, pretrained: bool) -> None:
    model = healthy("plain cnn")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> None:
        if sets_train == "at its beginning":
            model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(images)
        if sets_train == "at its end":
            model.train()

    looked = step_mode(patient(model, optimizer=optimizer, step=step, pretrained=pretrained))
    assert seen_causes(looked) == (["trained_in_eval_mode"] if sets_train == "never" else [])
    for found in looked.findings:
        assert "leaves the model in evaluation mode" in cause_for(found.cause, found.numbers).evidence.en


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_zeroed_before_the_update(patient: Make, to_none: bool) -> None:
    model, calls = small_vit(), [0]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> None:
        calls[0] += 1
        F.cross_entropy(model(images), labels).backward()
        optimizer.zero_grad(set_to_none=to_none)
        optimizer.step()

    found = only(patient(model, optimizer=optimizer, step=step))
    assert (found.cause, found.ends) == ("step_without_gradients", True)
    assert calls[0] <= 4, "it is seen at once"


@pytest.mark.parametrize("name", ["vit_tiny", "plain cnn", "resnet18"])
@pytest.mark.parametrize("zeroes", ["never", "before", "after"])
@pytest.mark.parametrize("clips", [False, True])
def test_gradients_that_are_never_zeroed(patient: Make, name: str, zeroes: str, clips: bool) -> None:
    model = healthy(name)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(images: Tensor, labels: Tensor) -> None:
        if zeroes == "before":
            optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(images), labels).backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if zeroes == "after":
            optimizer.zero_grad(set_to_none=False)

    report = examined(patient(model, optimizer=optimizer, step=step))
    assert [one.cause for one in report.findings] == (["gradients_not_zeroed"] if zeroes == "never" else [])
    (asked,) = [asked for asked in report.asked if asked.check.name == "gradient_zeroed"]
    assert (asked.seen.measured["left"] > 0) == (zeroes != "after")


def test_a_step_that_never_updates_is_not_called_healthy(patient: Make) -> None:
    model = small_vit()

    def step(images: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        return loss

    assert examined(patient(model, step=step)).verdict == "cannot tell"


def test_clipping_to_nothing(patient: Make) -> None:
    model = small_vit()
    found = examined(patient(model, optimizer=torch.optim.SGD(model.parameters(), 0.01), clip_norm=1e-4)).findings
    assert [one.cause for one in found] == ["clip_too_small", "updates_too_small"]
    assert found[0].numbers["given"] == pytest.approx(1e-4, rel=1e-2)


def test_clipping_that_the_optimiser_does_not_feel(patient: Make) -> None:
    model = small_vit()
    report = examined(patient(model, optimizer=torch.optim.AdamW(model.parameters(), 1e-3), clip_norm=1e-4))
    assert report.findings == []
    assert "clip_small" in [note.name for note in report.notes]


@pytest.mark.parametrize("name", ["vit_tiny", "plain cnn"])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_decay_that_undoes_learning(patient: Make, name: str, kind: str) -> None:
    model = healthy(name)
    optimizer = getattr(torch.optim, kind)(model.parameters(), 1e-3, weight_decay=10.0)
    found = next(one for one in examined(patient(model, optimizer=optimizer)).findings)
    assert (found.cause, found.numbers["decay"]) == ("weight_decay_too_high", 10.0)


def test_steps_too_large_and_too_small(patient: Make) -> None:
    large = only(patient(small_vit(), lr=0.1))
    assert large.cause == "updates_too_large"
    assert large.numbers["ratio"] == pytest.approx(0.1 / 0.02, rel=0.1)  # Adam's first step is the lr everywhere
    small = only(patient(small_vit(), lr=1e-9))
    assert small.cause == "updates_too_small"


@pytest.mark.parametrize(
    ("dtype", "has_scaler", "expected"),
    [
        (torch.float16, False, ["fp16_without_scaler"]),
        (torch.float16, True, []),
        (torch.bfloat16, False, []),
    ],
)
def test_fp16_needs_a_scaler(patient: Make, dtype: torch.dtype, has_scaler: bool, expected: list[str]) -> None:
    model = small_vit()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=has_scaler)  # pyright: ignore[reportPrivateImportUsage]

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            loss = F.cross_entropy(model(images).float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    assert causes(patient(model, optimizer=optimizer, step=step)) == expected


def test_without_an_optimiser_nothing_is_said_of_it(patient: Make) -> None:
    one = patient()
    one.make_trainer = one.optimizer = None
    report = examined(one)
    left_out = {asked.check.name for asked in report.asked if asked.seen.left_out == "no_optimizer"}
    assert "step_size" in left_out
    assert "optimizer_reach" in left_out
    assert report.verdict == "healthy"


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_steps_that_climb(patient: Make, kind: Any) -> None:
    model = small_vit()
    assert causes(patient(model, optimizer=kind(model.parameters(), 1e-3, maximize=True))) == ["steps_uphill"]
    assert causes(patient(model, optimizer=kind(model.parameters(), 1e-3, weight_decay=1e-3))) == []


def test_a_minus_sign_in_a_step_of_ones_own(patient: Make) -> None:
    model = plain_cnn()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = -F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    assert causes(patient(model, optimizer=optimizer, step=step)) == ["steps_uphill"]


def test_a_group_that_is_held_still_is_not_trained(patient: Make) -> None:
    model = PlainViT()
    body = [one for name, one in model.named_parameters() if not name.startswith("head")]
    groups = [{"params": body, "lr": 0.0}, {"params": model.head.parameters()}]
    assert "not_in_optimizer" in causes(patient(model, optimizer=torch.optim.AdamW(groups, 1e-3)))
