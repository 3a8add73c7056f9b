"""Memory of a training step, without using any: a dry run on fake tensors counts what autograd would keep.

Exact for eager PyTorch on the CPU; an estimate elsewhere (a GPU adds workspaces, a compiler saves some).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from vitscope.models.modes import in_mode

ADAM_STATES = 2


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes, for a batch of `batch` images with fp32 weights and Adam."""

    batch: int
    weights: int
    gradients: int
    optimiser: int
    activations: int
    """Kept for the backward pass, fp32 arithmetic."""
    activations_bf16: int
    """The same under bf16 autocast."""
    weights_bf16: int
    """The copies autocast makes of the weights."""

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimiser + self.activations

    @property
    def total_bf16(self) -> int:
        return self.weights + self.weights_bf16 + self.gradients + self.optimiser + self.activations_bf16


def training_memory(model: nn.Module, image_shape: tuple[int, int, int], batch: int) -> TrainingMemory:
    """`model` must be on the meta device; it is not changed."""
    weights = sum(parameter.numel() for parameter in model.parameters()) * 4
    once = _kept_for_backward(model, image_shape, batch, bf16=True)
    twice = _kept_for_backward(model, image_shape, 2 * batch, bf16=True)
    return TrainingMemory(
        batch=batch,
        weights=weights,
        gradients=weights,
        optimiser=ADAM_STATES * weights,
        activations=_kept_for_backward(model, image_shape, batch, bf16=False),
        activations_bf16=twice - once,
        weights_bf16=2 * once - twice,  # what does not grow with the batch
    )


def _kept_for_backward(model: nn.Module, image_shape: tuple[int, int, int], batch: int, *, bf16: bool) -> int:
    kept: dict[int, torch.UntypedStorage] = {}
    with FakeTensorMode(), in_mode(model, training=True):
        tensors = {
            name: torch.empty(tensor.shape, dtype=tensor.dtype, requires_grad=isinstance(tensor, nn.Parameter))
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]
        }
        own = {tensor.untyped_storage()._cdata for tensor in tensors.values()}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                kept[storage._cdata] = storage  # holding it keeps its address from being used again
            return tensor

        images = torch.empty(batch, *image_shape)
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=bf16),
        ):
            output = torch.func.functional_call(model, tensors, (images,))
            _any_loss(output)
    return sum(storage.nbytes() for storage in kept.values())


def _any_loss(output: object) -> Tensor:
    """The loss a model would be trained with, so that what it keeps is counted too."""
    if isinstance(output, Tensor):
        labels = torch.zeros(len(output), dtype=torch.long)
        return F.cross_entropy(output.float(), labels)
    loss = getattr(output, "loss", None)
    if not isinstance(loss, Tensor):
        raise TypeError(f"expected logits or a result with a loss, received {type(output).__name__}")
    return loss
