"""`load_model`: weights from anywhere become one of our models, and a certificate says how."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from vitscope.core.config import to_dict
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.config import ModelConfig, Size
from vitscope.models.model import VisionModel
from vitscope.models.variants import model_config
from vitscope.weights.adapt import Resampling, adapt
from vitscope.weights.certificate import Certificate, Ledger, Proof
from vitscope.weights.create import with_settings
from vitscope.weights.fit import fitted_preprocessing, refuse_other_layers
from vitscope.weights.fitting import fitting_models
from vitscope.weights.folder import load_config
from vitscope.weights.names import cleaned
from vitscope.weights.read import read_as_stored
from vitscope.weights.source import Source, open_source

PICTURE: tuple[str, ...] = ("img_size", "patch_size", "in_chans", "num_classes")
"""What a model may be adapted to."""

log = logging.getLogger("vitscope")


def load_model(
    source: str | Path,
    *,
    config: ModelConfig | str | Path | None = None,
    img_size: Size | None = None,
    patch_size: Size | None = None,
    in_chans: int | None = None,
    num_classes: int | None = None,
    dtype: torch.dtype | None = None,
    resampling: Resampling | None = None,
    allow_partial: bool = False,
    strict: bool = False,
    prove: bool = False,
    say: bool = True,
) -> VisionModel:
    """A model with the weights of `source`, in eval mode.

    `source` is a model folder (ours, timm's, Hugging Face's), a run, a weights file (.safetensors, .pth, .npz ...), or
    a name on the hub. A bare file does not say what it is for: give `config`, the name of a model, a model folder, or
    the settings themselves.

    `img_size`, `patch_size`, `in_chans` and `num_classes` (and whatever `config` says) may differ from the weights':
    positions and filters are resampled as `resampling` says, the head is made anew, and both are said. The backbone
    must be covered in full, unless `allow_partial`; with `strict` nothing may be resampled, new or left out.

    With `prove` the model, before it is adapted, and the library its weights come from look at two photographs, and the
    certificate says how far their answers differ, or why they could not be compared. That takes the time and the memory
    of that library's model.

    The model carries `preprocessing`, `labels` and `certificate`: what became of every tensor. A folder of our own
    comes back bit for bit as it was saved. What was resampled, begins anew or is unknown goes to the log as a warning,
    unless `say` is False, for those who tell it themselves.
    """
    opened = open_source(source)
    wishes: dict[str, Any] = dict(zip(PICTURE, (img_size, patch_size, in_chans, num_classes), strict=True))
    layers, remarks = _layers(opened, config)
    model, ledger, by = read_as_stored(opened, layers, allow_partial=allow_partial)
    proof = _proof(model, ledger, opened, by.library) if prove else None
    wanted = _wanted(model.config if config is None else _given(config), wishes)
    changes = adapt(model, wanted, resampling or Resampling())
    for entry in changes:
        ledger.change(entry)
    certificate = Certificate(
        source=opened.words,
        format=by.name,
        sha256=opened.sha256(),
        entries=ledger.entries(model.state_dict()),
        preprocessing=None if opened.preprocessing is None else to_dict(opened.preprocessing),
        remarks=(*ledger.remarks, *remarks),
    )
    if prove:
        certificate = certificate.with_remarks(proof) if isinstance(proof, str) else certificate.with_proof(proof)
    if strict:
        _refuse_any_change(certificate)
    _carry(model, opened, certificate)
    if dtype is not None:
        model.to(dtype)
    for line in warnings_of(certificate) if say else ():
        log.warning("%s: %s", opened.words, line)
    return model.eval()


# --- what the weights are for -----------------------------------------------------------------------------------


def _given(config: ModelConfig | str | Path) -> ModelConfig:
    """Settings, of a model folder, or behind a name."""
    if not isinstance(config, str | Path):
        return config
    return load_config(config) if Path(config).is_dir() else model_config(str(config))


def _layers(opened: Source, config: ModelConfig | str | Path | None) -> tuple[ModelConfig, list[str]]:
    """The settings that say which layers the tensors belong to, and what is to be said of them."""
    if config is None and opened.config is None:
        raise ConfigError(
            "a bare weights file does not say which model it is for",
            where=opened.words,
            fix=_which_config(opened),
        )
    if config is None:
        return opened.config, []  # pyright: ignore[reportReturnType]
    given = _given(config)
    if opened.config is None:
        return given, []
    remarks = refuse_other_layers(opened.config, given, where=opened.words)
    own = {key: getattr(opened.config, key) for key in PICTURE if hasattr(opened.config, key)}
    return with_settings(given, own), remarks


def _which_config(opened: Source) -> str:
    fitting = fitting_models(cleaned(opened.weights))
    if fitting:
        return f"give config=, the name of its model. By their shapes these fit: {', '.join(fitting)}"
    return "give config=, the name of its model (vitscope models lists them), a model folder, or its settings"


def _wanted(config: ModelConfig, wishes: dict[str, Any]) -> ModelConfig:
    changes = {key: value for key, value in wishes.items() if value is not None}
    return with_settings(config, changes) if changes else config


def _proof(model: VisionModel, ledger: Ledger, opened: Source, library: str | None) -> Proof | str:
    if any(entry.fate == "missing" for entry in ledger.said.values()):
        return "not compared: tensors are missing"
    from vitscope.weights.proof import prove  # pictures are needed for it, and nothing else here needs them

    return prove(model, opened, library=library)


# --- afterwards -------------------------------------------------------------------------------------------------


def _refuse_any_change(certificate: Certificate) -> None:
    changed = warnings_of(certificate)
    if changed:
        raise VitscopeError(
            f"strict: {'; '.join(changed)}", where=certificate.source, fix="leave strict out to accept this"
        )


def warnings_of(certificate: Certificate) -> list[str]:
    """What a person must be told of, a line each."""
    lines = []
    for fate, words in (
        ("resampled", "resampled"),
        ("new", "begins anew"),
        ("missing", "not in the source, begins anew"),
        ("unexpected", "in the source, unknown here"),
    ):
        entries = certificate.of(fate)  # pyright: ignore[reportArgumentType]
        names = [e.ours or e.theirs[0] for e in entries]
        if names:
            how = f" ({entries[0].how})" if entries[0].how else ""
            lines.append(f"{words}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}{how}")
    return lines


def _carry(model: VisionModel, opened: Source, certificate: Certificate) -> None:
    """Preprocessing at the size the model now has, labels as long as its classes are theirs, and the certificate."""
    preprocessing = fitted_preprocessing(opened.preprocessing, model.config)
    labels = opened.labels if opened.labels is not None and len(opened.labels) == model.num_classes else None
    for part in model.modules():  # the encoder of a masked model is a model too, and is taken away to be used
        if isinstance(part, VisionModel):
            part.preprocessing, part.labels = preprocessing, labels
    model.certificate = certificate
