"""What an exported file says of itself: how pictures are prepared, what the classes are called, what goes in and out.

Four texts of JSON under the same names in both formats: metadata of an ONNX file, extra files of a `.pt2`.
"""

from __future__ import annotations

import json
from typing import Any

from vitscope.core.config import to_dict
from vitscope.data.config import PreprocessConfig
from vitscope.models.model import VisionModel
from vitscope.version import __version__

FORMAT = 1
FILE, MODEL = "vitscope.file", "vitscope.model"
PREPROCESSING, LABELS = "vitscope.preprocessing", "vitscope.labels"
KEYS: tuple[str, ...] = (FILE, MODEL, PREPROCESSING, LABELS)


def metadata_of(
    model: VisionModel, preprocessing: PreprocessConfig, *, pixels: bool, dtype: str, output: str
) -> dict[str, str]:
    """By key. Neither time nor path is told: the same model gives the same text."""
    about = {
        FILE: {
            "format": FORMAT,
            "vitscope": __version__,
            "input": "pixels" if pixels else "prepared",
            "output": output,
            "dtype": dtype,
        },
        MODEL: {"family": model.config.family, "config": to_dict(model.config)},
        PREPROCESSING: to_dict(preprocessing),
        LABELS: named_classes(model),
    }
    return {key: _text(value) for key, value in about.items()}


def named_classes(model: VisionModel) -> list[str] | None:
    """In index order; None where nobody named them."""
    return list(model.labels) if model.labels and len(model.labels) == model.num_classes else None


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
