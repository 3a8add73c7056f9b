"""A 2:4 network to be timed: how fast it is does not depend on its weights, only that its kernels are right does."""

from __future__ import annotations

import torch
from torch import nn

from vitscope.core.errors import VitscopeError, expected
from vitscope.infer.benchmark.work import make_batch
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair
from vitscope.sparse.masks import apply_masks
from vitscope.sparse.two_of_four import as_two_of_four, two_of_four, why_no_two_of_four

PICTURES = 8
DTYPE = torch.bfloat16
CLOSE = 0.1
"""Of the logits' deviation: far above what bf16 rounds off, far below what a wrong product would do."""


def fresh_two_of_four(config: ModelConfig, device: torch.device) -> nn.Module:
    """With new weights, masked, on the device's sparse units."""
    return as_two_of_four(masked_two_of_four(config, device), device, dtype=DTYPE)


def masked_two_of_four(config: ModelConfig, device: torch.device, *, loud: bool = False) -> nn.Module:
    """The same as a dense network holds it. `loud`: weights so large that each layer matters to the logits, which new
    ones do not."""
    with device:
        model = build_model(config)
        for parameter in model.parameters():
            if loud and parameter.ndim > 1:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    apply_masks(model, two_of_four(model))
    return model.eval()


@torch.inference_mode()
def prove_two_of_four(config: ModelConfig, device: torch.device) -> float:
    """How far the logits on the sparse units are from those of the masked dense network, over their deviation; an
    error where that is no rounding."""
    missing = why_no_two_of_four(device)
    if missing is not None:
        raise VitscopeError(missing, where="2:4 kernels", fix="take a GPU that has them")
    with torch.inference_mode(False):
        masked = masked_two_of_four(config, device, loud=True)
        sparse = as_two_of_four(masked, device, dtype=DTYPE)
    images, _ = make_batch(PICTURES, pair(config.img_size), config.in_chans, config.num_classes, device)
    wanted = masked.to(device, DTYPE)(images.to(DTYPE)).float()
    said = sparse(images.to(DTYPE)).float()
    apart = float((said - wanted).abs().max() / wanted.std())
    if not apart <= CLOSE:
        raise VitscopeError(
            expected("logits on the 2:4 units", f"those of the masked network within {CLOSE:g}", f"{apart:.2g} apart"),
            where=str(device),
            fix="another torch: these kernels are wrong here",
        )
    return apart
