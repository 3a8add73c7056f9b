"""Are validation and test pictures kept from training?"""

from __future__ import annotations

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
from vitscope.doctor.checks.data.stored import stored_part
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import DISTINCT_SHARE, LEAKED_PICTURES, LEAKED_SHARE, WINDOW_PICTURES


def leaks(patient: Patient) -> Seen:
    seen = _into_validation(patient)
    if seen.left_out is None and patient.dataset is not None:
        told = (_into_test(patient, patient.dataset), given_as_test(patient.dataset))
        seen.findings += [one for one in told if isinstance(one, Finding)]
        seen.notes += [one for one in told if isinstance(one, Note)]
        seen.measured["test_found"] = next((one.numbers["found"] for one in told[:1] if one is not None), 0)
    return seen


def _into_validation(patient: Patient) -> Seen:
    if patient.val is None:
        return Seen(left_out="no_validation_part")
    train, val = glance(patient), glance(patient, "val")
    known = set(train.prints)
    if len(known) <= DISTINCT_SHARE * len(train):
        return Seen(left_out="pictures_are_all_alike")  # copies everywhere: that is the cause
    exact = sum(one in known for one in val.prints)
    share, kind, found, pictures = exact / len(val), "exact", exact, len(val)
    if share < LEAKED_SHARE:
        near, near_share = _near(train, val)
        if near_share > share:
            share, kind, found = near_share, "near", near
    if share < LEAKED_SHARE and patient.dataset is None and is_varied(patient) is not False:
        some = val.small[:WINDOW_PICTURES]
        cropped = found_cropped(train.small, some)
        # Of those compared, and as if all of training had been.
        cropped_share = cropped / len(some) * (len(train) / len(train.small))
        if cropped_share > share:
            share, kind, found = cropped_share, "cropped", cropped
    if share < LEAKED_SHARE and patient.dataset is not None:
        stored = _stored(patient, patient.dataset)
        if stored.share > share:
            share, kind, found, pictures = stored.share, stored.kind, stored.found, stored.pictures
    numbers = {"found": found, "share": min(share, 1.0), "pictures": pictures, "kind": kind}
    seen = Seen(measured=dict(numbers))
    if found >= LEAKED_PICTURES and share >= LEAKED_SHARE:
        seen.findings.append(Finding("validation_leaked", 0.8 if kind == "near" else 0.95, numbers))
    elif found:
        seen.notes.append(Note("few_leaks", numbers))
    return seen


def _near(train: Glance, val: Glance) -> tuple[int, float]:
    """Validation pictures that look like a training picture, and the share of all that would, if all were compared."""
    low, high = min(train.low, val.low), max(train.high, val.high)
    if high <= low or train.small.shape[1:] != val.small.shape[1:]:
        return 0, 0.0
    count = len(train.small)
    both = np.concatenate([_thumbnails(train.small, low, high), _thumbnails(val.small, low, high)])
    _, first = np.unique(both.reshape(len(both), -1), axis=0, return_index=True)
    first = np.sort(first)
    pairs = first[near_pairs(both[first]).pairs]
    crossing = pairs[(pairs[:, 0] < count) & (pairs[:, 1] >= count)]
    found = len(np.unique(crossing[:, 1]))
    return found, found / len(val.small) * (len(train) / count)


def _thumbnails(images: Tensor, low: float, high: float) -> np.ndarray:
    """(N, 16, 16, 3) bytes, on one scale for all."""
    small = F.interpolate(images, size=(SIDE, SIDE), mode="area") if images.shape[-1] > SIDE else images
    if small.shape[-2:] != (SIDE, SIDE):
        small = F.interpolate(small, size=(SIDE, SIDE), mode="nearest")
    bytes_ = ((small - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)
    colours = bytes_[:, :3] if bytes_.shape[1] >= 3 else bytes_[:, :1].expand(-1, 3, -1, -1)
    return colours.permute(0, 2, 3, 1).contiguous().numpy()


def _stored(patient: Patient, dataset: Dataset) -> Common:
    """The same of pictures as they are stored: training may show each varied, so that none is found above."""
    train, val = dataset.splits["train"], dataset.splits["val"]
    same = len(np.intersect1d(train, val))
    if same:
        return Common(same, same / max(len(val), 1), len(val), "exact")
    if not is_varied(patient):
        return Common(0, 0.0, 0, "exact")  # what the loaders give is what is stored
    return common(stored_part(patient, dataset, "train"), stored_part(patient, dataset, "val"))


def _into_test(patient: Patient, dataset: Dataset) -> Finding | Note | None:
    if not len(dataset.splits["train"]) or not len(dataset.splits["test"]):
        return None
    return leak_into_test(stored_part(patient, dataset, "train"), stored_part(patient, dataset, "test"))
