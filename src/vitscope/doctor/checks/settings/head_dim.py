"""Are heads wide enough to choose between tokens?"""

from __future__ import annotations

from vitscope.doctor.anatomy import looks_trained
from vitscope.doctor.attention_parts import has_attention
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.settings import MODEST_HEAD, MODEST_HEAD_SURE, SMALL_HEAD, SMALL_HEAD_SURE
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


def head_numbers(width: int, heads: int, dim: int | None = None) -> dict[str, int]:
    """`dim`: of a head, where it is set and does not follow from the width."""
    if dim is not None:
        return {"dim": dim, "heads": heads, "better_dim": int(HEAD_DIM[0])}
    numbers = {"dim": width // heads, "width": width, "heads": heads}
    better = _better(width)
    return numbers | ({"better": better} if better < heads else {"wider": heads * int(HEAD_DIM[0])})


def head_changes(numbers: dict[str, int]) -> tuple[Change, ...]:
    settings = {"better_dim": "model.head_dim", "better": "model.num_heads", "wider": "model.embed_dim"}
    return tuple(Change(setting, numbers[key]) for key, setting in settings.items() if key in numbers)


def head_sure(dim: int) -> float | None:
    """How sure it is that heads of so many numbers do harm; None where they do not."""
    if dim > MODEST_HEAD:
        return None
    return SMALL_HEAD_SURE if dim <= SMALL_HEAD else MODEST_HEAD_SURE


def _better(width: int) -> int:
    """The most heads that divide the width and have at least the guide's least width each."""
    fits = [heads for heads in range(1, width + 1) if width % heads == 0 and width // heads >= HEAD_DIM[0]]
    return max(fits, default=1)
