"""Large random weights for parity tests: with fresh ones a wrong formula hides in the rounding."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

GAIN = 1.5
SPREAD = 0.2
LAYER_SCALES = ("gamma", "lambda1", "gamma_1", "gamma_2")


@torch.no_grad()
def fill_with_large_random_weights(model: nn.Module, seed: int = 0) -> None:
    """Overwrite every trained parameter and every running statistic, the same way for the same seed.

    Matrices and filters N(0, (1.5 / sqrt(fan_in))^2); biases, tokens and tables N(0, 0.2^2); norm weights
    1 + N(0, 0.2^2); LayerScale U(0.5, 1.5); BatchNorm means N(0, 0.2^2) and variances U(0.5, 1.5).
    Parameters that are not trained (fixed position tables) stay, because the other side computes them.
    """
    rng = torch.Generator().manual_seed(seed)

    def normal(like: Tensor, std: float) -> Tensor:
        return std * torch.randn(like.shape, generator=rng)

    def uniform(like: Tensor) -> Tensor:
        return 0.5 + torch.rand(like.shape, generator=rng)

    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        if not parameter.requires_grad:
            continue
        if leaf in LAYER_SCALES:
            parameter.copy_(uniform(parameter))
        elif leaf == "weight" and parameter.ndim == 1:
            parameter.copy_(1.0 + normal(parameter, SPREAD))
        elif leaf.endswith("weight"):
            parameter.copy_(normal(parameter, GAIN / math.sqrt(parameter[0].numel())))
        else:
            parameter.copy_(normal(parameter, SPREAD))
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(normal(buffer, SPREAD))
        elif name.endswith("running_var"):
            buffer.copy_(uniform(buffer))
