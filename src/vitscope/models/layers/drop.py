"""Stochastic depth: whole branches left out, per sample (Huang et al. 2016, arXiv 1603.09382)."""

from __future__ import annotations

from torch import Tensor, nn


class DropPath(nn.Module):
    """In training, zeroes a sample's branch with probability `rate` and scales the others to keep the mean."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1.0 - self.rate
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * (mask / keep)

    def extra_repr(self) -> str:
        return f"rate={self.rate:.3f}"


def rising_rates(last: float, count: int) -> list[float]:
    """Linear from 0 at the first block to `last` at the last."""
    return [last * i / (count - 1) if count > 1 else 0.0 for i in range(count)]
