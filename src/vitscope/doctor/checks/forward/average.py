"""Does the running mean of the weights, which is what gets evaluated, follow the weights?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient, as_logits, has_own_step
from vitscope.doctor.thresholds.forward import (
    AVERAGE_BEHIND,
    AVERAGE_MOST_STEPS,
    AVERAGE_PICTURES,
    AVERAGE_STEPS,
    BEGINNING_LEFT,
    KNOWS_NOTHING_SHARE,
    START_PICTURES,
)


def average(patient: Patient) -> Seen:
    if patient.evaluated is None or patient.evaluated is patient.model:
        return Seen(left_out="no_average")
    pairs = _pairs(patient.model, patient.evaluated)
    if not pairs:
        return Seen(left_out="no_average")
    model_loss, mean_loss, nothing = _losses(patient)
    seen = Seen(measured={"model_loss": model_loss, "average_loss": mean_loss})
    if mean_loss >= KNOWS_NOTHING_SHARE * nothing and model_loss < AVERAGE_BEHIND * mean_loss:
        seen.findings.append(Finding("ema_stale", 0.9, {"model_loss": model_loss, "average_loss": mean_loss}))
        return seen
    if patient.make_trainer is None or not has_own_step(patient.make_trainer()):
        return seen  # whatever moves the mean is not in the step at hand
    followed = _followed(patient, pairs)
    seen.measured["followed"] = followed
    facts = patient.facts
    steps = None if facts.epochs is None or facts.steps_per_epoch is None else facts.epochs * facts.steps_per_epoch
    numbers = {"model_loss": model_loss, "average_loss": mean_loss}
    if followed <= 0:  # no share of the way, of which there would be a power
        numbers |= {"toward": followed}
        seen.findings.append(Finding("ema_stale", 0.75 if steps is None else 0.85, numbers))
    elif steps is not None and (left := (1 - min(followed, 1.0)) ** steps) > BEGINNING_LEFT:
        numbers |= {"followed": followed, "left": left, "steps": steps}
        seen.findings.append(Finding("ema_stale", 0.85, numbers))
    return seen


def _pairs(model: nn.Module, mean: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Parameters of both by name; a wrapper (torch's AveragedModel) adds `module.` to the names."""
    held = {name.removeprefix("module."): parameter for name, parameter in mean.named_parameters()}
    named = ((name.removeprefix("module."), parameter) for name, parameter in model.named_parameters())
    return [(one, held[name]) for name, one in named if name in held and held[name].shape == one.shape]


@torch.no_grad()
def _losses(patient: Patient) -> tuple[float, float, float]:
    """Of the model, of its mean, and of one that knows nothing."""
    images, labels = patient.sample(START_PICTURES)
    mean = patient.evaluated
    patient.model.eval()
    logits = patient.logits(images)
    given = logits if mean is None else as_logits(mean.eval()(images))
    return tuple(float(patient.loss(one, labels)) for one in (logits, given, torch.zeros_like(logits)))  # pyright: ignore


def _followed(patient: Patient, pairs: list[tuple[Tensor, Tensor]]) -> float:
    """Share of the way from the mean to the weights that a step closes, on average over a few."""
    if patient.make_trainer is None:
        return 0.0
    trainer = patient.make_trainer()
    images, labels = patient.sample(AVERAGE_PICTURES)
    shares: list[float] = []
    for number in range(AVERAGE_MOST_STEPS):
        if number >= AVERAGE_STEPS and any(shares):
            break  # many update it only now and then
        before = [mean.detach().clone() for _, mean in pairs]
        trainer.step(images, labels)
        way = sum(float((one.detach() - old).pow(2).sum()) for (one, _), old in zip(pairs, before, strict=True))
        moves = zip(pairs, before, strict=True)
        gone = sum(float(((mean.detach() - old) * (one.detach() - old)).sum()) for (one, mean), old in moves)
        shares.append(gone / way if way > 0 else 0.0)
    return sum(shares) / len(shares)
