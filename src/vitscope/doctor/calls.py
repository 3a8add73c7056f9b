"""What every part of a network was given and gave in one pass, and what becomes of a pass where parts are changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.doctor.patient import as_logits

Swap = Callable[[Tensor], Tensor]
"""What a part gave -> what the rest of the network is told it gave."""
MOST_HEADS = 4
"""That a model may have beside its classifier."""


@dataclass(frozen=True)
class Call:
    """One use of a module, in the order they ended. Only the first tensor of what goes in and comes out."""

    name: str
    module: nn.Module
    given: Tensor
    gave: Tensor
    depth: int
    """How many recorded modules it ran inside of."""

    @property
    def class_axis(self) -> int:
        """Where classes lie in what it gave, if it is a classifier: a convolution's are maps."""
        return 1 if isinstance(self.module, nn.Conv2d) else -1

    def tokens(self, pictures: int) -> int:
        """Of each of so many pictures, in all windows together."""
        return self.given.numel() // (pictures * self.given.shape[-1])


@torch.no_grad()
def calls_of(model: nn.Module, images: Tensor, wanted: Callable[[nn.Module], bool] | None = None) -> list[Call]:
    """One pass without gradients, in the modes the modules have. Without `wanted`: every leaf."""
    seen: list[Call] = []
    open_now: list[str] = []
    hooks: list[Any] = []
    wanted = is_leaf if wanted is None else wanted

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: open_now.append(name)

    def leave(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], gave: Any) -> None:
            open_now.pop()
            first, result = first_tensor((given, named)), first_tensor(gave)
            if first is not None and result is not None:
                seen.append(Call(name, module, first.detach(), result.detach(), len(open_now)))

        return hook

    try:
        for name, module in model.named_modules():
            if wanted(module):
                hooks.append(module.register_forward_pre_hook(enter(name)))
                hooks.append(module.register_forward_hook(leave(name), with_kwargs=True))
        with plain_attention():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


@torch.no_grad()
def pass_with(model: nn.Module, images: Tensor, swaps: dict[str, Swap], watched: nn.Module | None = None) -> Tensor:
    """The logits where the named modules give something else; with `watched`, what that module is given instead."""
    hooks: list[Any] = []
    caught: list[Tensor] = []

    def swapped(swap: Swap) -> Callable[..., Any]:
        def hook(_module: nn.Module, _given: Any, gave: Any) -> Any:
            if isinstance(gave, Tensor):
                return swap(gave)
            return (swap(gave[0]), *gave[1:]) if isinstance(gave, tuple) else gave

        return hook

    modules = dict(model.named_modules())
    try:
        hooks += [modules[name].register_forward_hook(swapped(swap)) for name, swap in swaps.items()]
        if watched is not None:
            hooks.append(watched.register_forward_pre_hook(lambda _module, given: caught.append(given[0].detach())))
        with plain_attention():
            logits = as_logits(model(images))
    finally:
        for hook in hooks:
            hook.remove()
    return caught[-1] if caught else logits


@torch.no_grad()
def classifier_of(model: nn.Module, images: Tensor) -> Call | None:
    """What gives the logits, as far as one can see: the last linear layer that they hang on, or the last convolution
    where there is none. Heads beside it, for an auxiliary loss or a teacher, may run after it."""
    calls = [call for call in calls_of(model, images) if isinstance(call.module, nn.Linear | nn.Conv2d)]
    layers = [call for call in calls if isinstance(call.module, nn.Linear)] or calls
    plain = pass_with(model, images, {})
    for call in layers[: -MOST_HEADS - 1 : -1]:
        if not torch.equal(pass_with(model, images, {call.name: partial(_otherwise, call.class_axis)}), plain):
            return call
    return layers[-1] if layers else None


def _otherwise(axis: int, gave: Tensor) -> Tensor:
    """Not by the same for all: softmax does not feel that."""
    more = torch.linspace(1, 2, gave.shape[axis]).to(gave)
    return gave + (more.view(-1, 1, 1) if axis == 1 else more)


def is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def first_tensor(value: Any) -> Tensor | None:
    """The first floating tensor in whatever a module is given or gives."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((found for one in value if (found := first_tensor(one)) is not None), None)
    return None


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """torch's own encoder layer goes past its parts where it can, and hooks with it."""
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)
