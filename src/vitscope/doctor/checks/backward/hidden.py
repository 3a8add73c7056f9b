"""Does the loss depend on weights that the model does not list? Layers in a plain list or dict run, and their gradients
come, but `model.parameters()` has none of them: nothing moves them, nothing saves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from vitscope.doctor.anatomy import looks_trained
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.backward import HIDDEN_SHARE

PICTURES = 2
DEEPEST = 3
"""Lists in lists: further in nobody holds layers."""


def hidden(patient: Patient) -> Seen:
    images, labels = patient.sample(PICTURES)
    patient.model.eval()
    leaves = _leaves(patient.loss(patient.logits(images), labels))
    unlisted = {key: one for key, one in leaves.items() if key not in _listed(patient)}
    total = sum(one.numel() for one in (*patient.model.parameters(), *unlisted.values()))
    share = sum(one.numel() for one in unlisted.values()) / max(total, 1)
    seen = Seen(measured={"hidden": len(unlisted), "share": share})
    if not unlisted or share < HIDDEN_SHARE:
        return seen
    held = dict(_held_beside(patient.model))
    named = {id(one): f"{name}.{key}" for name, layer in held.items() for key, one in layer.named_parameters()}
    names = [name for key, name in named.items() if key in unlisted]
    names += [str(tuple(one.shape)) for key, one in unlisted.items() if key not in named]
    more = f" (+{len(names) - 3})" if len(names) > 3 else ""
    numbers = {"hidden": len(unlisted), "share": share, "names": ", ".join(names[:3]) + more}
    # A network that knows something already is often hidden on purpose, to stay as it is.
    reached = [layer for layer in held.values() if any(id(one) in unlisted for one in layer.parameters())]
    if any(looks_trained(layer) for layer in reached):
        seen.notes.append(Note("hidden_weights", numbers))
    else:
        seen.findings.append(Finding("not_in_optimizer", 0.93, numbers))
    return seen


def _leaves(loss: Tensor) -> dict[int, nn.Parameter]:
    """Every parameter at the end of the way back from the loss."""
    found: dict[int, nn.Parameter] = {}
    open_now: list[Any] = [loss.grad_fn] if loss.grad_fn is not None else []
    seen: set[Any] = set(open_now)
    while open_now:
        node = open_now.pop()
        variable = getattr(node, "variable", None)
        if isinstance(variable, nn.Parameter):
            found[id(variable)] = variable
        ahead = [one for one, _ in node.next_functions if one is not None and one not in seen]
        seen.update(ahead)
        open_now += ahead
    return found


def _listed(patient: Patient) -> set[int]:
    """Of the model, of a loss that learns, and whatever the optimiser moves."""
    modules = [one for one in (patient.model, patient.evaluated, patient.loss) if isinstance(one, nn.Module)]
    listed = {id(one) for module in modules for one in module.parameters()}
    groups = [] if patient.optimizer is None else patient.optimizer.param_groups
    return listed | {id(one) for group in groups for one in group["params"]}


def _held_beside(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in plain attributes, lists and dicts of the model and its parts."""
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if not key.startswith("_"):
                yield from _modules_in(f"{name}.{key}".strip("."), value, DEEPEST)


def _modules_in(name: str, value: object, depth: int) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(value, nn.Module):
        yield name, value
    elif isinstance(value, list | tuple | dict) and depth:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in pairs:
            yield from _modules_in(f"{name}[{key!r}]", one, depth - 1)
