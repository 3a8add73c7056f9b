"""Hugging Face's preprocessor_config.json: what an image processor does to a picture, in our words and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from vitscope.core.config import from_dict
from vitscope.core.errors import ConfigError, expected
from vitscope.data.config import PreprocessConfig
from vitscope.weights.formats.damaged import shown

FILE = "preprocessor_config.json"
FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers, which they write."""
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
SHORT = {"resample": 3, "size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": 224, **CLIP}
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViT": {"resample": 2, "size": 224, "do_center_crop": False, **HALF},
    "DeiT": {"resample": 3, "size": 256, "do_center_crop": True, "crop_size": 224, **HALF},
    "Bit": SHORT,
    "CLIP": SHORT,
}
"""What each of their processors does where its file does not say."""
LARGEST_SIDE = 1_000_000
"""Of a picture, in pixels."""
OF_MODEL = {"vit": "ViT", "vit_mae": "ViT", "deit": "DeiT", "dinov2": "Bit", "dinov2_with_registers": "Bit"}
"""Which processor a model has where the file does not name one."""


@dataclass(frozen=True)
class _Sides:
    """Height and width, or the length of the shorter side."""

    height: int
    width: int
    kind: Literal["both", "shorter"] = "both"


def read_pictures(told: dict[str, Any], model_type: str, img_size: tuple[int, int], *, where: str) -> PreprocessConfig:
    """What a processor does, in our words. `img_size` is what the model reads, where pictures are not resized."""
    name = _processor(told, model_type, where)
    told = {"do_resize": True, "do_rescale": True, "do_normalize": True, **PROCESSORS[name], **told}
    if told.get("do_pad"):
        raise _refusal("do_pad", "false", "true", where)
    settings: dict[str, Any] = {"resizer": "tensor", **_normalisation(told, where)}
    if not told["do_resize"]:
        if told["do_center_crop"]:
            raise _refusal("do_resize", "true before a cut", "false", where)
        return from_dict(PreprocessConfig, {**settings, "img_size": list(img_size), "crop": "squash"}, where=where)
    if told["resample"] not in tuple(FILTERS):
        known = ", ".join(f"{number} ({word})" for number, word in FILTERS.items())
        raise _refusal("resample", known, told["resample"], where)
    settings["interpolation"] = FILTERS[told["resample"]]
    shorter = name in ("Bit", "CLIP")  # what a single number means
    settings |= _cut(told, _sides(told["size"], "size", where, shorter=shorter), where)
    return from_dict(PreprocessConfig, settings, where=where)


def written_pictures(config: PreprocessConfig, *, where: str) -> dict[str, Any]:
    """The file that makes a processor do the same."""
    height, width = config.img_size
    down, across = (math.floor(side / config.crop_share) for side in config.img_size)
    told: dict[str, Any] = {
        "do_resize": True,
        "resample": next(number for number, word in FILTERS.items() if word == config.interpolation),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(config.mean),
        "image_std": list(config.std),
        # Said for other channels too: what is not said, some of their processors take for true.
        "do_convert_rgb": config.in_chans == 3,
    }
    cut = {"do_center_crop": True, "crop_size": {"height": height, "width": width}}
    if config.crop == "centre":
        if height != width:
            raise ConfigError(
                expected("preprocessing.crop", "'squash' where height and width differ, for Hugging Face", "'centre'"),
                where=where,
                fix="its processors measure by the shorter side only; save the model in our own format",
            )
        return {"image_processor_type": "BitImageProcessor", **told, "size": {"shortest_edge": down}, **cut}
    told["size"] = {"height": down, "width": across}
    if config.crop_share == 1:
        return {"image_processor_type": "ViTImageProcessor", **told}
    return {"image_processor_type": "DeiTImageProcessor", **told, **cut}


# --- parts ------------------------------------------------------------------------------------------------------


def _processor(told: dict[str, Any], model_type: str, where: str) -> str:
    """ViT, DeiT ..., whatever the class around it is called."""
    full = told.get("image_processor_type") or told.get("feature_extractor_type")
    if full is None:
        return OF_MODEL[model_type]
    name = str(full)
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(ending)
    if name not in PROCESSORS:
        known = ", ".join(f"{one}ImageProcessor" for one in PROCESSORS)
        raise _refusal("image_processor_type", f"one of {known}", full, where)
    return name


