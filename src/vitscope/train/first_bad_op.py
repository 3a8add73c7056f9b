"""Which operation was the first to make something that is not finite out of what was: seen below autograd, so that the
backward pass is seen too."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

UNWRITTEN = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "resize_")
"""They give memory nobody has written to: whatever is in it says nothing."""
NO_LAYER = ""
"""Outside the model: the loss."""


@dataclass(frozen=True)
class BadOperation:
    """Where it began."""

    name: str
    """As torch calls it: exp, div, addmm, native_layer_norm."""
    layer: str
    """Name of the module it belongs to; `the model` itself, or, of the loss, empty."""
    phase: Literal["forward", "backward"]
    gave: Literal["NaN", "infinity"]
    largest_input: float | None
    """The largest absolute value it was given, of finite ones; None where it was given no numbers."""


@dataclass(frozen=True)
class _Event:
    operation: BadOperation
    layers: tuple[str, ...]
    """Open modules, outermost first."""
    number: int
    was_told: bool
    """Whether a number that is not finite was written into the code, as masks do: then it is no fault by itself."""


class FirstBadOperation(TorchDispatchMode):
    """`with FirstBadOperation(model) as watch: ...`; then `watch.first_bad_module` and `watch.found()`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.open: list[str] = []
        self.events: list[_Event] = []
        self.first_bad_module: str | None = None
        self.entered_at: int = 0
        """Of the first bad module: operations before it."""
        self._was_given_bad = False
        self._is_looking = False
        self._entries: list[int] = []
        self._operations = 0
        self._nodes: list[tuple[int, str]] = [(-1, NO_LAYER)]
        """From which of autograd's nodes on which layer made them, in their order."""
        self._handles: list[Any] = []

    def __enter__(self) -> FirstBadOperation:
        for name, module in self.model.named_modules():
            known = name or "the model"
            # The last hook of all: what an owner's hook makes of an output counts as the layer's.
            self._handles.append(module.register_forward_pre_hook(self._entering(known)))
            self._handles.append(module.register_forward_hook(self._leaving(known), always_call=True))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._is_looking:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        given = list(tree_leaves((args, kwargs)))
        numbers = [leaf for leaf in given if isinstance(leaf, Tensor) and _is_float(leaf)]
        # Asked before the operation runs: some write over what they are given.
        were_finite = all(map(_is_finite, numbers))
        largest = _largest(numbers) if were_finite else None
        out = func(*args, **kwargs)
        self._operations += 1
        if not were_finite or name in UNWRITTEN:
            return out
        bad = next((leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and not _is_finite(leaf)), None)
        if bad is not None:
            phase, layers = self._where()
            operation = BadOperation(name.strip("_"), layers[-1] if layers else NO_LAYER, phase, _kind(bad), largest)
            was_told = any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in given)
            self.events.append(_Event(operation, layers, self._operations, was_told))
        return out

    def found(self) -> BadOperation | None:
        """The one to blame: in the first module whose output is bad, before it where its input was bad already, and
        where the whole forward pass is finite, the first of the backward pass."""
        forward = [event for event in self.events if event.operation.phase == "forward"]
        backward = [event for event in self.events if event.operation.phase == "backward"]
        if self.first_bad_module is not None:
            earlier = [
                event for event in backward if event.number <= self.entered_at
            ]  # of an earlier part of the batch
            if earlier:
                return _first_of(earlier)
            if self._was_given_bad:
                blamed = [event for event in forward if event.number <= self.entered_at][::-1]
            else:
                blamed = [
                    event
                    for event in forward
                    if self.first_bad_module in event.layers and event.number > self.entered_at
                ]
            return _first_of(blamed)
        outside = [event for event in forward if not event.layers]  # the loss
        return _first_of(outside) or _first_of(backward)

    def _where(self) -> tuple[Literal["forward", "backward"], tuple[str, ...]]:
        node = torch._C._current_autograd_node()
        if node is None or self.open:  # a layer that is computed again in the backward pass is inside itself
            return "forward", tuple(self.open)
        variable = getattr(node, "variable", None)
        if variable is not None:  # gradients that are added up
            owner = self.names.get(variable, "").rpartition(".")[0]
            return "backward", (owner or "the model",)
        place = bisect.bisect_right(self._nodes, node._sequence_nr(), key=lambda entry: entry[0]) - 1
        layer = self._nodes[place][1]
        return "backward", (layer,) if layer else ()

    def _note_node(self) -> None:
        """Nodes made from here on are of the layer that is open now."""
        layer = self.open[-1] if self.open else NO_LAYER
        self._nodes.append((torch.autograd._get_sequence_nr(), layer))  # pyright: ignore[reportPrivateImportUsage]

    def _entering(self, name: str) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, given: Any) -> None:
            self.open.append(name)
            self._entries.append(self._operations)
            self._note_node()

        return enter

    def _leaving(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def leave(module: nn.Module, given: Any, output: Any) -> None:
            entered = self._entries.pop()
            self.open.pop()
            self._note_node()
            if self.first_bad_module is None and self._holds_bad(output):
                self.first_bad_module, self.entered_at = name, entered
                self._was_given_bad = self._holds_bad(given)

        return leave

    def _holds_bad(self, value: Any) -> bool:
        """What the watch itself computes is nobody's operation."""
        self._is_looking = True
        try:
            return not all(map(_is_finite, _tensors(value)))
        finally:
            self._is_looking = False


def _first_of(events: list[_Event]) -> BadOperation | None:
    chosen = next((event for event in events if not event.was_told), events[0] if events else None)
    return None if chosen is None else chosen.operation


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_finite(tensor: Tensor) -> bool:
    return not _is_float(tensor) or bool(tensor.isfinite().all())


def _largest(tensors: list[Tensor]) -> float | None:
    return max((float(tensor.detach().abs().max()) for tensor in tensors if tensor.numel()), default=None)


def _kind(tensor: Tensor) -> Literal["NaN", "infinity"]:
    return "NaN" if bool(tensor.isnan().any()) else "infinity"
