"""A loaded model made ready for other pictures, patches, channels or classes."""

from __future__ import annotations

from typing import Literal

from vitscope.core.config import config
from vitscope.models.config import ModelConfig, ViTConfig, pair
from vitscope.models.model import VisionModel
from vitscope.weights.certificate import Entry

PAINTERS = ("decoder_pred.", "decoder.0.")
"""Of masked models, the layers whose outputs are pixels."""


@config
class Resampling:
    """How tensors are moved to other sizes. The defaults are timm's conventions, but for channels (see there)."""

    positions: Literal["bicubic_antialias", "bicubic"] = "bicubic_antialias"
    """Learned positions: bicubic with antialias (timm, and DINOv2 with registers in transformers), or plain (DeiT, MAE,
    DINO, all others of transformers). Relative tables are always moved by plain bicubic."""
    patch_filter: Literal["pseudo_inverse", "area"] = "pseudo_inverse"
    """The patch filter: answers to resized patches come closest to the old ones (FlexiViT), or weights under a new
    pixel are summed."""
    channels: Literal["sum", "mean", "repeat"] = "sum"
    """The first layer's channels: summed to fewer, shared over more, so that a grey picture is answered as before (timm
    does the same to one channel and to multiples of the old ones, and else scales all alike); the mean for each; or
    repeated as they are."""


POSITIONS = {"bicubic_antialias": "bicubic with antialias", "bicubic": "bicubic"}
FILTERS = {"pseudo_inverse": "pseudo-inverse", "area": "area"}
CHANNELS = {"sum": "summed", "mean": "the mean of all", "repeat": "repeated in turn"}


def adapt(model: VisionModel, wanted: ModelConfig, resampling: Resampling) -> list[Entry]:
    """Change `model` to what `wanted` says of pictures and classes; an entry for each tensor that changed.

    What a family cannot be moved to is refused by it. Where the number of classes is the same, the head stays.
    """
    before, was = dict(model.named_parameters()), model.config
    sizes = pair(wanted.img_size), _patch(wanted)
    if sizes != (pair(was.img_size), _patch(was)):
        model.set_input_size(
            wanted.img_size,
            patch_size=getattr(wanted, "patch_size", None),
            antialias=resampling.positions == "bicubic_antialias",
            patch_filter=resampling.patch_filter,
        )
    if wanted.in_chans != was.in_chans:
        model.set_in_chans(wanted.in_chans, method=resampling.channels)
    entries = []
    for name, parameter in model.named_parameters():
        if parameter is not before[name]:
            how = _words(name, was, model.config, resampling, before[name].shape[0], parameter.shape[0])
            entries.append(Entry("resampled", name, tuple(parameter.shape), how=how))
    if wanted.num_classes != model.num_classes:
        entries += _change_head(model, wanted.num_classes)
    return entries


def _change_head(model: VisionModel, num_classes: int) -> list[Entry]:
    heads, old = tuple(f"{name}." for name in model.classifiers()), model.num_classes
    gone = [name for name in model.state_dict() if name.startswith(heads)]
    model.reset_classifier(num_classes)
    if num_classes == 0:
        return [Entry("left out", name, None, how="features are wanted, not classes", in_head=True) for name in gone]
    how = f"a new head: {num_classes} classes instead of {old}" if old else f"a new head of {num_classes} classes"
    return [
        Entry("new", name, tuple(tensor.shape), how=how, in_head=True)
        for name, tensor in model.state_dict().items()
        if name.startswith(heads)
    ]


def _words(name: str, was: ModelConfig, now: ModelConfig, resampling: Resampling, rows: int, new_rows: int) -> str:
    """What was done to a tensor that changed."""
    if name.endswith("pos_embed"):
        grids = (_sides(_vit(config).grid_size) for config in (was, now))
        return f"{POSITIONS[resampling.positions]}, {' -> '.join(grids)}"
    if name.endswith("table"):
        return f"bicubic, {rows} -> {new_rows} offsets"
    said = []
    painted = name.startswith(PAINTERS)
    old, new = _patch(was), _patch(now)
    if old is not None and new is not None and old != new:
        kind = "resized as the picture it paints" if painted else FILTERS[resampling.patch_filter]
        said.append(f"{kind}, {_sides(old)} -> {_sides(new)} pixels")
    if was.in_chans != now.in_chans:
        kind = "mean or in turn" if painted else CHANNELS[resampling.channels]
        if not painted and resampling.channels == "sum" and now.in_chans > was.in_chans:
            said.append(f"shared over {now.in_chans} channels")
        else:
            said.append(f"{kind}, {was.in_chans} -> {now.in_chans} channels")
    return "; ".join(said)


def _patch(config: ModelConfig) -> tuple[int, int] | None:
    size = getattr(config, "patch_size", None)
    return None if size is None else pair(size)


def _vit(config: ModelConfig) -> ViTConfig:
    """The settings of the ViT itself; of a masked model, of its encoder."""
    return getattr(config, "encoder", config)  # pyright: ignore[reportReturnType]


def _sides(sides: tuple[int, int]) -> str:
    return f"{sides[0]} x {sides[1]}"
