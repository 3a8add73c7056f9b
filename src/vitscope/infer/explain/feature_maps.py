"""What the layers before any attention show: the filters that read pixels, and maps of what each stage sees.

Channels C, map h w, filter p q.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitscope.core.errors import InputError
from vitscope.infer.explain.frame import Frame
from vitscope.infer.explain.subject import asked, subject_of
from vitscope.infer.pictures import Pictures
from vitscope.infer.prediction import Prediction
from vitscope.models.cnn import CNN
from vitscope.models.model import VisionModel
from vitscope.models.modes import in_mode
from vitscope.models.reconstruction import MaskedModel
from vitscope.models.resnet import ResNet
from vitscope.models.swin import Swin
from vitscope.models.vit import ViT

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor


@dataclass(frozen=True)
class Stage:
    """Maps after one part of a network."""

    name: str
    maps: np.ndarray
    """(C, h, w)"""

    def liveliest(self, count: int) -> list[int]:
        """The channels that vary most over the picture."""
        return np.argsort(-self.maps.reshape(len(self.maps), -1).std(axis=1), kind="stable")[:count].tolist()


@dataclass(frozen=True, kw_only=True)
class FeatureMaps:
    """What `feature_maps_of` found."""

    layer: str
    """The name of the layer that reads pixels."""
    filters: np.ndarray = field(repr=False)
    """(D, C, p, q): its weights."""
    stages: tuple[Stage, ...] = field(repr=False)
    """First to last."""
    prediction: Prediction | None
    picture: Image.Image = field(repr=False)
    frame: Frame = field(repr=False)
    name: str | None

    def strongest(self, count: int) -> list[int]:
        """The filters with the largest weights."""
        return np.argsort(-np.linalg.norm(self.filters.reshape(len(self.filters), -1), axis=1), kind="stable")[
            :count
        ].tolist()

    def save(self, path: str | Path) -> Path:
        """As a PNG: the strongest filters, then the liveliest maps of each stage."""
        from vitscope.infer.explain.feature_sheet import draw_feature_maps

        return draw_feature_maps(self, path)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: shapes, not the numbers."""
        return {
            "path": self.name,
            "prediction": None if self.prediction is None else self.prediction.to_dict(),
            "filters": {"layer": self.layer, "shape": list(self.filters.shape)},
            "stages": [{"name": stage.name, "shape": list(stage.maps.shape)} for stage in self.stages],
        }


@torch.no_grad()
def feature_maps_of(predictor: Predictor, picture: Pictures) -> FeatureMaps:
    """Of one picture: a CNN's or ResNet's stages; Swin's; of a ViT the patch embedding and its blocks."""
    model = predictor.model.encoder if isinstance(predictor.model, MaskedModel) else predictor.model
    if not isinstance(model, CNN | ResNet | Swin | ViT) or model.pixel_layer is None:
        raise InputError(
            f"{type(model).__name__} has neither filters nor feature maps",
            where="explain",
            fix="`vitscope predict` tells what it says",
        )
    subject = subject_of(predictor, picture)
    with in_mode(predictor.model, training=False):
        prediction = asked(predictor, subject)
        stages = _stages(model, subject.images)
    weight: Any = model.get_submodule(model.pixel_layer).weight
    return FeatureMaps(
        layer=model.pixel_layer,
        filters=weight.detach().float().cpu().numpy(),
        stages=tuple(stages),
        prediction=prediction,
        picture=subject.picture,
        frame=subject.frame,
        name=subject.name,
    )


def _stages(model: VisionModel, images: Tensor) -> list[Stage]:
    found = model.forward_intermediates(images)
    if isinstance(model, ViT):
        cut = model.patch_embed(images)
        maps = [("patch embedding", cut.transpose(1, 2).unflatten(2, model.config.grid_size))]
        chosen = sorted({round(share * (len(found) - 1)) for share in (0, 1 / 3, 2 / 3, 1)})
        maps += [(f"block {number}", model.feature_map(found[number])) for number in chosen]
    elif isinstance(model, Swin):
        maps = [(f"stage {number}", tokens.permute(0, 3, 1, 2)) for number, tokens in found.items()]
    else:
        maps = [(f"stage {number}", one) for number, one in found.items()]
    return [Stage(name, one[0].float().cpu().numpy()) for name, one in maps]
