"""What a forward pass gives away: each fault is named, with its numbers, and its healthy neighbour is not."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.conftest import CLASSES, pictures, small_vit
from doctor.healthy import PlainBlock, PlainViT, healthy, plain_cnn
from doctor.seen import causes
from vitscope.core.config import updated
from vitscope.doctor.causes import NOTES, cause_for
from vitscope.doctor.checks import forward
from vitscope.doctor.checks.forward.average import average
from vitscope.doctor.checks.forward.position import position, shuffled_patches
from vitscope.doctor.examination import Report, examine
from vitscope.doctor.finding import Change, Finding
from vitscope.doctor.patient import Patient
from vitscope.doctor.settings_door import examine_settings
from vitscope.recipes import find_recipe

Make = Callable[..., Patient]


def examined(one: Patient) -> Report:
    """Whatever is found can be said, in both languages."""
    report = examine(one, forward.CHECKS)
    for finding in report.findings:
        cause = cause_for(finding.cause, finding.numbers)
        for text in (cause.title, cause.evidence, cause.cost, cause.action, cause.effect):
            assert text.said("en", finding.numbers)
            assert text.said("zh", finding.numbers)
    for note in report.notes:
        assert NOTES[note.name].text.said("zh", note.numbers)
    return report


def first(one: Patient) -> Finding:
    """The likeliest."""
    return examined(one).findings[0]


class Then(nn.Module):
    """A model and something after it."""

    def __init__(self, model: nn.Module, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.then = model, then

    def forward(self, images: Tensor) -> Tensor:
        return self.then(self.model(images))


def scaled(model: nn.Module, times: float) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(times)
    return model


def test_a_table_of_the_wrong_size_is_told_from_other_failures(patient: Make) -> None:
    model = PlainViT()
    model.pos_embed = nn.Parameter(torch.randn(1, 64, 64), requires_grad=False)
    found = first(patient(model))
    assert (found.cause, found.numbers["rows"], found.numbers["patches"]) == ("position_table_wrong_size", 64, 16)
    assert found.ends
    one = patient()
    one.model = nn.Sequential(nn.Flatten(), nn.Linear(5, CLASSES))
    assert first(one).cause == "forward_fails"


def test_the_shape_of_the_output(patient: Make) -> None:
    found = first(patient(Then(PlainViT(), lambda logits: logits[:, None]), num_classes=CLASSES))
    assert (found.cause, found.numbers["shape"]) == ("output_shape_wrong", (16, 1, CLASSES))
    assert first(patient(num_classes=7)).cause == "output_shape_wrong"


def test_the_first_layer_that_is_not_finite_is_named(patient: Make) -> None:
    model = PlainViT()
    model.blocks[1].fc1.weight.data[0, 0] = math.nan  # pyright: ignore
    found = first(patient(model))
    assert (found.cause, found.numbers["layer"]) == ("outputs_not_finite", "blocks.1.fc1")
    assert "blocks.1.fc1.weight" in found.numbers["bad_weights"]


def test_softmax_before_the_loss(patient: Make) -> None:
    found = first(patient(Then(plain_cnn(), lambda logits: logits.softmax(-1))))
    assert found.cause == "softmax_before_loss"
    assert found.numbers["floor"] == pytest.approx(math.log(math.e + CLASSES - 1) - 1, abs=1e-3)
    in_the_loss = patient(plain_cnn(), loss=lambda logits, labels: F.cross_entropy(logits.softmax(-1), labels))
    assert first(in_the_loss).cause == "softmax_before_loss"


class ConvHead(nn.Module):
    """Its logits come from a convolution: no linear layer can be made to shout."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.end = nn.Conv2d(3, 8, 3), nn.Conv2d(8, CLASSES, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.end(self.body(images).relu()).mean((-2, -1))


@pytest.mark.parametrize("end", [nn.ReLU(), nn.GELU(), nn.SiLU(), nn.LeakyReLU(0.01)])
def test_an_activation_behind_the_last_layer(patient: Make, end: nn.Module) -> None:
    found = first(patient(Then(plain_cnn(), end)))
    assert found.cause == "relu_before_loss"
    assert found.confidence >= 0.5


