"""`load_model`: weights from anywhere become one of our models, and a certificate says how."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vitscope.core.config import shortened, to_dict
from vitscope.core.dtypes import type_name
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.models.config import ModelConfig, Size, pair
from vitscope.models.model import VisionModel
from vitscope.weights.adapt import Resampling, adapt
from vitscope.weights.brought import with_what_is_known
from vitscope.weights.certificate import Certificate, Ledger, Proof
from vitscope.weights.create import with_settings
from vitscope.weights.encoder import encoder_of
from vitscope.weights.fit import fitted_preprocessing
from vitscope.weights.given_config import as_its_weights, given_config, with_classes
from vitscope.weights.layers_for import PICTURE, asked_part, layers_for, read_layers
from vitscope.weights.match import Format
from vitscope.weights.shards import WRITABLE, cast_model, refuse_dtype
from vitscope.weights.source import Source, open_source

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
    a name on the hub. A bare file does not say what it is for: give `config`, the name of a model, a model folder
    (ours, timm's, Hugging Face's), which brings its preprocessing and class names along, or the settings themselves. A
    name stands for the layers: how many classes there are the weights say, unless `num_classes` does. Of a masked
    model, with the config of a plain ViT, the encoder is taken.

    `img_size`, `patch_size`, `in_chans` and `num_classes` (and whatever `config` says) may differ from the weights':
    positions and filters are resampled as `resampling` says, the head is made anew, and both are said. The backbone
    must be covered in full, unless `allow_partial`; with `strict` nothing may be resampled or new, no head left out:
    all that is otherwise a warning is an error.

    With `prove` the model, before it is adapted, and the library its weights come from look at two photographs, and the
    certificate says how far their answers differ, or why they could not be compared; more than rounding explains is a
    warning. That takes the time and the memory of that library's model.

    The model carries `preprocessing`, `labels` and `certificate`: what became of every tensor. A folder of our own
    comes back bit for bit as it was saved. What was resampled, begins anew or is unknown goes to the log as a warning,
    unless `say` is False, for those who tell it themselves.
    """
    refuse_dtype(dtype, where="load_model(..., dtype=...)")
    with open_source(source, alone=config is not None) as opened:
        return load_opened(
            opened,
            config=config,
            wishes=dict(zip(PICTURE, (img_size, patch_size, in_chans, num_classes), strict=True)),
            dtype=dtype,
            resampling=resampling,
            allow_partial=allow_partial,
            strict=strict,
            prove=prove,
            say=say,
        )


def load_opened(
    opened: Source,
    *,
    config: ModelConfig | str | Path | None,
    wishes: dict[str, Any],
    dtype: torch.dtype | None = None,
    resampling: Resampling | None,
    allow_partial: bool,
    strict: bool,
    prove: bool,
    say: bool = True,
) -> VisionModel:
    """The same of what is already open; `wishes` are its sizes, None where nothing is wished."""
    resampling = _refuse_other_resampling(resampling)
    given = None if config is None else given_config(config, opened.weights)
    if given is not None and given.is_name and opened.config is not None:
        told, remarks = as_its_weights(given.config, asked_part(opened.config, given.config))
        given = replace(given, config=told)
        opened = replace(opened, remarks=(*opened.remarks, *remarks))
    layers, other_pool = layers_for(opened, None if given is None else given.config)
    takes_encoder = opened.config is not None and asked_part(opened.config, layers) is not opened.config
    model, ledger, by = _read(opened, layers, takes_encoder=takes_encoder, allow_partial=allow_partial)
    warnings = [*opened.warnings, *_not_finite(model)]
    proof = _proof(model, ledger, opened, by.library, takes_encoder=takes_encoder) if prove else None
    opened, known = with_what_is_known(opened, given, by, model.config)
    ledger.remarks += [*opened.remarks, *known]
    if opened.labels is not None and model.num_classes not in (0, len(opened.labels)):
        names, classes = len(opened.labels), model.num_classes
        warnings.append(f"{names} classes are named, and the head has {classes}: the names are left out")
    wanted = model.config if given is None else given.config
    if given is not None and not given.says_classes and wishes["num_classes"] is None:
        # A name stands for an architecture; how many classes there are the weights know.
        wanted = with_classes(wanted, model.num_classes)
        if given.config.num_classes and not model.num_classes:
            ledger.remarks.append("the weights have no head, and so has the model")
    wanted = _wanted(wanted, wishes)
    if opened.other_size is not None:
        told = opened.other_size.warning(pair(wanted.img_size), resampling.positions)
        warnings += [] if told is None else [told]
    changes = adapt(model, wanted, resampling)
    for entry in changes:
        ledger.change(entry)
    certificate = Certificate(
        source=opened.words,
        format=by.name,
        sha256=opened.sha256(),
        entries=ledger.entries(model.state_dict()),
        dtype=" and ".join(sorted({type_name(one.dtype) for one in model.parameters()})),
        remarks=tuple(ledger.remarks),
        warnings=tuple(warnings),
        cast=ledger.cast,
    )
    # A head reads what is pooled: another pool is another input for it.
    keeps_head = model.num_classes > 0 and not _new_head(certificate)
    certificate = certificate.with_warnings(*other_pool) if keeps_head else certificate.with_remarks(*other_pool)
    if prove:
        certificate = certificate.with_remarks(proof) if isinstance(proof, str) else certificate.with_proof(proof)
    if strict:
        _refuse_any_change(certificate)
    said = None if dtype is None else cast_model(model, dtype)
    if dtype is not None and said is not None:
        certificate = certificate.with_dtype(type_name(dtype), said)
    _carry(model, opened, certificate)
    for line in warnings_of(model.certificate) if say else ():
        log.warning("%s: %s", opened.words, line)
    return model.eval()


