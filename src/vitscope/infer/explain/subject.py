"""The one picture that is looked at: as it is, and as the model sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from torch import Tensor

from vitscope.core.errors import InputError, VitscopeError, expected
from vitscope.core.near_path import did_you_mean_path
from vitscope.data.decode import BadImageError, decode_image
from vitscope.data.preprocess import to_pixels
from vitscope.infer.explain.frame import Frame, frame_of, whole
from vitscope.infer.pictures import Pictures, find_pictures
from vitscope.infer.prediction import Prediction, predictions
from vitscope.infer.stream import stacked
from vitscope.models.cnn import CNN
from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel
from vitscope.models.resnet import ResNet
from vitscope.models.swin import Swin
from vitscope.models.vit import ViT

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor


@dataclass(frozen=True)
class Subject:
    """A picture, upright and at its own size, with what a model is given of it."""

    name: str | None
    """Its path; None for what came from no file."""
    picture: Image.Image
    """RGB."""
    frame: Frame
    images: Tensor
    """(1, C, H, W), normalised, on the model's device."""


def subject_of(predictor: Predictor, picture: Pictures) -> Subject:
    """Exactly one picture, in whatever way it is given."""
    given = find_pictures(picture)
    if len(given) != 1:
        raise InputError(
            expected("picture", "one picture", f"{len(given)}"), where="explain", fix="go through them one by one"
        )
    name, content, config = given[0].name, given[0].content, predictor.preprocessing
    if isinstance(content, Tensor):
        images = stacked([content], config, predictor.device, predictor.dtype)
        shown = _as_picture(content, config.mean, config.std)
        return Subject(name, shown, whole((shown.height, shown.width)), images)
    try:
        seen = to_pixels(decode_image(content, in_chans=config.in_chans), config)
        shown = decode_image(content, in_chans=3)
    except BadImageError as error:
        error.fix = error.fix or did_you_mean_path(name or "") or "give another picture"
        raise
    frame = frame_of((shown.height, shown.width), config)
    return Subject(name, shown, frame, stacked([seen], config, predictor.device, predictor.dtype))


def asked(predictor: Predictor, subject: Subject, *, top_k: int = 5) -> Prediction | None:
    """What the model says of it; None for a model without classes."""
    if not predictor.labels:
        return None
    told = predictions([subject.name], predictor.probabilities(subject.images), predictor.labels, top_k=top_k)[0]
    if told.error is not None:
        raise VitscopeError(told.error, where=subject.name, fix="its weights are not sound: take another checkpoint")
    return told


def has_attention(model: VisionModel) -> bool:
    """Over the whole picture."""
    return isinstance(model, ViT | MaskedModel)


def looking(model: VisionModel) -> ViT:
    """The part of the model that attends over the whole picture; what has none is told what it can have."""
    model = model.encoder if isinstance(model, MaskedModel) else model
    if isinstance(model, ViT):
        return model
    what = why_no_map(model)
    if isinstance(model, Swin | CNN | ResNet):
        fix = "`vitscope explain --feature-maps` (`feature_maps_of`) shows its filters and what each stage sees"
    else:
        what = f"{type(model).__name__} has neither attention nor feature maps"
        fix = "`vitscope predict` tells what it says; attention is shown for ViT, DeiT and DINOv2 models"
    raise InputError(what, where="explain", fix=fix)


def why_no_map(model: VisionModel) -> str:
    """Of a model that does not attend over the whole picture."""
    if isinstance(model, Swin):
        return "Swin attends inside small windows, no token sees the whole picture"
    return f"{type(model).__name__} has no attention"


def _as_picture(image: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Image.Image:
    """A tensor that came prepared, as pixels again; more channels than a picture has become grey."""
    shape = (-1, 1, 1)
    pixels = image.detach().float().cpu().numpy() * np.reshape(std, shape) + np.reshape(mean, shape)
    if len(pixels) != 3:
        pixels = np.repeat(pixels.mean(axis=0, keepdims=True), 3, axis=0)
    return Image.fromarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0))
