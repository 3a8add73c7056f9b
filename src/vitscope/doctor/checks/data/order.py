"""Are training pictures shuffled? Sorted by class, each stretch of training unlearns the one before."""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.data import FEW, SORTED_SHARE, SORTED_STRETCH

DRAWN = 300
"""Pictures the plot shows."""


def order_of_classes(patient: Patient) -> Seen:
    looked = glance(patient)
    labels = looked.labels
    if not looked.has_classes:
        return Seen(left_out="labels_are_no_classes")
    if len(labels) < 2 * FEW:
        return Seen(left_out="too_few_to_judge")
    stretch = max(SORTED_STRETCH, min(looked.batch, len(labels) // 4))
    met, expected = _classes_met(labels, stretch)
    classes = len(labels.unique())
    measured = {"stretch": stretch, "classes_met": round(met, 2), "classes_if_shuffled": round(expected, 2)}
    seen = Seen(measured=measured)
    one_class_so_far = classes == 1 and not looked.is_whole and patient.num_classes > 1
    if one_class_so_far:
        expected = float(min(stretch, patient.num_classes))
    if one_class_so_far or (expected > 1.5 and (met - 1) < SORTED_SHARE * (expected - 1)):
        numbers = {"stretch": stretch, "met": met, "expected": expected, "pictures": len(labels)}
        seen.findings.append(Finding("data_sorted", 0.93, numbers, picture=_picture(labels)))
    return seen


def _classes_met(labels: Tensor, stretch: int) -> tuple[float, float]:
    """Mean number of classes in a stretch, as it comes and as chance would have it."""
    count = len(labels) // stretch * stretch
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    met, expected = (
        sum(len(one.unique()) for one in some[:count].split(stretch)) / (count // stretch)
        for some in (labels, shuffled)
    )
    return met, expected


def _picture(labels: Tensor) -> Picture:
    drawn = labels[torch.linspace(0, len(labels) - 1, min(DRAWN, len(labels))).long()]
    line = Line("class", [float(n) for n in range(len(drawn))], [float(label) for label in drawn])
    return Picture("Class of each training picture, in order", "picture", "class", [line])
