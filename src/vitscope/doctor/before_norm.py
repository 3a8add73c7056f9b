"""Weights whose length the model does not see, because BatchNorm follows them.

Their gradient stands at right angles to them and shrinks as they grow: it may be long without meaning anything, and
SGD's steps that are too large make them longer and so the next steps smaller, until they fit (Arora, Li and Lyu 2019,
"Theoretical analysis of auto rate-tuning by batch normalization").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import nn
from torch.nn.modules.conv import _ConvNd

from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.calls import calls_of
from vitscope.doctor.modes import is_batch_norm, train_without_chance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.backward import BEFORE_NORM_PICTURES


def weights_before_batch_norm(patient: Patient) -> frozenset[str]:
    """Of linear layers and convolutions that hand what they give straight to a BatchNorm that looks at the batch."""
    if "before_norm" not in patient.tried:
        patient.tried["before_norm"] = frozenset(_found(patient))
    return patient.tried["before_norm"]


def share_before_batch_norm(patient: Patient, moved: Collection[str]) -> float:
    """Of the numbers in the weight matrices that are trained."""
    trained = {name: one for name, one in patient.model.named_parameters() if one.ndim > 1 and name in moved}
    total = sum(one.numel() for one in trained.values())
    return sum(trained[name].numel() for name in weights_before_batch_norm(patient) & trained.keys()) / max(total, 1)


def _found(patient: Patient) -> Iterator[str]:
    """What a BatchNorm is given lies in memory where a layer left it, plain or after a ReLU in place, which does not
    see lengths either."""
    with as_it_came(patient):
        images, _ = patient.sample(BEFORE_NORM_PICTURES)
        train_without_chance(patient.model)
        left: dict[int, str] = {}
        for call in calls_of(patient.model, images, lambda module: _has_weights(module) or is_batch_norm(module)):
            if _has_weights(call.module):
                left[call.gave.data_ptr()] = f"{call.name}.weight"
            elif _looks_at_the_batch(call.module) and call.given.data_ptr() in left:
                yield left[call.given.data_ptr()]


def _has_weights(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | _ConvNd)


def _looks_at_the_batch(module: nn.Module) -> bool:
    """A frozen one keeps to what it knows (`training_mode`)."""
    own = list(module.parameters())
    return is_batch_norm(module) and (not own or any(one.requires_grad for one in own))