# --- on the way --------------------------------------------------------------------------------------------------


def _refuse_other_resampling(resampling: Any) -> Resampling:
    if resampling is None or isinstance(resampling, Resampling):
        return resampling or Resampling()
    named = f"Resampling(positions={resampling!r})" if isinstance(resampling, str) else "Resampling(...)"
    raise ConfigError(
        expected("resampling", "a Resampling", shortened(resampling)),
        where="load_model(..., resampling=...)",
        fix=f"from vitscope import Resampling; resampling={named}",
    )


def _wanted(config: ModelConfig, wishes: dict[str, Any]) -> ModelConfig:
    changes = {key: value for key, value in wishes.items() if value is not None}
    return with_settings(config, changes) if changes else config


def _read(
    opened: Source, layers: ModelConfig, *, takes_encoder: bool, allow_partial: bool
) -> tuple[VisionModel, Ledger, Format]:
    if not takes_encoder:
        return read_layers(opened, layers, allow_partial=allow_partial)
    if opened.layout != "vitscope":  # whose encoders have the names of plain ViTs
        model, ledger, by = read_layers(opened, layers, allow_partial=allow_partial)
    else:
        masked: Any = opened.config
        whole, ledger, by = read_layers(opened, masked, allow_partial=allow_partial)
        model, ledger = encoder_of(whole, with_classes(layers, 0), ledger)
    ledger.remarks.append("of a masked model, only the encoder is taken")
    return model, ledger, by


def _proof(
    model: VisionModel, ledger: Ledger, opened: Source, library: str | None, *, takes_encoder: bool
) -> Proof | str:
    if takes_encoder:
        return "not compared: of a masked model, only the encoder is taken"
    if any(entry.fate == "missing" for entry in ledger.said.values()):
        return "not compared: tensors are missing"
    from vitscope.weights.proof import prove  # pictures are needed for it, and nothing else here needs them

    proof = prove(model, opened, library=library)
    if not opened.weights.is_in_place():  # the library opens them by their names
        return "not compared: the files were replaced while they were read"
    return proof


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
        ("left out", "left out"),
        ("unexpected", "in the source, unknown here"),
    ):
        by_how: dict[str, list[str]] = {}
        for entry in certificate.of(fate):  # pyright: ignore[reportArgumentType]
            if fate != "left out" or entry.in_head:  # what else has no place here is known not to matter
                by_how.setdefault(entry.how, []).append(entry.ours or entry.theirs[0])
        for how, names in by_how.items():
            shown = f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
            lines.append(f"{words}: {shown}{f' ({how})' if how else ''}")
    lines += certificate.warnings
    proof = certificate.proof
    if proof is not None and not proof.is_close:
        lines.append(otherwise(proof))
    return lines


def otherwise(proof: Proof) -> str:
    """Of a proof that proves the contrary."""
    if not math.isfinite(proof.largest_difference):
        return f"{proof.library} and this model cannot be compared: their outputs are not finite"
    return (
        f"{proof.library} answers otherwise: outputs differ by up to {proof.largest_difference:.2g}, "
        f"and reach {proof.largest_output:.3g}"
    )


def _not_finite(model: VisionModel) -> list[str]:
    count = 0
    for tensor in model.state_dict().values():
        if tensor.is_floating_point() and tensor.numel():
            known = tensor if tensor.dtype in WRITABLE else tensor.float()
            if not all(end.isfinite() for end in known.aminmax()):  # one look, and no memory, for the usual case
                count += int((~known.isfinite()).sum())
    return [f"{count:,} numbers are not finite" if count > 1 else "1 number is not finite"] if count else []


def _new_head(certificate: Certificate) -> bool:
    return any(entry.in_head for entry in certificate.of("new", "missing"))


def _carry(model: VisionModel, opened: Source, certificate: Certificate) -> None:
    """Preprocessing at the size the model now has, labels as long as its head is theirs, and the certificate."""
    preprocessing = fitted_preprocessing(opened.preprocessing, model.config)
    labels = opened.labels
    if labels is not None and (len(labels) != model.num_classes or _new_head(certificate)):
        labels = None
    for part in model.modules():  # the encoder of a masked model is a model too, and is taken away to be used
        if isinstance(part, VisionModel):
            part.preprocessing, part.labels = preprocessing, labels
    told = None if preprocessing is None else to_dict(preprocessing)
    model.certificate = replace(certificate, preprocessing=told)
