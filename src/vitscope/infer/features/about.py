"""What a file of features must say of itself, so that nobody has to remember how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from vitscope.core.config import to_dict
from vitscope.core.dtypes import type_name
from vitscope.infer.features.features import BadPicture
from vitscope.infer.features.reading import Reading
from vitscope.version import __version__

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor

FORMAT = "vitscope features 1"


def about_features(predictor: Predictor, reading: Reading, dtype: torch.dtype, source: str | None) -> dict[str, Any]:
    """Plain data: format, model, features by name, preprocessing, size."""
    model = predictor.model
    sums = getattr(model.certificate, "sha256", None)
    return {
        "format": FORMAT,
        "vitscope": __version__,
        "model": {
            "source": source,
            "family": type(model).__name__,
            "config": to_dict(model.config),
            "sha256": dict(sums) if sums else None,
        },
        "features": {feature.name: feature.to_dict() for feature in reading.features},
        "dtype": type_name(dtype),
        "arithmetic": type_name(predictor.dtype),
        "img_size": list(predictor.preprocessing.img_size),
        "preprocessing": to_dict(predictor.preprocessing),
    }


def about_pictures(classes: Sequence[str], count: int, bad: Sequence[BadPicture]) -> dict[str, Any]:
    """What is known only in the end."""
    return {
        "classes": list(classes) or None,
        "count": count,
        "bad": [{"place": one.place, "path": one.path, "reason": one.reason} for one in bad],
    }
