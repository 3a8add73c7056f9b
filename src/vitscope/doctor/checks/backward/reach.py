"""Does the loss reach every parameter? Weights are nudged first, so that what begins at zero passes gradients on."""

from __future__ import annotations

import torch
from torch import nn

from vitscope.doctor.checks.backward.beside import reached_beside
from vitscope.doctor.checks.forward.position import nudge
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.one_step import mean_gradient
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.backward import UNREACHED_SHARE, UNUSED_SHARE
from vitscope.doctor.thresholds.forward import FORWARD_PICTURES


def reach(patient: Patient) -> Seen:
    model = patient.model
    learning = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if not learning:
        return Seen(
            findings=[Finding("no_gradient_for", 0.97, names_and_share(patient, list(dict(model.named_parameters()))))]
        )
    images, labels = patient.sample(FORWARD_PICTURES)
    train_without_chance(model)
    with torch.no_grad():
        nudge(patient, forgotten=True)  # of these the next check tells
    used = Used(model)
    with used:
        try:
            grads = mean_gradient(patient, images, labels)
        except RuntimeError as error:
            if "does not require grad" not in str(error):
                raise
            grads = {}
    unreached = [name for name in learning if name not in grads or not grads[name].any()]
    beside = reached_beside(patient, images) if unreached else set[str]()
    spared = [name for name in unreached if name in beside]
    unreached = [name for name in unreached if name not in beside]
    cut = [name for name in unreached if name.rpartition(".")[0] in used.names]
    unused = [name for name in unreached if name not in set(cut)]
    total = sum(one.numel() for one in model.parameters())
    share = sum(learning[name].numel() for name in cut) / total
    seen = Seen(measured={"unreached": len(unreached), "cut_share": share, "reached_beside": len(spared)})
    if spared:
        seen.notes.append(Note("reached_beside", names_and_share(patient, spared)))
    if cut and (share >= UNREACHED_SHARE or len(cut) == len(learning)):
        seen.findings.append(Finding("no_gradient_for", 0.96, names_and_share(patient, cut)))
    unused_share = sum(learning[name].numel() for name in unused) / total
    if unused_share >= UNUSED_SHARE:
        seen.findings.append(Finding("no_gradient_for", 0.6, names_and_share(patient, unused)))
    if cut and seen.findings:  # what stands beside the layers, a token or a table, is cut off with what comes before
        unused = [name for name in unused if "." in name]
    if unused and unused_share < UNUSED_SHARE:
        seen.notes.append(Note("unused_parameters", names_and_share(patient, unused)))
    return seen


class Used:
    """Names of the modules that ran inside."""

    def __init__(self, model: nn.Module) -> None:
        self.names: set[str] = set()
        self.model = model

    def __enter__(self) -> None:
        self.hooks = [
            module.register_forward_pre_hook(lambda *_, name=name: self.names.add(name))
            for name, module in self.model.named_modules()
            if name
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()


def names_and_share(patient: Patient, names: list[str]) -> dict[str, object]:
    parameters = dict(patient.model.named_parameters())
    total = sum(one.numel() for one in parameters.values())
    share = sum(parameters[name].numel() for name in names) / max(total, 1)
    more = f" (+{len(names) - 3})" if len(names) > 3 else ""
    return {"count": len(names), "names": ", ".join(names[:3]) + more, "share": share}