@pytest.mark.parametrize("end", [nn.Identity(), nn.LeakyReLU(0.2), lambda logits: 30 * (logits / 30).tanh()])
def test_what_lets_both_signs_through_is_no_such_activation(patient: Make, end: Callable[[Tensor], Tensor]) -> None:
    assert [one.cause for one in examined(patient(Then(plain_cnn(), end))).findings] == []


@pytest.mark.parametrize("ends", [False, True])
def test_an_activation_behind_a_convolution_that_classifies(patient: Make, ends: bool) -> None:
    """As SqueezeNet has it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, CLASSES, 1), nn.ReLU() if ends else nn.Identity(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    assert ("relu_before_loss" in [one.cause for one in examined(patient(model)).findings]) == ends


def test_small_logits_of_another_head_are_no_softmax(patient: Make) -> None:
    torch.manual_seed(0)
    assert "softmax_before_loss" not in [one.cause for one in examined(patient(ConvHead())).findings]


def test_a_model_that_asserts_its_sizes_is_told(patient: Make) -> None:
    class Asserts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, CLASSES)

        def forward(self, images: Tensor) -> Tensor:
            torch._assert(images.shape[-1] == 224, "Wrong image height!")
            return self.head(images.mean((2, 3)))

    found = first(patient(Asserts()))
    assert (found.cause, found.numbers["message"]) == ("forward_fails", "Wrong image height!")


@pytest.mark.parametrize("then", [torch.sigmoid, torch.tanh], ids=["sigmoid", "tanh"])
def test_anything_that_leaves_little_room(patient: Make, then: Callable[[Tensor], Tensor]) -> None:
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.1)
    found = first(patient(Then(healthy("plain cnn"), then), loss=smoothed))
    assert found.cause == "softmax_before_loss"
    assert found.numbers["most"] == pytest.approx(1.0)
    assert found.numbers["least"] == pytest.approx(0.0 if then is torch.sigmoid else -1.0)


@pytest.mark.parametrize(
    ("then", "loss"),
    [
        (lambda logits: logits.softmax(-1), lambda shares, labels: F.nll_loss(shares.clamp_min(1e-9).log(), labels)),
        (lambda logits: logits.log_softmax(-1), F.nll_loss),
        (lambda logits: logits, nn.CrossEntropyLoss(label_smoothing=0.1)),
    ],
    ids=["a loss of probabilities", "log-probabilities", "smoothing"],
)
def test_losses_that_fit_their_model(patient: Make, then: Callable[[Tensor], Tensor], loss: Any) -> None:
    causes = [finding.cause for finding in examined(patient(Then(healthy("plain cnn"), then), loss=loss)).findings]
    assert "softmax_before_loss" not in causes


@pytest.mark.parametrize("name", ["vit_tiny", "plain cnn", "timm vit", "resnet18"])
def test_how_weights_begin(patient: Make, name: str) -> None:
    large = first(patient(scaled(healthy(name), 50)))
    assert large.cause in ("init_too_large", "outputs_not_finite")
    zero = first(patient(scaled(healthy(name), 0)))
    assert (zero.cause, zero.ends) == ("init_zero", True)


def test_a_large_head_and_large_pictures_are_told_apart(patient: Make) -> None:
    model = healthy("plain cnn")
    model[-1].weight.data.mul_(400)  # pyright: ignore
    found = first(patient(model))
    assert found.cause == "loss_wrong_at_start"
    assert found.numbers["expected"] == pytest.approx(math.log(CLASSES))
    images, labels = pictures()
    assert first(patient(healthy("plain cnn"), images * 60 + 120, labels)).cause == "input_upsets_model"


class Mixer(nn.Module):
    """Sees tokens of other pictures: the batch and the tokens are exchanged by a reshape."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.block, self.head = nn.Conv2d(3, 64, 4, 4), PlainBlock(), nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patch(images).flatten(2).transpose(1, 2)
        return self.head(self.block(tokens.transpose(0, 1).reshape(tokens.shape)).mean(1))


def test_each_picture_for_itself(patient: Make) -> None:
    torch.manual_seed(0)
    assert first(patient(Mixer())).cause == "batch_mixes_pictures"
    blind = nn.Sequential(plain_cnn(), nn.Threshold(1e6, 0.0), nn.Linear(CLASSES, CLASSES))
    assert first(patient(blind)).cause == "output_ignores_input"
    noisy = nn.Sequential(*plain_cnn()[:-1], Then(nn.Identity(), lambda x: F.dropout(x, 0.5, True)), nn.Linear(64, 4))  # pyright: ignore
    assert first(patient(noisy)).cause == "random_in_eval"


