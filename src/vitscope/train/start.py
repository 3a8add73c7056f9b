"""The model training begins with: freshly initialised, or with weights from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, pair
from vitscope.models.model import VisionModel
from vitscope.train.config import ModelSection
from vitscope.train.weights_advice import in_flags
from vitscope.weights.adapt import Resampling
from vitscope.weights.certificate import Certificate
from vitscope.weights.fit import refuse_mismatch, refuse_other_layers
from vitscope.weights.formats.huggingface_folder import OtherSize
from vitscope.weights.layers_for import asked_part
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
    except VitscopeError as error:
        error.where = f"checkpoint.init_from (--from): {error.where or source}"
        error.fix = None if error.fix is None else in_flags(error.fix)
        raise
    tensors, said, is_new = _with_head(given, model, certificate, labels)
    if is_new:
        certificate = _without_their_head(certificate, said)
    refuse_mismatch(model.state_dict(), tensors, where=source, fix="give the model settings the weights are for")
    model.load_state_dict(tensors, strict=True)
    model.preprocessing, model.certificate = given.preprocessing, certificate
    return [f"weights from {source}", *remarks, certificate.summary, said]


def _adapted(source: str, wanted: ModelConfig) -> tuple[VisionModel, Certificate, list[str]]:
    """The model of `source`, moved to the pictures and classes of `wanted`; what became of its tensors; remarks."""
    with open_source(source, alone=True) as opened:  # a file is a file: its model is the one of the settings
        known = wanted if opened.config is None else asked_part(opened.config, wanted)
        refuse_other_layers(known, wanted, where=opened.words, fix=ANEW)
    given = load_model(opened.path, config=wanted, say=False)  # it is all said here, as remarks
    certificate: Certificate = given.certificate
    remarks = [*certificate.warnings, *certificate.remarks]
    if opened.other_size is not None:
        remarks = _other_size(remarks, opened.other_size, pair(wanted.img_size))
    if pair(known.img_size) != pair(wanted.img_size):
        old, new = (" x ".join(map(str, pair(config.img_size))) for config in (known, wanted))
        remarks.append(f"pictures of {new} instead of {old}")
    remarks += [f"{entry.ours} resampled: {entry.how}" for entry in certificate.of("resampled")[:5]]
    return given, certificate, remarks


def _other_size(remarks: list[str], other: OtherSize, img_size: tuple[int, int]) -> list[str]:
    """What is said of the processor's size, in the words of a run: here numbers need not be transformers'."""
    told = other.warning(img_size, Resampling().positions)
    kept = [remark for remark in remarks if remark != told]
    if img_size == other.positions:
        side, own = (" x ".join(map(str, size)) for size in (other.pictures, other.positions))
        kept.append(f"their processor makes pictures of {side}, the model is for {own}: --model.img-size changes it")
    return kept


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
        nameless = ", taken for those of the data: the weights do not name theirs" if known is None and wanted else ""
        return tensors, f"with their head of {count} classes{nameless}", False
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
