"""Hugging Face's model folder: config.json, model.safetensors and preprocessor_config.json, read and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from vitscope.core.config import shortened, updated
from vitscope.core.dtypes import type_name
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.core.files import write_json
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig, pair
from vitscope.models.model import VisionModel
from vitscope.weights.files import Stored
from vitscope.weights.fit import fitted_preprocessing
from vitscope.weights.formats.damaged import refusing_damage
from vitscope.weights.formats.fixed_positions import sincos_table
from vitscope.weights.formats.huggingface import (
    DECODER_POSITIONS,
    MASK_TOKEN,
    POSITIONS,
    backbone_of,
    holds_sincos,
    naming,
)
from vitscope.weights.formats.huggingface_config import TheirClass, class_for, read_config, written_config
from vitscope.weights.formats.huggingface_pictures import FILE as PICTURES
from vitscope.weights.formats.huggingface_pictures import read_pictures, written_pictures
from vitscope.weights.names import cleaned

CONFIG, WEIGHTS = "config.json", "model.safetensors"
WITHIN = "processor_config.json"
"""Where transformers may put what else preprocessor_config.json holds, as its `image_processor`."""


# --- reading ----------------------------------------------------------------------------------------------------


def described_by(
    described: dict[str, Any], folder: Path, stored: Stored
) -> tuple[ModelConfig, PreprocessConfig | None, list[str] | None]:
    """What a folder says of its model, its pictures and its classes. What a person should know beside that is added to
    the remarks of `stored`."""
    where = str(folder / CONFIG)
    with refusing_damage(where):
        tensors = cleaned(stored)
        config = read_config(described, tensors, sincos=_has_sincos(described, tensors), where=where)
        with refusing_damage(str(folder / PICTURES)):
            pictures = _pictures(described, folder, pair(config.img_size))
        stored.remarks = (*stored.remarks, *_remarks(described, config))
        return config, pictures, _labels(described, where)


def _has_sincos(described: dict[str, Any], tensors: Stored) -> bool:
    """Whether the positions are the fixed ones of MAE; files hold them as a table, which may also be another."""
    try:
        grid = [s // p for s, p in zip(*(pair(described.get(k, d)) for k, d in SIZES), strict=True)]
    except (TypeError, ValueError, ZeroDivisionError):
        return False  # told when the config is read
    name = f"{backbone_of(tensors)}{POSITIONS}"
    return holds_sincos(tensors, name, (grid[0], grid[1]))


NAMELESS = "LABEL_"
"""What transformers calls classes, with their numbers, where nobody has named them."""
SIZES = (("image_size", 224), ("patch_size", 16))
"""What the grid follows from, and what is meant where it is not said."""


def _pictures(described: dict[str, Any], folder: Path, img_size: tuple[int, int]) -> PreprocessConfig | None:
    path = folder / PICTURES
    if not path.is_file():
        path = folder / WITHIN
    if not path.is_file():
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if path.name == WITHIN and isinstance(told, dict):
            told = told.get("image_processor")
            if told is None:  # of words or sounds alone
                return None
        if not isinstance(told, dict):
            raise ValueError(f"a {type(told).__name__}, not a mapping")
    except (OSError, ValueError) as error:
        raise VitscopeError(f"cannot read {path.name}: {error}", where=str(folder), fix="copy it again") from None
    return read_pictures(told, described["model_type"], img_size, where=str(path))


def _labels(described: dict[str, Any], where: str) -> list[str] | None:
    names = described.get("id2label")
    if not isinstance(names, dict) or not names:
        return None
    try:
        numbered = {int(number): str(name) for number, name in names.items()}
    except ValueError:
        numbered = {}
    if sorted(numbered) != list(range(len(names))):
        raise ConfigError(
            expected("id2label", f"the numbers 0 to {len(names) - 1}, each with a name", shortened(sorted(names)[:5])),
            where=where,
        )
    labels = [numbered[number] for number in range(len(numbered))]
    return None if labels == [f"{NAMELESS}{number}" for number in range(len(labels))] else labels


def _remarks(described: dict[str, Any], config: ModelConfig) -> list[str]:
    if described["model_type"] == "deit" and not getattr(config, "distilled", False):
        return ["DeiT's distillation token has no head of its own here: it is held as a register"]
    return []


def warnings_of(described: dict[str, Any], stored: Stored) -> tuple[str, ...]:
    """What a person must be told of such a folder, whatever is asked of it."""
    tensors = cleaned(stored)
    name = f"{backbone_of(tensors)}{POSITIONS}"
    if described["model_type"] == "vit_mae" and name in tensors and not tensors[name].any():
        return (f"{name} is all zeros, not MAE's fixed sin-cos table: the model sees no positions",)
    return ()


@dataclass(frozen=True)
class OtherSize:
    """A processor that makes pictures of another size than the positions are for, which transformers then moves."""

    pictures: tuple[int, int]
    positions: tuple[int, int]
    moved: str
    """When transformers does it."""
    way: str
    """How, in the words of `Resampling`."""

    def warning(self, img_size: tuple[int, int], way: str) -> str | None:
        """What is to be said of a model loaded for `img_size`, its positions moved in this `way`."""
        (height, width), (down, across) = self.pictures, self.positions
        if img_size not in (self.pictures, self.positions) or (img_size == self.pictures and way == self.way):
            return None
        size = f"{height}" if height == width else f"{height} {width}"
        in_python = f"img_size={height if height == width else self.pictures}"
        return (
            f"the processor makes pictures of {height} x {width}, the positions are for {down} x {across}; "
            f"transformers moves them {self.moved}; to get its numbers: --positions {self.way} --img-size {size} "
            f"({in_python}, resampling=Resampling(positions='{self.way}'))"
        )


def other_size(described: dict[str, Any], config: ModelConfig, pictures: PreprocessConfig | None) -> OtherSize | None:
    size, kind = pair(config.img_size), described["model_type"]
    if pictures is None or pictures.img_size == size:
        return None
    moved = "at every call" if "dinov2" in kind else "where it is told interpolate_pos_encoding=True"
    # Of transformers' models one has antialias.
    way = "bicubic_antialias" if kind == "dinov2_with_registers" else "bicubic"
    return OtherSize(pictures.img_size, size, moved, way)


# --- writing ----------------------------------------------------------------------------------------------------


def save_folder(model: VisionModel, folder: Path) -> list[str]:
    """Write `model` into an empty folder, so that the Auto classes of transformers open it. What was folded, filled in
    or left behind is returned, a sentence each. What none of their classes computes is an error; nothing is written."""
    where = "writing for Hugging Face"
    config: Any = model.config
    chosen = class_for(config, where=where)
    remarks: list[str] = []
    pictures = _pictures_of(model, remarks)
    told = written_pictures(pictures, where=where)
    if pictures.in_chans != 3:
        kind = "grey pictures ('L')" if pictures.in_chans == 1 else f"pictures of {pictures.in_chans} channels"
        remarks.append(f"a processor of transformers turns colours into no other channels: give it {kind}")
    tensors = _written_tensors(model, chosen, remarks)
    labels = model.labels or [f"{NAMELESS}{number}" for number in range(config.num_classes)]
    dtype = type_name(next(iter(tensors.values())).dtype)
    write_json(folder / CONFIG, written_config(config, chosen, labels=labels, dtype=dtype))
    write_json(folder / PICTURES, told)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)  # safetensors keeps its files to their owner
    return remarks


def _pictures_of(model: VisionModel, remarks: list[str]) -> PreprocessConfig:
    size, carried = pair(model.config.img_size), fitted_preprocessing(model.preprocessing, model.config)
    if carried is None:
        new = updated(half_normalised(size, model.config.in_chans), resizer="tensor")
        remarks.append("the model had no preprocessing: mean = std = 0.5 was written")
        return new if size[0] == size[1] else updated(new, crop="squash")
    if carried.resizer == "pillow":
        remarks.append(
            "pictures are resized by Pillow here, as AutoImageProcessor.from_pretrained(..., backend='pil') does; "
            "without it single pixels differ by one level"
        )
    if carried.resizer == "pillow" and carried.crop == "centre":
        remarks.append("where the middle of a picture lies between two pixels, transformers may cut it one pixel aside")
    return carried


def _written_tensors(model: VisionModel, chosen: TheirClass, remarks: list[str]) -> dict[str, Tensor]:
    config: Any = model.config
    find = naming(config, chosen.backbone)
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        match = find(name)
        if match is None:
            raise VitscopeError(f"Hugging Face has no name for {name}", where=chosen.name, fix="report this as a bug")
        parts = match.write(tensor.detach().cpu())
        tensors |= dict(zip(match.written, parts, strict=True))
    tensors |= _filled(config, chosen, tensors, remarks)
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}


def _filled(config: Any, chosen: TheirClass, tensors: Mapping[str, Tensor], remarks: list[str]) -> dict[str, Tensor]:
    """Tensors that they have and we do not: each has one value that changes nothing."""
    vit: ViTConfig = getattr(config, "encoder", config)
    like = next(iter(tensors.values()))
    filled: dict[str, Tensor] = {}
    positions, prefix = f"{chosen.backbone}{POSITIONS}", 2 if chosen.model_type == "deit" else 1
    if vit.position == "sincos":
        filled[positions] = sincos_table(vit.grid_size, vit.embed_dim, prefix=prefix)
        remarks.append("the fixed sin-cos positions were written as a table")
    elif vit.position == "none":
        filled[positions] = torch.zeros(1, prefix + vit.num_patches, vit.embed_dim)
        remarks.append("the model has no positions: a table of zeros was written")
    elif not vit.prefix_position:
        remarks.append("the class token has no position here: its row was written as zeros")
    if isinstance(config, MAEConfig):
        filled[DECODER_POSITIONS] = sincos_table(vit.grid_size, config.decoder_embed_dim)
    if "dinov2" in chosen.model_type:
        filled[f"{chosen.backbone}{MASK_TOKEN}"] = torch.zeros(1, vit.embed_dim)
        remarks.append("the token of hidden patches, which a model here does not have, was written as zeros")
    if chosen.name in ("ViTModel", "DeiTModel"):
        remarks.append("no pooler was written: transformers makes one anew; last_hidden_state does not pass it")
    if getattr(config, "head_drop_rate", 0.0):
        remarks.append("head_drop_rate has no place there; it counts in training only")
    return {name: tensor.to(like.dtype) for name, tensor in filled.items()}


# --- the same in transformers -----------------------------------------------------------------------------------

CLASSES = (
    "ViTModel",
    "ViTForImageClassification",
    "ViTForMaskedImageModeling",
    "ViTMAEModel",
    "ViTMAEForPreTraining",
    "DeiTModel",
    "DeiTForImageClassification",
    "DeiTForImageClassificationWithTeacher",
    "DeiTForMaskedImageModeling",
    "Dinov2Model",
    "Dinov2WithRegistersModel",
)
"""What is opened by its own name."""
WITHOUT_HEAD = {
    "Dinov2ForImageClassification": "Dinov2Model",
    "Dinov2WithRegistersForImageClassification": "Dinov2WithRegistersModel",
}
"""Classes whose heads have no place here, and what is opened in their stead."""


def peer(folder: Path) -> Callable[[Tensor], Tensor] | None:
    """The same weights in transformers: images -> what `answer` gives of ours. None where it is not installed.

    Logits where there is a head, else all tokens after the last norm. MAE paints from the first patches, the later
    ones hidden; SimMIM paints with every second patch hidden: nothing is drawn at random.
    """
    try:
        import transformers
    except ImportError:
        return None
    described = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    name = (described.get("architectures") or ["AutoModel"])[0]
    opened = WITHOUT_HEAD.get(name, name)
    kind = getattr(transformers, opened if opened in CLASSES else "AutoModel")
    theirs: Any = kind.from_pretrained(folder).float().eval()  # in whatever type it lies there, both compute alike

    @torch.inference_mode()
    def ask(images: Tensor) -> Tensor:
        patches = theirs.config.image_size // theirs.config.patch_size if "Mask" in name or "MAE" in name else 0
        if name == "ViTMAEModel":
            theirs.config.mask_ratio = 0.0
        if "MAE" in name:
            told = theirs(images, noise=fixed_noise(images, patches**2))
        elif "Masked" in name:
            return theirs(images, bool_masked_pos=fixed_mask(images, patches**2)).reconstruction
        else:
            told = theirs(images) if theirs.config.num_labels else theirs.base_model(images)
        return told.logits if hasattr(told, "logits") else told.last_hidden_state

    return ask


@torch.inference_mode()
def answer(model: VisionModel, images: Tensor) -> Tensor:
    """What ours gives where `peer` gives theirs."""
    config: Any = model.config
    if isinstance(config, MAEConfig):
        return model(images, noise=fixed_noise(images, config.encoder.num_patches))[1]
    if isinstance(config, SimMIMConfig):
        return model(images, fixed_mask(images, config.encoder.num_patches))[1]
    return model(images) if config.num_classes else model.forward_features(images)


def fixed_noise(images: Tensor, patches: int) -> Tensor:
    """Rising: the first patches are seen, the others hidden."""
    return torch.linspace(0, 1, patches, device=images.device).expand(images.shape[0], -1)


def fixed_mask(images: Tensor, patches: int) -> Tensor:
    """Every second patch is hidden."""
    return (torch.arange(patches, device=images.device) % 2 == 0).expand(images.shape[0], -1)
