"""Muon: momentum whose matrices are orthogonalised before they move the weights (Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon; sizes of steps as in arXiv 2502.16982).

n matrices of one shape, r rows, c columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.errors import ConfigError, expected
from vitscope.train.shards import own_part, with_all_rows

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Jordan's coefficients: steep at 0, so that small singular values grow fast; most end between 0.7 and 1.2."""
ROUNDS = 5
EPS = 1e-7

copy_each = torch._foreach_copy_  # pyright: ignore[reportPrivateImportUsage]  # one launch for a list of tensors


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; decay apart from the gradient. Takes 2-D parameters only.

    A step's root mean square is 0.2 * lr, about AdamW's, whatever the shape: the lr and decay found for AdamW hold.
    Like torch's fused optimisers it takes `lr` as a tensor and looks at `found_inf`: where that is 1, parameters and
    state keep their bits. Nothing waits for the device, so a step can be captured in a CUDA graph.

    Of a matrix that several processes hold together (`wholes` names it for each parameter) every process turns all rows
    and moves its own.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float | Tensor = 1e-3,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        wholes: Mapping[nn.Parameter, nn.Parameter] | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.found_inf: Tensor | None = None
        self._wholes: Mapping[nn.Parameter, nn.Parameter] = {} if wholes is None else wholes
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ConfigError(expected("a parameter of Muon", "a matrix", f"shape {tuple(parameter.shape)}"))
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shape = self._whole(parameter).shape
                    by_shape.setdefault(shape, []).append((parameter, parameter.grad))
            for pairs in by_shape.values():
                self._move([parameter for parameter, _ in pairs], [gradient for _, gradient in pairs], group)
        return loss

    def _whole(self, parameter: nn.Parameter) -> nn.Parameter:
        return self._wholes.get(parameter, parameter)

    def _move(self, parameters: list[nn.Parameter], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """One step of all matrices of one shape, stacked: a few large launches instead of many small ones."""
        lr, decay, keep = group["lr"], group["weight_decay"], group["momentum"]
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        weights, momentum, gradient = torch.stack(list(parameters)), torch.stack(buffers), torch.stack(gradients)

        moved_momentum = momentum.lerp(gradient, 1 - keep)
        whole = self._whole(parameters[0])
        turned = orthogonalise(with_all_rows(whole, gradient.lerp(moved_momentum, keep)))
        direction = own_part(whole, turned, axis=1)
        size = 0.2 * math.sqrt(max(whole.shape))
        moved = weights * (1 - lr * decay) - direction * (lr * size)
        if self.found_inf is not None:
            # A choice, not a product: 0 * NaN would still be NaN.
            skip = self.found_inf > 0
            moved = torch.where(skip, weights, moved)
            moved_momentum = torch.where(skip, momentum, moved_momentum)
        copy_each(list(parameters), list(moved.unbind()))
        copy_each(buffers, list(moved_momentum.unbind()))


def orthogonalise(matrices: Tensor) -> Tensor:
    """(n, r, c): each matrix U S V^T becomes nearly U V^T by Newton-Schulz rounds. In bf16 on a GPU, which is enough,
    as S need only come near 1; in float32 on a CPU, where bf16 is slow."""
    a, b, c = QUINTIC
    x = matrices.bfloat16() if matrices.device.type == "cuda" else matrices.float()
    tall = matrices.shape[1] > matrices.shape[2]
    if tall:  # products of the short side are the cheap ones
        x = x.mT
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=EPS)  # no singular value above 1
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
