"""What reaches the head from each patch through all layers, not only the last.

Rollout (Abnar and Zuidema 2020, arXiv 2005.00928): half of what a block writes is taken to come through its attention
(the mean of its heads), half past it, R <- (A + I) / 2 @ R, from R = I. It does not know of classes.

Gradient rollout (Chefer, Gur and Wolf 2021, arXiv 2103.15679, their rule for self-attention): attention counts as far
as it speaks for one class, R <- R + E_h[(dA * A)^+] @ R, from R = I, where dA is the gradient of the class's logit.

R is (T, T): a row for each token, what it holds of each patch at the start.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Rollout:
    """R, as the layers come by one after the other."""

    def __init__(self, tokens: int) -> None:
        self.reached = torch.eye(tokens)

    def through(self, weights: Tensor) -> None:
        """One layer's weights (heads, T, T)."""
        mean = weights.mean(0).cpu().to(self.reached.dtype)
        self.reached = (mean @ self.reached + self.reached) / 2


def gradient_rollout(layers: Iterable[Tensor]) -> Tensor:
    """R, from E_h[(dA * A)^+] (T, T) of every layer, first to last."""
    reached: Tensor | None = None
    for relevance in layers:
        reached = torch.eye(len(relevance)) if reached is None else reached
        reached = reached + relevance.to(reached.dtype) @ reached
    return torch.eye(0) if reached is None else reached
