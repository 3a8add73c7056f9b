"""The model training begins with: freshly initialised, or with the weights of another run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, expected
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, SimMIMConfig, pair
from vitscope.models.model import VisionModel
from vitscope.train.config import ModelSection
from vitscope.weights.fit import refuse_mismatch, refuse_other_layers
from vitscope.weights.load import load_model


def starting_model(
    section: ModelSection, *, num_classes: int, init_from: str | None = None, labels: Sequence[str] | None = None
) -> tuple[VisionModel, list[str]]:
    """The network of `section` with a head for `num_classes`, and remarks for the log.

    `init_from` is a run or model folder its weights come from; a masked model gives its encoder. The section decides
    everything that has no weights (dropout, drop path, image size); where it asks for other layers than the weights
    are for, it is refused. The head is made anew where the number or the names of the classes differ.
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
    given: Any = load_model(source)
    remarks = [f"weights from {source}"]
    if isinstance(given.config, MAEConfig | SimMIMConfig):
        given = given.encoder
        remarks.append("of a masked model, only the encoder is taken")
    remarks += refuse_other_layers(given.config, model.config, where=f"checkpoint.init_from: {source}")
    if pair(given.config.img_size) != pair(model.config.img_size):
        old, new = (" x ".join(map(str, pair(config.img_size))) for config in (given.config, model.config))
        given.set_input_size(model.config.img_size)
        remarks.append(f"pictures of {new} instead of {old}" + ("" if model.any_size else ": positions are resampled"))
    tensors, said = _with_head(given, model, labels)
    refuse_mismatch(model.state_dict(), tensors, where=source, fix="give the model settings the weights are for")
    model.load_state_dict(tensors, strict=True)
    model.preprocessing = given.preprocessing
    return [*remarks, said]


def _with_head(given: VisionModel, model: VisionModel, labels: Sequence[str] | None) -> tuple[dict[str, Tensor], str]:
    """All weights to be loaded; those of the head are the given ones only where they stand for the same classes."""
    tensors = given.state_dict()
    heads = tuple(f"{name}." for name in model.classifiers())
    fresh = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(heads)}
    old, new = given.num_classes, model.num_classes
    known, wanted = given.labels, None if labels is None else list(labels)
    if old != new:
        said = f"a new head: {new} classes instead of {old}" if old else f"a new head of {new} classes"
    elif known is None or wanted is None or known == wanted:
        return tensors, f"with their head of {new} classes"
    elif sorted(known) == sorted(wanted) and len(set(known)) == new:
        rows = [known.index(label) for label in wanted]
        moved = {name: tensors[name][rows] for name in fresh}
        return {**tensors, **moved}, f"with their head of {new} classes, brought into the order of the data"
    else:
        place = next(place for place, pair in enumerate(zip(known, wanted, strict=True)) if pair[0] != pair[1])
        said = f"a new head: class {place} is '{wanted[place]}' instead of '{known[place]}'"
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(heads)}
    return {**others, **fresh}, said
