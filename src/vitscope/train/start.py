"""The model training begins with: freshly initialised, or with weights from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, expected
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, pair
from vitscope.models.model import VisionModel
from vitscope.train.config import ModelSection
from vitscope.weights.adapt import Resampling, adapt
from vitscope.weights.certificate import Certificate, Ledger
from vitscope.weights.fit import fitted_preprocessing, refuse_mismatch, refuse_other_layers
from vitscope.weights.load import load_model
from vitscope.weights.source import open_source

ANEW = "leave the model out (--from alone takes that of the weights), or train from new weights (without --from)"
"""What one can do in training where the layers are others."""


def starting_model(
    section: ModelSection, *, num_classes: int, init_from: str | None = None, labels: Sequence[str] | None = None
) -> tuple[VisionModel, list[str]]:
    """The network of `section` with a head for `num_classes`, and remarks for the log.

    `init_from` is whatever `load_model` takes: a run, a model folder of ours, timm's or Hugging Face's, a weights file,
    a name on the hub; a masked model gives its encoder. The section decides everything that has no weights (dropout,
    drop path) and what weights can be moved to (image and patch size, channels); where it asks for other layers than
    the weights are for, it is refused. The head is made anew where the number or the names of the classes differ.
    """
    config = section.bare
    if isinstance(config, MAEConfig | SimMIMConfig):
        raise ConfigError(
            expected("model", "a model that classifies", f"'{section.name}', which paints hidden patches"),
            fix="take a vit, and its folder as checkpoint.init_from (--from) once it is trained",
        )
    model = build_model(updated(config, num_classes=num_classes))
    remarks = []
    if init_from is not None:
        remarks = _take_weights(model, init_from, labels)
    model.labels = None if labels is None else list(labels)
    return model, remarks


def _take_weights(model: VisionModel, source: str, labels: Sequence[str] | None) -> list[str]:
    try:
        given, certificate, remarks = _adapted(source, model.config)
    except ConfigError as error:
        error.where = f"checkpoint.init_from: {error.where or source}"
        raise
    tensors, said, is_new = _with_head(given, model, certificate, labels)
    if is_new:
        certificate = _without_their_head(certificate, said)
    refuse_mismatch(model.state_dict(), tensors, where=source, fix="give the model settings the weights are for")
    model.load_state_dict(tensors, strict=True)
    model.preprocessing = given.preprocessing
    return [f"weights from {source}", *remarks, certificate.summary, said]


def _adapted(source: str, wanted: ModelConfig) -> tuple[VisionModel, Certificate, list[str]]:
    """The model of `source`, moved to the pictures and classes of `wanted`; what became of its tensors; remarks."""
    opened = open_source(source)
    if isinstance(opened.config, MAEConfig | SimMIMConfig):
        given, certificate, remarks = _encoder_of(opened.path, wanted)
    else:
        if opened.config is not None:
            refuse_other_layers(opened.config, wanted, where=opened.words, fix=ANEW)
        # It is all said here, as remarks.
        given = load_model(opened.path, config=wanted, say=False)
        certificate, remarks = given.certificate, [*given.certificate.warnings, *given.certificate.remarks]
    known = wanted if opened.config is None else opened.config
    if pair(known.img_size) != pair(wanted.img_size):
        old, new = (" x ".join(map(str, pair(config.img_size))) for config in (known, wanted))
        remarks.append(f"pictures of {new} instead of {old}")
    remarks += [f"{entry.ours} resampled: {entry.how}" for entry in certificate.of("resampled")[:5]]
    return given, certificate, remarks


def _encoder_of(folder: Path, wanted: ModelConfig) -> tuple[VisionModel, Certificate, list[str]]:
    masked: Any = load_model(folder)
    remarks = ["of a masked model, only the encoder is taken"]
    remarks += [*masked.certificate.warnings, *masked.certificate.remarks]
    remarks += refuse_other_layers(masked.encoder.config, wanted, where=str(folder), fix=ANEW)
    ledger, before = Ledger(), "encoder."
    for entry in masked.certificate.entries:
        if entry.ours is not None and entry.ours.startswith(before):
            ledger.add(replace(entry, ours=entry.ours.removeprefix(before)))
    for entry in adapt(masked.encoder, wanted, Resampling()):
        ledger.change(entry)
    entries = ledger.entries(masked.encoder.state_dict())
    preprocessing = fitted_preprocessing(masked.preprocessing, wanted)
    masked.encoder.preprocessing = preprocessing
    return masked.encoder, replace(masked.certificate, entries=entries), remarks


def _with_head(
    given: VisionModel, model: VisionModel, certificate: Certificate, labels: Sequence[str] | None
) -> tuple[dict[str, Tensor], str, bool]:
    """All weights to be loaded, what is to be said of the head, and whether it begins anew: it is the given one only
    where it stands for the same classes."""
    tensors = given.state_dict()
    heads = tuple(f"{name}." for name in model.classifiers())
    fresh = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(heads)}
    count = model.num_classes
    known, wanted = given.labels, None if labels is None else list(labels)
    anew = next((entry for entry in certificate.of("new") if entry.in_head), None)
    if anew is not None:
        said = anew.how
    elif known is None or wanted is None or known == wanted:
        return tensors, f"with their head of {count} classes", False
    elif sorted(known) == sorted(wanted) and len(set(known)) == count:
        rows = [known.index(label) for label in wanted]
        moved = {name: tensors[name][rows] for name in fresh}
        return {**tensors, **moved}, f"with their head of {count} classes, brought into the order of the data", False
    else:
        place = next(place for place, pair in enumerate(zip(known, wanted, strict=True)) if pair[0] != pair[1])
        said = f"a new head: class {place} is '{wanted[place]}' instead of '{known[place]}'"
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(heads)}
    return {**others, **fresh}, said, True


def _without_their_head(certificate: Certificate, how: str) -> Certificate:
    """It matched, but it is not what training begins with."""
    entries = (
        replace(entry, fate="new", theirs=(), their_shapes=(), how=how)
        if entry.in_head and entry.ours is not None
        else entry
        for entry in certificate.entries
    )
    return replace(certificate, entries=tuple(entries))