def _normalisation(told: dict[str, Any], where: str) -> dict[str, Any]:
    """Mean and std of pixels counted from 0 to 1, however theirs are counted."""
    mean, std = told["image_mean"], told["image_std"]
    if not told["do_normalize"]:
        mean, std = [0.0] * 3, [1.0] * 3
    mean, std = ([value] * 3 if isinstance(value, int | float) else value for value in (mean, std))
    if not all(isinstance(values, list | tuple) and values for values in (mean, std)) or len(mean) != len(std):
        raise _refusal("image_mean and image_std", "as many numbers as channels", f"{mean}, {std}", where)
    factor = told.get("rescale_factor", 1 / 255) if told["do_rescale"] else 1.0
    try:
        unit = 1.0 if math.isclose(factor, 1 / 255, rel_tol=1e-9) else 1 / (255 * factor)
        scaled = [[float(value) * unit for value in values] for values in (mean, std)]
    except (TypeError, ValueError, ArithmeticError):
        raise _refusal(
            "rescale_factor, image_mean and image_std", "numbers", f"{factor}, {mean}, {std}", where
        ) from None
    return {"in_chans": len(mean), "mean": scaled[0], "std": scaled[1]}


def _cut(told: dict[str, Any], resized: _Sides, where: str) -> dict[str, Any]:
    """Size, crop and crop_share."""
    if not told["do_center_crop"]:
        if resized.kind == "shorter":
            raise _refusal(
                "do_center_crop", "true where size is the shorter side: a model reads one size", "false", where
            )
        return {"img_size": [resized.height, resized.width], "crop": "squash"}
    kept = _sides(told.get("crop_size", 224), "crop_size", where, shorter=False)
    size = (kept.height, kept.width)
    share = _share(size, (resized.height, resized.width))
    if resized.kind == "shorter" and kept.height != kept.width:
        raise _refusal("crop_size", "a square where size is the shorter side", f"{kept.height} x {kept.width}", where)
    if share is None:
        wanted = f"at most the size, {resized.height} x {resized.width}, and of its shape"
        raise _refusal("crop_size", wanted, f"{kept.height} x {kept.width}", where)
    return {"img_size": list(size), "crop": "centre" if resized.kind == "shorter" else "squash", "crop_share": share}


def _share(kept: tuple[int, int], resized: tuple[int, int]) -> float | None:
    """A crop_share by which `kept` becomes `resized`, rounded down, in few digits if it can be; None above 1."""
    ratio = kept[0] / resized[0]
    for share in (round(ratio, 1), round(ratio, 2), round(ratio, 3), ratio, math.nextafter(ratio, 0)):
        sides = zip(kept, resized, strict=True)
        if 0 < share <= 1 and all(math.floor(side / share) == whole for side, whole in sides):
            return share
    return None


def _sides(value: Any, name: str, where: str, *, shorter: bool) -> _Sides:
    """{height, width}, {shortest_edge}, [height, width] or one number."""
    if isinstance(value, int) and 0 < value <= LARGEST_SIDE:
        return _Sides(value, value, "shorter" if shorter else "both")
    if isinstance(value, list | tuple) and len(value) == 2:
        value = dict(zip(("height", "width"), value, strict=True))
    if isinstance(value, dict):
        known = {key: side for key, side in value.items() if side is not None}
        if all(isinstance(side, int) and 0 < side <= LARGEST_SIDE for side in known.values()):
            if set(known) == {"height", "width"}:
                return _Sides(known["height"], known["width"])
            if set(known) == {"shortest_edge"} and name == "size":
                return _Sides(known["shortest_edge"], known["shortest_edge"], "shorter")
    raise _refusal(name, "a number, {height, width}, or for size {shortest_edge}", value, where)


def _refusal(name: str, wanted: str, received: object, where: str) -> ConfigError:
    return ConfigError(
        expected(name, wanted, shown(received)),
        where=where,
        fix=f"correct it, or take {FILE} away and give the model its preprocessing afterwards",
    )
