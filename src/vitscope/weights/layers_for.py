"""Which layers stored tensors belong to: what the source says, what is asked for, and errors that name a way out."""

from __future__ import annotations

from pathlib import Path

from vitscope.core.errors import ConfigError
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig
from vitscope.models.model import VisionModel
from vitscope.weights.certificate import Ledger
from vitscope.weights.create import with_settings
from vitscope.weights.files import Stored
from vitscope.weights.fit import refuse_other_layers
from vitscope.weights.fitting import fitting_models
from vitscope.weights.folder import CONFIG
from vitscope.weights.match import Format
from vitscope.weights.names import cleaned
from vitscope.weights.read import OR_PARTIAL, MisfitError, read_as_stored
from vitscope.weights.source import Source

PICTURE: tuple[str, ...] = ("img_size", "patch_size", "in_chans", "num_classes")
"""What a model may be adapted to."""


def layers_for(opened: Source, given: ModelConfig | None) -> tuple[ModelConfig, list[str]]:
    """The settings that say which layers the tensors belong to, and what is to be said of them."""
    if given is None and opened.config is None:
        what = "a bare weights file does not say which model it is for"
        if not Path(opened.words).is_file():  # a folder, or a repository on the hub
            what = f"'{opened.words}' is not a saved model: it has no {CONFIG}, and weights alone do not say what for"
        raise ConfigError(what, where=str(opened.path), fix=_which_config(opened))
    if given is None:
        return opened.config, []  # pyright: ignore[reportReturnType]
    if opened.config is None:
        return given, []
    known = asked_part(opened.config, given)
    remarks = refuse_other_layers(known, given, where=opened.words)
    own = {key: getattr(known, key) for key in PICTURE if hasattr(known, key)}
    return with_settings(given, own), remarks


def asked_part(known: ModelConfig, asked: ModelConfig) -> ModelConfig:
    """What of the weights' model is asked for: of a masked one, where a plain ViT is, the encoder."""
    if isinstance(known, MAEConfig | SimMIMConfig) and isinstance(asked, ViTConfig):
        return known.encoder
    return known


def read_layers(opened: Source, layers: ModelConfig, *, allow_partial: bool) -> tuple[VisionModel, Ledger, Format]:
    """`read_as_stored`; where a file is for another model, the error names those it fits."""
    try:
        return read_as_stored(opened, layers, allow_partial=allow_partial)
    except (MisfitError, ConfigError) as error:
        if opened.layout == "file" and not (isinstance(error, MisfitError) and error.is_known):
            stored = cleaned(opened.weights)
            error.what += _other_registers(stored, layers)
            fitting = fitting_models(stored)
            if fitting:
                partial = f"; {OR_PARTIAL}" if isinstance(error, MisfitError) and not error.is_strange else ""
                error.fix = f"{BY_SHAPE} {', '.join(fitting)}{partial}"
        raise


BY_SHAPE = "name another model: by their shapes these fit:"


def _which_config(opened: Source) -> str:
    beside = opened.path.parent
    if (beside / CONFIG).is_file():
        return f"a {CONFIG} lies beside it: give its folder as config= (--model), '{beside}', if it is for this file"
    fitting = fitting_models(cleaned(opened.weights))
    if fitting:
        return f"give config= (--model), the name of its model. By their shapes these fit: {', '.join(fitting)}"
    return "give config= (--model), the name of its model (vitscope models lists them), or a model folder"


def _other_registers(stored: Stored, layers: ModelConfig) -> str:
    """Easily overlooked: the names of models with and without differ by a syllable."""
    names = [name for name in stored if name.endswith(("reg_token", "register_tokens"))]
    held = stored.shapes[names[0]][1] if names and len(stored.shapes[names[0]]) == 3 else 0
    vit = getattr(layers, "encoder", layers)
    wanted = getattr(vit, "num_registers", 0)
    return "" if held == wanted else f"; the weights have {held} register tokens, the config {wanted}"
