"""A loaded model made ready for other pictures, patches, channels or classes."""

from __future__ import annotations

from vitscope.core.config import config
from vitscope.models.config import ModelConfig, pair
from vitscope.models.model import VisionModel
from vitscope.weights.certificate import Entry


@config
class Resampling:
    """How tensors are moved to other sizes."""


def adapt(model: VisionModel, wanted: ModelConfig, resampling: Resampling) -> list[Entry]:
    """Change `model` to what `wanted` says of pictures and classes; an entry for each tensor that changed."""
    before = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if pair(wanted.img_size) != pair(model.config.img_size):
        model.set_input_size(wanted.img_size)
    entries = []
    if wanted.num_classes != model.num_classes:
        model.reset_classifier(wanted.num_classes)
        heads = tuple(f"{name}." for name in model.classifiers())
        entries += [
            Entry("new", name, tuple(tensor.shape), how=f"a new head of {wanted.num_classes} classes", in_head=True)
            for name, tensor in model.state_dict().items()
            if name.startswith(heads)
        ]
    for name, tensor in model.state_dict().items():
        if name in before and tuple(tensor.shape) != before[name] and name not in {e.ours for e in entries}:
            entries.append(Entry("resampled", name, tuple(tensor.shape), how="bicubic"))
    return entries
