"""How do the settings compare with the tuning guide's? Departures are worth a word, never a finding."""

from __future__ import annotations

from vitscope.data.config import STRENGTHS, AugmentConfig, strength_of
from vitscope.doctor.finding import Note, Seen
from vitscope.doctor.patient import Patient, Trainer
from vitscope.doctor.thresholds.settings import BOLD_FINE_TUNING, WEIGHTS_PER_PICTURE
from vitscope.train.guide import FINE_TUNING, SGD_FACTOR, Row, Span, row_for

SETTINGS = {"weight_decay": "optim", "drop_rate": "model", "drop_path_rate": "model"}
"""Where each stands among a run's settings. The learning rate is not here: it is measured, and so not looked up."""


def guide_table(patient: Patient) -> Seen:
    pictures = patient.facts.train_pictures
    if pictures is None:
        return Seen(left_out="size_of_data_unknown")
    seen = Seen(measured={"pictures": pictures})
    trainer = None if patient.make_trainer is None else patient.make_trainer()
    if trainer is not None and patient.facts.is_pretrained:
        seen.notes += [] if patient.facts.keeps_head else _fine_tuning(trainer)
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
    off = {key: value for key, value in values.items() if _is_off(value, _span(row, key))}
    advice = {f"{SETTINGS[key]}.{key}": f"{key} {_words(_span(row, key))}" for key in off if key in SETTINGS}
    departures = [f"{key} {value:g} ({_words(_span(row, key))})" for key, value in off.items()]
    strength = None if patient.settings is None else _strength(patient.settings.augment, patient, row)
    if strength is not None:
        departures.append(f"augment {strength} ({row.augment})")
        advice["augment"] = f"augment {row.augment}"
    seen.measured["departures"] = departures
    if advice:
        numbers = {"pictures": pictures, "advice": advice, "departures": ", ".join(advice.values())}
        seen.notes.append(Note("guide_differs", numbers))
    weights = sum(one.numel() for one in patient.model.parameters() if one.requires_grad)
    if weights >= WEIGHTS_PER_PICTURE * pictures:
        numbers = {"weights": weights, "pictures": pictures, "ratio": weights / pictures}
        seen.notes.append(Note("model_large_for_data", numbers))
    return seen


def _fine_tuning(trainer: Trainer) -> list[Note]:
    """Of weights that come to a new task: those that keep their head go on with their own, at its rate."""
    habit = FINE_TUNING["sgd" if trainer.optimizer_name == "sgd" else "adamw"]
    if trainer.lr < BOLD_FINE_TUNING * habit.lr:
        return []
    return [Note("lr_bold_for_fine_tuning", {"lr": trainer.lr, "usual": habit.lr})]


def _span(row: Row, key: str) -> Span:
    return getattr(row, key)


def _is_off(value: float, span: Span) -> bool:
    """Rounding is no departure."""
    return not span[0] * 0.999 <= value <= span[1] * 1.001


def _words(span: Span) -> str:
    return f"{span[0]:g} .. {span[1]:g}"


def _strength(augment: AugmentConfig, patient: Patient, row: Row) -> str | None:
    """Its name, where that is known and not the guide's."""
    name = strength_of(augment, patient.facts.img_size or (32, 32))
    return name if name in STRENGTHS and name != row.augment else None
