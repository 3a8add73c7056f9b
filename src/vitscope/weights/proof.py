"""The loaded model beside the library its weights come from: the same pictures through both, and how far they differ.

Asked before anything is adapted, since afterwards the library has no such model. It never fails a load: where there is
nothing to compare with, it says why.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.models.config import ModelConfig, pair
from vitscope.models.model import VisionModel
from vitscope.weights.certificate import Proof
from vitscope.weights.fit import fitted_preprocessing
from vitscope.weights.formats import huggingface_folder, timm_folder
from vitscope.weights.source import Source

PICTURES = ("china", "flower")
"""scikit-learn's photographs."""
Peer = Callable[[Tensor], Tensor]


def prove(model: VisionModel, opened: Source, *, library: str | None) -> Proof | str:
    """`model` with its weights as they lie in `opened`, against the library that opens it; `library` is whose names a
    bare file has. Returns why there is no proof, where there is none."""
    layout = "timm file" if opened.layout == "file" and library == "timm" else opened.layout
    return prove_written(model, layout, opened.path, preprocessing=opened.preprocessing)


def prove_written(
    model: VisionModel, layout: str, path: Path, *, preprocessing: PreprocessConfig | None
) -> Proof | str:
    """The same for files of a layout: a folder of timm's or Hugging Face's, or a bare file timm can open."""
    if layout == "timm":
        return compare(model, "timm", lambda: timm_folder.peer(path), preprocessing=preprocessing)
    if layout == "timm file":
        config = model.config
        return compare(
            model,
            "timm",
            lambda: timm_folder.peer_of_file(path, config),
            preprocessing=preprocessing,
            built=", built by the config given",  # a mistake in it would be in both
        )
    if layout == "huggingface":
        return compare(
            model,
            "transformers",
            lambda: huggingface_folder.peer(path),
            preprocessing=preprocessing,
            ask=huggingface_folder.answer,  # of masked models, too, transformers' say what they paint
        )
    if layout == "vitscope":
        return "not compared: the folder is vitscope's own"
    return "not compared: no library opens such a file by itself"


def features_or_logits(model: Any, images: Tensor) -> Tensor:
    """Logits where it has a head, else features. A masked model hides patches at random; its encoder sees them all."""
    inner = model.encoder if hasattr(model.config, "encoder") else model
    return inner(images) if inner.num_classes else inner.forward_features(images)


def compare(
    model: VisionModel,
    library: str,
    open_peer: Callable[[], Peer | None],
    *,
    preprocessing: PreprocessConfig | None,
    ask: Callable[[VisionModel, Tensor], Tensor] = features_or_logits,
    built: str = "",
) -> Proof | str:
    """The largest difference of any output between `model` and what `open_peer` opens; `ask` is how ours is asked, and
    `built` what else is to be said of theirs."""
    try:
        name = f"{library} {version(library)}"
    except PackageNotFoundError:
        return f"not compared: {library} is not installed"
    images = fixed_batch(model.config, preprocessing)
    try:
        with in_silence(), torch.inference_mode():
            peer = open_peer()
            theirs = None if peer is None else peer(images).float()
        if theirs is None:
            return f"not compared: {name} has no model that says the same"
    except Exception as error:  # another library's: whatever it raises, our load goes on
        told = (str(error).splitlines() or [""])[0][:200]
        return f"not compared: {name} cannot open it ({type(error).__name__}: {told})"
    ours = answer(model, images, ask)
    if ours.shape != theirs.shape:
        return f"not compared: {name} answers with {tuple(theirs.shape)}, this model with {tuple(ours.shape)}"
    return Proof(
        library=f"{name}{built}",
        pictures=f"two photographs at {' x '.join(map(str, images.shape[2:]))}, the same tensors for both",
        largest_difference=(ours - theirs).abs().max().item(),
        largest_output=theirs.abs().max().item(),
    )


@contextmanager
def in_silence() -> Iterator[None]:
    """Another library's progress bars and warnings are not for whoever loads a model here."""
    muted = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(muted)


@torch.inference_mode()
def answer(
    model: VisionModel, images: Tensor, ask: Callable[[VisionModel, Tensor], Tensor] = features_or_logits
) -> Tensor:
    """What the model says, in fp32 whatever its weights are in. The model stays as it is."""
    was_training, kinds = model.training, {(one.dtype, one.device.type) for one in model.parameters()}
    asked = model if kinds == {(torch.float32, "cpu")} else deepcopy(model).cpu().float()
    found = ask(asked.eval(), images)
    model.train(was_training)
    return found


def fixed_batch(config: ModelConfig, preprocessing: PreprocessConfig | None) -> Tensor:
    """Two photographs as the model wants them: always the same, and like what it will see."""
    from vitscope.data.photographs import builtin_picture  # torchvision and scikit-learn come with these
    from vitscope.data.preprocess import preprocess

    size, channels = pair(config.img_size), config.in_chans
    seen = fitted_preprocessing(preprocessing, config) or half_normalised(size, channels)
    if channels in (1, 3):
        return torch.stack([preprocess(builtin_picture(name), seen) for name in PICTURES])
    grey = updated(seen, in_chans=1, mean=seen.mean[:1], std=seen.std[:1])
    pictures = [preprocess(builtin_picture(name), grey) for name in PICTURES]
    return torch.stack([picture.repeat(channels, 1, 1) for picture in pictures])
