"""Is everything that must learn moved by the optimiser: the classifier above all, and weights that know nothing yet?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitscope.doctor.anatomy import looks_trained, norm_weights
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.calls import classifier_of
from vitscope.doctor.checks.backward.reach import names_and_share
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.one_step import PATIENCE, mean_gradient, step_batch
from vitscope.doctor.patient import Patient, Trainer, has_own_step
from vitscope.doctor.thresholds.backward import FORGOTTEN_SHARE, STILL_SHARE
from vitscope.doctor.thresholds.forward import FORWARD_PICTURES


def moved(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    parameters = dict(patient.model.named_parameters())
    trainer = patient.make_trainer()
    held, given = trainer.moved, _of_another_model(patient)
    if has_own_step(trainer) and any(one.requires_grad and name not in held for name, one in parameters.items()):
        # Copies of the weights may be what its optimiser holds (in fp32, of a model in halves).
        moves = _moved_by_step(patient, trainer)
        held, given = held | moves, None if moves else given
    still = [name for name, one in parameters.items() if not one.requires_grad or name not in held]
    forgotten = [name for name in still if parameters[name].requires_grad]
    total = sum(one.numel() for one in parameters.values())
    share = sum(parameters[name].numel() for name in still) / max(total, 1)
    seen = Seen(measured={"still": len(still), "share": share, "forgotten": len(forgotten)})
    if given is not None:
        told = {**names_and_share(patient, still), "given": given}
        seen.findings.append(Finding("not_in_optimizer", 0.97, told, ends=True))
        return seen
    head = _head(patient)
    rest = [name for name in still if head is None or not name.startswith(f"{head}.")]
    rest_share = sum(parameters[name].numel() for name in rest) / max(total, 1)
    has_learnt = patient.facts.is_pretrained or looks_trained(patient.model)
    if head is not None and f"{head}.weight" in still:
        is_forgotten = parameters[f"{head}.weight"].requires_grad
        if is_forgotten and rest_share >= STILL_SHARE and not has_learnt:
            rest = still  # forgotten with the rest, which is told below
        elif is_forgotten and (strangers := _replaced(patient, parameters[f"{head}.weight"])):
            told = names_and_share(patient, [name for name in still if name.startswith(f"{head}.")])
            seen.findings.append(Finding("not_in_optimizer", 0.95, {**told, "strangers": strangers}))
        else:
            how = "not in the optimizer" if is_forgotten else "requires_grad=False"
            seen.findings.append(Finding("head_frozen", 0.95, {"name": head, "how": how}))
    if rest_share >= STILL_SHARE:
        if has_learnt:
            seen.notes.append(Note("linear_probe", names_and_share(patient, rest)))
        else:
            seen.findings.append(Finding("not_in_optimizer", 0.95, names_and_share(patient, rest)))
    elif left := [name for name in rest if name in forgotten]:
        told = names_and_share(patient, left)
        if _are_missed(patient, left, total):
            seen.findings.append(Finding("not_in_optimizer", 0.85, told))
        else:
            seen.notes.append(Note("some_not_in_optimizer", told))
    return seen


def _moved_by_step(patient: Patient, trainer: Trainer) -> frozenset[str]:
    """Weights that the owner's step changes, taken until it changes any; as the schedule begins it may not."""
    parameters = dict(patient.model.named_parameters())
    before = {name: one.detach().clone() for name, one in parameters.items()}
    with as_it_came(patient):
        trainer.hold_lr(trainer.lr)
        batch = step_batch(patient, trainer)
        for _ in range(PATIENCE):
            trainer.step(*batch)
            if moves := frozenset(name for name, one in parameters.items() if not torch.equal(one, before[name])):
                return moves
    return frozenset()


def _of_another_model(patient: Patient) -> int | None:
    """How many parameters the optimiser holds, where none of them is the model's: the model was replaced after it."""
    if patient.optimizer is None:
        return None
    own = {id(one) for one in patient.model.parameters()}
    given = [one for group in patient.optimizer.param_groups for one in group["params"]]
    return None if any(id(one) in own for one in given) else len(given)


def _replaced(patient: Patient, weight: Tensor) -> int:
    """How many parameters the optimiser holds that are neither the model's nor the loss's, where one of them takes as
    many features as this weight: the layer that was there before."""
    if patient.optimizer is None:
        return 0
    homes = [one for one in (patient.model, patient.loss) if isinstance(one, nn.Module)]
    own = {id(one) for home in homes for one in home.parameters()}
    given = (one for group in patient.optimizer.param_groups for one in group["params"])
    strangers = [one for one in given if id(one) not in own]
    return len(strangers) if any(one.shape[1:] == weight.shape[1:] for one in strangers) else 0


def _are_missed(patient: Patient, names: list[str], total: int) -> bool:
    """Whether the loss reaches enough of them that have never learnt: a head beside, which is not used, does no harm.
    Where they have norms of their own, those tell; what else learns may have begun long ago."""
    parameters = dict(patient.model.named_parameters())
    if patient.facts.is_pretrained or sum(parameters[name].numel() for name in names) < FORGOTTEN_SHARE * total:
        return False
    norms = [name for name in norm_weights(patient.model) if name in names]
    if looks_trained(patient.model, norms or None):
        return False
    train_without_chance(patient.model)
    grads = mean_gradient(patient, *patient.sample(FORWARD_PICTURES))
    reached = sum(parameters[name].numel() for name in names if name in grads and grads[name].any())
    return reached >= FORGOTTEN_SHARE * total


def _head(patient: Patient) -> str | None:
    """The last layer, where it gives the logits."""
    images, _ = patient.sample(2)
    patient.model.eval()
    call = classifier_of(patient.model, images)
    return call.name if call is not None and call.gave.shape[call.class_axis] == patient.num_classes else None
