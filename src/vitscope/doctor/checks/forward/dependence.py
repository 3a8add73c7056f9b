"""Does what the classifier sees depend on the picture, only on this picture, and each time alike?"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from vitscope.doctor.calls import classifier_of, pass_with
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.modes import is_batch_norm
from vitscope.doctor.patient import Patient
from vitscope.doctor.still import still
from vitscope.doctor.thresholds.forward import COMPANY_SHARE, FORWARD_PICTURES, NO_SPREAD, ROUNDINGS

SEVERAL = 4
"""Pictures that are looked at in other company."""


@torch.no_grad()
def dependence(patient: Patient) -> Seen:
    images, _ = patient.sample(FORWARD_PICTURES)
    if len(images) < 2 * SEVERAL or not images.std(0).any():
        return Seen(left_out="too_few_pictures")
    patient.model.eval()
    # BatchNorm that has seen nothing yet divides by 1: a deep network may then give the same for all, and is not ill.
    with still(patient.model, images) if _knows_no_pictures(patient.model) else contextlib.nullcontext():
        features = features_of(patient, images)
        size, spread = _size(features), _size(features - features.mean(0))
        again = _size(features_of(patient, images) - features)
        company = _company(patient, images, features)
    seen = Seen(measured={"size": size, "spread": spread, "again": again, "company": company})
    rounding = ROUNDINGS * torch.finfo(features.dtype).eps * size
    if spread <= max(NO_SPREAD * size, 0.0):
        seen.findings.append(Finding("output_ignores_input", 0.95, {"spread": spread, "size": size}, ends=True))
    elif again > max(COMPANY_SHARE * spread, rounding):
        seen.findings.append(Finding("random_in_eval", 0.8, {"again": again / spread}))
    elif company > max(COMPANY_SHARE * spread, rounding):
        seen.findings.append(Finding("batch_mixes_pictures", 0.95, {"company": company / spread, "pictures": SEVERAL}))
    return seen


def _knows_no_pictures(model: nn.Module) -> bool:
    norms = [module for module in model.modules() if is_batch_norm(module)]
    return any(norm.num_batches_tracked is not None and int(norm.num_batches_tracked) == 0 for norm in norms)  # pyright: ignore


def features_of(patient: Patient, images: Tensor) -> Tensor:
    """What the last linear layer is given, a row for each picture (a new head may be all zeros and say nothing), else
    the logits."""
    head = classifier_of(patient.model, images[:2])
    rows = pass_with(patient.model, images, {}, None if head is None else head.module)
    if rows.shape[0] != len(images):
        rows = pass_with(patient.model, images, {})
    return rows.flatten(1)


def _company(patient: Patient, images: Tensor, features: Tensor) -> float:
    """How much the first pictures' features change when all others in the batch are exchanged for one of them."""
    others = images[-1:].expand(len(images) - SEVERAL, *images.shape[1:])
    in_other_company = features_of(patient, torch.cat((images[:SEVERAL], others)))
    return _size(in_other_company[:SEVERAL] - features[:SEVERAL])


def _size(values: Tensor) -> float:
    return float(values.double().pow(2).mean().sqrt())
