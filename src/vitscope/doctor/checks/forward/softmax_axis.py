"""Are attention's weights shares of the keys? What a softmax gave and then multiplies the values is summed along the
axis the product runs over, which is the keys': each token's weights must come to 1. Where they do along another axis
instead, the softmax was taken over that.

All products inside attention are seen, however they are written (`@`, bmm, einsum). Attention in one fused call is
right, and what has no softmax, or one over something else than tokens x tokens, is another kind and left alone.

B pictures (or windows), P of their products, N tokens, D width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vitscope.doctor.attention_parts import is_attention
from vitscope.doctor.calls import first_tensor, plain_attention
from vitscope.doctor.checks.forward.position import nudge
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.forward import ATTENTION_PICTURES, ROWS_APART, ROWS_EXACT

AXES = {"queries": -2, "heads": 1, "pictures": 0}
"""Of (pictures, heads, N, N), other than the keys'."""


@torch.no_grad()
def softmax_axis(patient: Patient) -> Seen:
    images, _ = patient.sample(ATTENTION_PICTURES)
    patient.model.eval()
    nudge(patient)  # queries that begin at zero ask of all alike: then all axes say the same
    watched = _Watched(len(images))
    with plain_attention(), watched.inside(patient.model), watched:
        patient.model(images)
    if not watched.products:
        return Seen(left_out="no_weights_to_see")
    wrong = [one for one in watched.products if one.axis is not None]
    seen = Seen(measured={"products": len(watched.products), "wrong": len(wrong)})
    if wrong:
        least, most = min(one.least for one in wrong), max(one.most for one in wrong)
        numbers = {"count": len(wrong), "of": len(watched.products), "least": least, "most": most}
        seen.findings.append(Finding("softmax_wrong_axis", 0.96, {**numbers, "axis": wrong[0].axis}))
    return seen


@dataclass(frozen=True)
class _Product:
    """Of weights and values: the least and the most a token's weights come to, and the axis they are shares of where it
    is not the keys'."""

    least: float
    most: float
    axis: str | None


class _Watched(TorchDispatchMode):
    def __init__(self, pictures: int) -> None:
        super().__init__()
        self.pictures = pictures
        self.shares: dict[int, Tensor] = {}
        """What softmaxes gave, by where it lies; kept, so that nothing else comes to lie there."""
        self.products: list[_Product] = []
        self.tokens: list[int] = []
        """Of each attention that is at work."""

    @contextlib.contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        hooks: list[Any] = []
        for module in (one for one in model.modules() if is_attention(one)):
            hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            hooks.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, _module: nn.Module, given: Any, named: Any) -> None:
        first = first_tensor((given, named))  # (B, N, D)
        self.tokens.append(first.shape[1] if first is not None and first.ndim == 3 else 0)

    def _leave(self, *_: Any) -> None:
        self.tokens.pop()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        gave = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._softmax.default:
            self.shares[gave.untyped_storage().data_ptr()] = gave
        elif func is torch.ops.aten.bmm.default:
            first, second = args
            self._look(first, second.shape[-1])
            self._look(second.transpose(1, 2), first.shape[-2])
        return gave

    def _look(self, weights: Tensor, width: int) -> None:
        """(P, N, N) whose last axis the product runs over, with values of `width` numbers: where those are as many as
        there are tokens, nothing tells the two apart."""
        count, rows, tokens = weights.shape
        is_of_tokens = bool(self.tokens) and rows == tokens == self.tokens[-1] and tokens not in (1, width)
        is_known = weights.untyped_storage().data_ptr() in self.shares
        if is_of_tokens and is_known and count % self.pictures == 0:
            self._sum(weights.double())

    def _sum(self, weights: Tensor) -> None:
        rows = weights.sum(-1)
        if float((rows - 1).abs().max()) < ROWS_APART:
            axis = None
        else:
            apart = weights.unflatten(0, (self.pictures, -1))
            sums = {name: apart.sum(dim) for name, dim in AXES.items()}
            axis = next((name for name, one in sums.items() if float((one - 1).abs().max()) < ROWS_EXACT), None)
            if axis is None:
                return  # shares of something else: not to be judged
        self.products.append(_Product(float(rows.min()), float(rows.max()), axis))
