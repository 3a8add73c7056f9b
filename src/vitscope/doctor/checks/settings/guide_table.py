"""How do the settings compare with the tuning guide's? Departures are worth a word, never a finding."""

from __future__ import annotations

from vitscope.data.config import STRENGTHS, AugmentConfig, strength_of
from vitscope.doctor.finding import Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.settings import BOLD_FINE_TUNING, WEIGHTS_PER_PICTURE
from vitscope.train.guide import FINE_TUNING, SGD_FACTOR, Row, Span, row_for


def guide_table(patient: Patient) -> Seen:
    pictures = patient.facts.train_pictures
    if pictures is None:
        return Seen(left_out="size_of_data_unknown")
    seen = Seen(measured={"pictures": pictures})
    trainer = None if patient.make_trainer is None else patient.make_trainer()
    if trainer is not None and patient.facts.is_pretrained:
        habit = FINE_TUNING["sgd" if trainer.optimizer_name == "sgd" else "adamw"]
        if trainer.lr >= BOLD_FINE_TUNING * habit.lr:
            seen.notes.append(Note("lr_bold_for_fine_tuning", {"lr": trainer.lr, "usual": habit.lr}))
        return seen
    row = row_for(pictures)
    seen.measured["guide"] = row.kind
    values: dict[str, float] = {}
    if trainer is not None:
        values["lr"] = trainer.lr / (SGD_FACTOR if trainer.optimizer_name == "sgd" else 1.0)
        values["weight_decay"] = trainer.weight_decay
    if patient.facts.drop_rate is not None:
        values["drop_rate"] = patient.facts.drop_rate
    if patient.settings is not None and hasattr(patient.settings.model, "drop_path_rate"):
        values["drop_path_rate"] = patient.settings.model.drop_path_rate
    departures = [
        _told(key, value, _span(row, key)) for key, value in values.items() if _is_off(value, _span(row, key))
    ]
    if patient.settings is not None:
        departures += _augmentation(patient.settings.augment, patient, row)
    seen.measured["departures"] = departures
    if departures:
        seen.notes.append(
            Note("guide_differs", {"pictures": pictures, "kind": row.kind, "departures": "; ".join(departures)})
        )
    weights = sum(one.numel() for one in patient.model.parameters() if one.requires_grad)
    if weights >= WEIGHTS_PER_PICTURE * pictures:
        numbers = {"weights": weights, "pictures": pictures, "ratio": weights / pictures}
        seen.notes.append(Note("model_large_for_data", numbers))
    return seen


def _span(row: Row, key: str) -> Span:
    return getattr(row, key)


def _is_off(value: float, span: Span) -> bool:
    """Rounding is no departure."""
    return not span[0] * 0.999 <= value <= span[1] * 1.001


def _told(key: str, value: float, span: Span) -> str:
    return f"{key} {value:g} ({span[0]:g} .. {span[1]:g})"


def _augmentation(augment: AugmentConfig, patient: Patient, row: Row) -> list[str]:
    side = patient.facts.img_size or (32, 32)
    name = strength_of(augment, side)
    if name not in STRENGTHS or name == row.augment:
        return []
    return [f"augment {name} ({row.augment})"]
