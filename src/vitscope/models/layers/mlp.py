"""The feed-forward half of a block: plain (fc1, activation, fc2) or gated (Shazeer 2020, arXiv 2002.05202)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def quick_gelu(x: Tensor) -> Tensor:
    """The sigmoid form OpenAI's CLIP was trained with."""
    return x * torch.sigmoid(1.702 * x)


def gelu_tanh(x: Tensor) -> Tensor:
    """The form of the tanh, close to the exact one."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
    "silu": F.silu,
    "quick_gelu": quick_gelu,
}


class Mlp(nn.Module):
    """fc1 -> activation -> dropout -> fc2 -> dropout."""

    def __init__(self, dim: int, neurons: int, *, act: str = "gelu", drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, neurons)
        self.act_name = act
        self.act = ACTIVATIONS[act]
        self.drop = nn.Dropout(drop)
        self.fc2 = nn.Linear(neurons, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class GatedMlp(nn.Module):
    """fc1 holds gate and value side by side; act(gate) * value -> dropout -> fc2 -> dropout."""

    def __init__(self, dim: int, neurons: int, *, act: str = "silu", drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 2 * neurons)
        self.act = ACTIVATIONS[act]
        self.drop = nn.Dropout(drop)
        self.fc2 = nn.Linear(neurons, dim)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.drop(self.fc2(self.drop(self.act(gate) * value)))
