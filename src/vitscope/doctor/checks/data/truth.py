"""Do labels have to do with their pictures? Asked of features that need no training, so that whatever the model does
wrong is no excuse for the labels, nor they for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitscope.doctor.checks.data.apart import apart
from vitscope.doctor.checks.data.plain import is_varied, plain_pictures
from vitscope.doctor.experiments.probe import Predicted, predict_other
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import (
    CHANCE_Z,
    GLANCE_KEPT,
    NOISE_AGREEMENT,
    NOISE_AGREEMENT_OF_FEW,
    NOISE_IN_BOTH,
    NOISE_IN_PLAIN,
    NOISE_IN_VARIED,
    NOISE_LOW,
    NOISE_LOW_RISE,
    NOISE_PICTURES,
    PROBE_PER_CLASS,
    PROBE_PICTURES,
    SHUFFLED_PICTURES,
    SPLIT_SHARE,
    SPLIT_Z,
)

MIXED = 0.9
"""A picture with less of its main class than this shows another class too."""


@dataclass(frozen=True)
class _Labelled:
    images: Tensor
    labels: Tensor


def truth_of_labels(patient: Patient) -> Seen:
    train, val = _training(patient), _validation(patient)
    if train is None:
        return Seen(left_out="labels_are_no_classes")
    if not len(train.labels):  # that could be read in time
        return Seen(left_out="too_few_to_judge")
    classes, counts = train.labels.unique(return_counts=True)
    if len(classes) < 2:
        return Seen(left_out="one_class_only")
    if len(train.labels) < PROBE_PICTURES or len(train.labels) < PROBE_PER_CLASS * len(classes):
        return Seen(left_out="too_few_to_judge")
    if len(train.labels) - int(counts.max()) < PROBE_PICTURES / 2:  # too few others to tell from the largest class
        return Seen(left_out="one_class_only")
    if float(train.images.flatten(1).std(0).max()) == 0:
        return Seen(left_out="pictures_are_all_alike")
    others = train.images[:0] if val is None else val.images
    other_labels = train.labels[:0] if val is None else val.labels
    own, held_out = predict_other(train.images, train.labels, others, other_labels)
    agrees, low, confident = own.confident()
    numbers = {
        "agreement": own.agreement,
        "chance": own.chance,
        "pictures": len(train.labels),
        "z": own.above_chance,
        "confident": confident,
        "agrees": agrees,
        "low": low,
        "noise": min(1.0, 2 * low),
    }
    seen = Seen(measured=dict(numbers))
    has_held_out = len(held_out.labels) >= PROBE_PICTURES
    if has_held_out:
        seen.measured |= {"held_out_agreement": held_out.agreement, "held_out_z": held_out.above_chance}
    if own.above_chance < CHANCE_Z:
        return _at_chance(seen, val, numbers)
    if has_held_out and (found := apart(own, held_out, _range(train, val, patient))) is not None:
        seen.findings.append(found)
        return seen
    seen.findings += _noise(patient, own, held_out if has_held_out else None, numbers)
    return seen


def _at_chance(seen: Seen, val: _Labelled | None, numbers: dict[str, float]) -> Seen:
    """Nothing predicts the labels. Whether something could is seen where validation's own labels can be predicted; with
    no such proof it is still what shuffled labels look like, and hardly any others; but of few pictures."""
    is_proven = False
    if val is not None and len(val.labels) >= PROBE_PICTURES and len(val.labels.unique()) > 1:
        nothing = (val.images[:0], val.labels[:0])
        among, _ = predict_other(val.images, val.labels, *nothing)
        seen.measured["validation_z"] = among.above_chance
        is_proven = among.above_chance > 2 * CHANCE_Z
    unproven = 0.75 if numbers["pictures"] >= SHUFFLED_PICTURES else 0.4
    seen.findings.append(Finding("labels_shuffled", 0.95 if is_proven else unproven, numbers, ends=is_proven))
    return seen


def _noise(patient: Patient, own: Predicted, held_out: Predicted | None, numbers: dict[str, float]) -> list[Finding]:
    """Two ways to see it: labels that are among the least likely classes of pictures that are easy to tell; and, where
    training and validation pictures are treated alike, validation labels that are predicted better."""
    is_plain_pictures = patient.dataset is not None or is_varied(patient) is False
    agrees, low, _ = own.confident()
    allowed = NOISE_LOW + NOISE_LOW_RISE * (1 - agrees)
    is_plain = agrees >= NOISE_AGREEMENT_OF_FEW and low > allowed
    strange, factor = NOISE_IN_PLAIN if is_plain_pictures else NOISE_IN_VARIED
    is_enough = agrees >= NOISE_AGREEMENT and len(own.labels) >= NOISE_PICTURES
    is_strange = is_enough and low > factor * allowed and own.strangeness() > strange
    is_seen = own.classes > 3 and (is_plain or is_strange)
    is_better = False
    if held_out is not None:
        gap = held_out.agreement - own.agreement
        error = sum(_variance(one) for one in (own, held_out)) ** 0.5
        is_better = gap > SPLIT_Z * error and gap > SPLIT_SHARE * held_out.agreement and is_varied(patient) is False
        # Varied pictures are harder to predict than validation's anyway: both ways must see it, neither as plainly.
        low_enough = low > NOISE_IN_BOTH[0] * allowed and own.strangeness() > NOISE_IN_BOTH[1] and is_enough
        is_seen |= low_enough and gap > NOISE_IN_BOTH[2] * error and gap > NOISE_IN_BOTH[3] * held_out.agreement
    if not is_seen and not is_better:
        return []
    if held_out is not None:
        numbers = {**numbers, "held_out": held_out.agreement}
    return [Finding("label_noise", 0.9 if is_seen and is_better else 0.75, numbers)]


def _variance(one: Predicted) -> float:
    """Of its agreement; never 0, for no agreement is known for sure."""
    share = min(max(one.agreement, 0.01), 0.99)
    return share * (1 - share) / len(one.labels)


def _range(train: _Labelled, val: _Labelled | None, patient: Patient) -> dict[str, int]:
    labels = train.labels if val is None else torch.cat([train.labels, val.labels])
    return {
        "least": int(labels.min()),
        "largest": int(labels.max()),
        "classes": len(labels.unique()),
        "outputs": patient.num_classes,
        "wrong": len(train.labels),
        "pictures": len(labels),
    }


def _training(patient: Patient) -> _Labelled | None:
    looked = glance(patient)
    if not looked.has_classes:
        return None
    if patient.dataset is not None and is_varied(patient):  # mixed pictures come twice, varied ones are hard to predict
        return _Labelled(*plain_pictures(patient.dataset, "train", GLANCE_KEPT))
    plain = looked.share[: len(looked.small)] >= MIXED
    return _Labelled(looked.small[plain], looked.labels[: len(plain)][plain])


def _validation(patient: Patient) -> _Labelled | None:
    if patient.val is None:
        return None
    if patient.dataset is not None and is_varied(patient):
        return _Labelled(*plain_pictures(patient.dataset, "val", GLANCE_KEPT // 2))
    looked: Glance = glance(patient, "val")
    train = glance(patient)
    if not looked.has_classes or looked.small.shape[1:] != train.small.shape[1:]:
        return None
    half = GLANCE_KEPT // 2  # enough to judge by, and features cost time
    known = set(train.prints)  # a copy of a training picture is predicted by itself
    new = torch.tensor([one not in known for one in looked.prints[: min(half, len(looked.small))]])
    return _Labelled(looked.small[: len(new)][new], looked.labels[: len(new)][new])