def test_positions(patient: Make) -> None:
    torch.manual_seed(0)
    assert first(patient(PlainViT(has_position=False))).cause == "no_position_information"
    assert first(patient(small_vit(position="none"))).cause == "no_position_information"
    frozen = PlainViT()
    frozen.pos_embed = nn.Parameter(torch.randn(1, 1, 64).expand(1, 16, 64).clone(), requires_grad=False)
    assert first(patient(frozen)).cause == "no_position_information"


def test_large_pixels_do_not_hide_positions(patient: Make) -> None:
    images, labels = pictures(size=32)
    raw = (images.clamp(-3, 3) + 3) * 425
    asked = {"images": raw, "labels": labels, "val_loader": None}
    model = {"img_size": 32, "patch_size": 16}
    assert causes(position(patient(small_vit(**model), **asked))) == []
    assert causes(position(patient(small_vit(**model, position="none"), **asked))) == ["no_position_information"]


def test_patches_change_places_and_nothing_else() -> None:
    images = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8)
    order = torch.tensor([2, 0, 3, 1])
    moved = shuffled_patches(images, (4, 4), order)
    assert torch.equal(moved[:, :, :4, :4], images[:, :, 4:, :4])
    assert torch.equal(moved[:, :, :4, 4:], images[:, :, :4, :4])
    assert torch.equal(shuffled_patches(moved, (4, 4), order.argsort()), images)


def test_inside_attention(patient: Make) -> None:
    torch.manual_seed(0)
    unscaled = first(patient(PlainViT(is_scaled=False)))
    assert (unscaled.cause, unscaled.numbers["count"]) == ("attention_scale_missing", 3)
    assert unscaled.numbers["times"] == 4.0
    unturned = first(patient(PlainViT(turns_back=False)))
    assert (unturned.cause, unturned.numbers["count"]) == ("heads_merged_wrongly", 3)
    both = examined(patient(PlainViT(turns_back=False, is_scaled=False))).findings
    assert {finding.cause for finding in both} == {"heads_merged_wrongly", "attention_scale_missing"}


def test_attention_of_other_houses_without_its_scale(patient: Make) -> None:
    ours = small_vit()

    def unscaled(self: Any, x: Tensor, rope: object = None) -> Tensor:
        q, k, v = self._heads(self.qkv(x), rope)
        mixed = F.scaled_dot_product_attention(q, k, v, scale=1.0)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    for block in ours.blocks:  # pyright: ignore
        block.attn.forward = unscaled.__get__(block.attn)
    timm = healthy("timm vit")
    for block in timm.blocks:  # pyright: ignore
        block.attn.fused_attn, block.attn.scale = False, 1.0
    assert first(patient(ours)).cause == "attention_scale_missing"
    assert first(patient(timm)).cause == "attention_scale_missing"


def test_residuals_and_norms(patient: Make) -> None:
    torch.manual_seed(0)
    lost = first(patient(PlainViT(keeps_input=False)))
    assert (lost.cause, lost.numbers["count"], lost.numbers["of"]) == ("residual_missing", 5, 5)
    assert first(patient(PlainViT(norm=lambda dim: nn.Identity()))).cause == "normalisation_missing"
    ours = small_vit()
    for block in ours.blocks:  # pyright: ignore
        block.norm1, block.norm2 = nn.Identity(), nn.Identity()
    assert first(patient(ours)).cause == "normalisation_missing"


def test_one_block_and_a_class_token_is_healthy(patient: Make) -> None:
    """Without its only attention the class token knows nothing of the picture, residual connection or not."""
    causes = [finding.cause for finding in examined(patient(small_vit(depth=1))).findings]
    assert "residual_missing" not in causes


def test_a_deep_plain_network_with_batch_norm_is_healthy(patient: Make) -> None:
    """In evaluation mode and untrained it gives the same for all pictures, since its BatchNorm has seen none."""
    torch.manual_seed(0)
    blocks = [part for _ in range(16) for part in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))
    one = patient(model)
    features = model.eval()[:-1](one.sample(32)[0])
    assert features.std(0).max() < 1e-4 * features.abs().mean()
    assert "output_ignores_input" not in [finding.cause for finding in examined(one).findings]


