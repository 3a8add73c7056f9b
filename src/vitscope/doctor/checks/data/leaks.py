"""Are validation and test pictures kept from training?"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.data.dataset import Dataset
from vitscope.data.survey.near import SIDE, near_pairs
from vitscope.doctor.checks.data.cropped import found_cropped
from vitscope.doctor.checks.data.held_back import given_as_test, leak_into_test
from vitscope.doctor.checks.data.in_both import Common, common
from vitscope.doctor.checks.data.plain import is_varied
from vitscope.doctor.checks.data.stored import let_go_of_stored, stored_part
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import DISTINCT_SHARE, LEAKED_SHARE, WINDOW_PICTURES


def leaks(patient: Patient) -> Seen:
    seen = _into_validation(patient)
    if seen.left_out is None and patient.dataset is not None:
        told = (_into_test(patient, patient.dataset), given_as_test(patient.dataset))
        seen.findings += [one for one in told if isinstance(one, Finding)]
        seen.notes += [one for one in told if isinstance(one, Note)]
        seen.measured["test_found"] = next((one.numbers["found"] for one in told[:1] if one is not None), 0)
    let_go_of_stored(patient)  # nobody asks for them later
    return seen


def _into_validation(patient: Patient) -> Seen:
    if patient.val is None:
        return Seen(left_out="no_validation_part")
    train, val = glance(patient), glance(patient, "val")
    known = set(train.prints)
    if len(known) <= DISTINCT_SHARE * len(train):
        return Seen(left_out="pictures_are_all_alike")  # copies everywhere: that is the cause
    exact = sum(one in known for one in val.prints)
    best = Common(exact, exact / len(val), len(val), "exact", _is_cut(train, val))
    for way in (_near, partial(_cropped, patient), partial(_stored, patient)):
        if best.share < LEAKED_SHARE:
            found = way(train, val)
            best = found if found.share > best.share else best
    seen = Seen(measured=best.numbers)
    match best.verdict:
        case "leaked":
            confidence = 0.8 if best.kind == "near" else 0.95
            seen.findings.append(Finding("validation_leaked", confidence, best.numbers))
        case "few":
            seen.notes.append(Note("few_leaks", best.numbers))
        case "unclear":
            seen.notes.append(Note("leaks_unclear", best.numbers))
    return seen


def _near(train: Glance, val: Glance) -> Common:
    """Validation pictures that look like a training picture, and the share of all that would, if all were compared."""
    low, high = min(train.low, val.low), max(train.high, val.high)
    if high <= low or train.small.shape[1:] != val.small.shape[1:]:
        return Common(0, 0.0, len(val), "near")
    count = len(train.small)
    both = np.concatenate([_thumbnails(train.small, low, high), _thumbnails(val.small, low, high)])
    _, first = np.unique(both.reshape(len(both), -1), axis=0, return_index=True)
    first = np.sort(first)
    pairs = first[near_pairs(both[first]).pairs]
    crossing = pairs[(pairs[:, 0] < count) & (pairs[:, 1] >= count)]
    found = len(np.unique(crossing[:, 1]))
    return Common(found, found / len(val.small) * (len(train) / count), len(val), "near", _is_cut(train, val))


def _cropped(patient: Patient, train: Glance, val: Glance) -> Common:
    """Likewise those that training shows shifted or mirrored, where a loader varies them and nothing else is known."""
    if patient.dataset is not None or is_varied(patient) is False:
        return Common(0, 0.0, 0, "cropped")
    some = val.small[:WINDOW_PICTURES]
    found = found_cropped(train.small, some)
    share = found / len(some) * (len(train) / len(train.small))
    return Common(found, share, len(val), "cropped", _is_cut(train, val))


def _is_cut(train: Glance, val: Glance) -> bool:
    """Whether there are pictures that no look was taken at."""
    return not (train.is_whole and val.is_whole)


def _thumbnails(images: Tensor, low: float, high: float) -> np.ndarray:
    """(N, 16, 16, 3) bytes, on one scale for all."""
    small = F.interpolate(images, size=(SIDE, SIDE), mode="area") if images.shape[-1] > SIDE else images
    if small.shape[-2:] != (SIDE, SIDE):
        small = F.interpolate(small, size=(SIDE, SIDE), mode="nearest")
    bytes_ = ((small - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)
    colours = bytes_[:, :3] if bytes_.shape[1] >= 3 else bytes_[:, :1].expand(-1, 3, -1, -1)
    return colours.permute(0, 2, 3, 1).contiguous().numpy()


def _stored(patient: Patient, _: Glance, __: Glance) -> Common:
    """The same of pictures as they are stored: training may show each varied, so that none is found above."""
    if patient.dataset is None:
        return Common(0, 0.0, 0, "exact")
    train, val = patient.dataset.splits["train"], patient.dataset.splits["val"]
    same = len(np.intersect1d(train, val))
    if same:
        return Common(same, same / max(len(val), 1), len(val), "exact")
    if not is_varied(patient):
        return Common(0, 0.0, 0, "exact")  # what the loaders give is what is stored
    return common(stored_part(patient, patient.dataset, "train"), stored_part(patient, patient.dataset, "val"))


def _into_test(patient: Patient, dataset: Dataset) -> Finding | Note | None:
    if not len(dataset.splits["train"]) or not len(dataset.splits["test"]):
        return None
    return leak_into_test(stored_part(patient, dataset, "train"), stored_part(patient, dataset, "test"))
