"""Are there enough patches for attention to work on?"""

from __future__ import annotations

from vitscope.doctor.anatomy import looks_trained
from vitscope.doctor.attention_parts import has_attention
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.setting_numbers import patch_numbers
from vitscope.doctor.thresholds.settings import COARSE_TOKENS


def patches(patient: Patient) -> Seen:
    facts = patient.facts
    if not has_attention(patient.model):
        return Seen(left_out="no_patches")
    if facts.patch_size is None or facts.img_size is None:
        return Seen(left_out="patches_not_known")
    numbers = patch_numbers(facts.img_size, facts.patch_size)
    tokens = numbers["tokens"]
    seen = Seen(measured={"tokens": tokens, "patch_size": [*facts.patch_size], "img_size": [*facts.img_size]})
    if tokens <= COARSE_TOKENS:
        has_setting = patient.settings is not None and numbers["better"] < numbers["patch"]
        changes = (Change("model.patch_size", numbers["better"]),) if has_setting else ()
        has_learnt = facts.is_pretrained or looks_trained(patient.model)
        seen.findings.append(Finding("patch_too_coarse", 0.4 if has_learnt else 0.85, numbers, changes))
    return seen
