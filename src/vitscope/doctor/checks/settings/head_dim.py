"""Are heads wide enough to choose between tokens?"""

from __future__ import annotations

from vitscope.doctor.anatomy import looks_trained
from vitscope.doctor.attention_parts import has_attention
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.setting_numbers import head_changes, head_numbers, head_sure
from vitscope.train.guide import HEAD_DIM


def head_dim(patient: Patient) -> Seen:
    facts = patient.facts
    if facts.embed_dim is None or facts.num_heads is None:
        return Seen(left_out="heads_not_known" if has_attention(patient.model) else "no_attention")
    numbers = head_numbers(facts.embed_dim, facts.num_heads, facts.head_dim)
    dim = numbers["dim"]
    seen = Seen(measured={"head_dim": dim})
    sure = head_sure(dim)
    if sure is not None and not (facts.is_pretrained or looks_trained(patient.model)):  # what has learnt, can
        changes = head_changes(numbers) if patient.settings is not None else ()
        seen.findings.append(Finding("head_dim_too_small", sure, numbers, changes))
    elif dim < HEAD_DIM[0]:
        seen.notes.append(Note("head_dim_small", numbers))
    return seen