def test_left_to_chance(patient: Make) -> None:
    found = first(patient(small_vit(drop_rate=0.9)))
    assert (found.cause, found.numbers["rate"]) == ("dropout_too_high", 0.9)
    cnn = nn.Sequential(
        *[nn.Dropout(0.9) if isinstance(layer, nn.Dropout) else layer for layer in healthy("plain cnn")]
    )  # pyright: ignore
    assert first(patient(cnn)).cause == "dropout_too_high"


@pytest.mark.parametrize("turns_to_eval", [False, True])
def test_the_mode_of_the_evaluation(patient: Make, turns_to_eval: bool) -> None:
    model, (images, _), batches = healthy("resnet18"), pictures(64), []

    def evaluate() -> None:
        if turns_to_eval:
            model.eval()
        for part in images.split(8):
            batches.append(model(part))

    causes = [finding.cause for finding in examined(patient(model, evaluate=evaluate)).findings]
    assert causes == ([] if turns_to_eval else ["evaluated_in_train_mode"])
    assert batches == []  # the first batch was enough


def test_train_mode_of_a_model_without_chance_is_a_note(patient: Make) -> None:
    model = PlainViT()
    report = examined(patient(model, evaluate=lambda: model(pictures(8)[0])))
    assert [note.name for note in report.notes] == ["train_mode_without_harm"]
    assert report.findings == []


@pytest.mark.parametrize(("decay", "causes"), [(0.9, []), (1.0, ["ema_stale"]), (0.99999, ["ema_stale"])])
def test_a_running_mean_must_follow(patient: Make, decay: float, causes: list[str]) -> None:
    model = small_vit()
    mean = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for held, live in zip(mean.parameters(), model.parameters(), strict=True):
                held.lerp_(live, 1 - decay)
        return loss.detach()

    one = patient(model, optimizer=optimizer, step=step, evaluated=mean, epochs=10)
    report = examined(one)
    assert [finding.cause for finding in report.findings] == causes
    evidence = [cause_for(found.cause, found.numbers).evidence for found in report.findings]
    assert ["no nearer" in text.en for text in evidence] == [decay == 1.0 for _ in evidence]


@pytest.mark.parametrize("epochs", [10, None])
def test_a_mean_that_goes_away_from_the_weights_is_told_in_words(patient: Make, epochs: int | None) -> None:
    model = small_vit()
    mean = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for held, live in zip(mean.parameters(), model.parameters(), strict=True):
                held.lerp_(live, -0.1)
        return loss.detach()

    (found,) = average(patient(model, optimizer=optimizer, step=step, evaluated=mean, epochs=epochs)).findings
    assert found.cause == "ema_stale"
    evidence = cause_for(found.cause, found.numbers).evidence
    for said in (evidence.said("en", found.numbers), evidence.said("zh", found.numbers)):
        assert max(len(number) for number in re.findall(r"\d+", said)) < 4, said
    assert "no nearer" in evidence.en


def test_a_mean_left_behind_by_a_trained_model(patient: Make) -> None:
    model = small_vit()
    mean = copy.deepcopy(model)
    one = patient(model, evaluated=mean)
    assert one.make_trainer is not None
    trainer = one.make_trainer()
    for _ in range(10):
        for images, labels in one.train():
            trainer.step(images, labels)
    assert first(one).cause == "ema_stale"


def test_logits_for_a_loss_that_wants_log_probabilities(patient: Make) -> None:
    found = first(patient(loss=nn.NLLLoss()))
    assert (found.cause, found.ends) == ("log_softmax_missing", True)
    assert found.picture is not None
    sound = Then(PlainViT(), lambda logits: logits.log_softmax(-1))
    assert examined(patient(sound, loss=nn.NLLLoss())).findings == []
    for loss in (nn.CrossEntropyLoss(label_smoothing=0.1), nn.MultiMarginLoss()):
        assert examined(patient(loss=loss)).findings == []


def test_dropout_that_the_classifier_sees_names_its_setting() -> None:
    config = find_recipe("digits_vit")()
    heavy = updated(config, model=config.model.changed(drop_rate=0.7))
    (found,) = examine_settings(heavy, only=["left_to_chance"]).findings
    assert (found.cause, found.changes) == ("dropout_too_high", (Change("model.drop_rate", 0.1),))
