"""Does each step begin without the gradients of the one before?

What a step leaves behind may be zeroed by the next one. So where it leaves something, eight times the gradient with its
sign turned round is put in its place: a step that begins anew goes along the gradient, one that does not against it.
Where gradients are collected over several calls they are kept on purpose, and `collected` asks whether they are.
"""

from __future__ import annotations

from vitscope.doctor.checks.backward.collected import collected
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.one_step import cosine_of, mean_gradient, step_batch, watch_step
from vitscope.doctor.patient import Patient, has_own_step
from vitscope.doctor.still import still
from vitscope.doctor.thresholds.backward import CARRIED_OVER, PLANTED_TIMES


def zeroed(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    if not has_own_step(trainer):
        return Seen()  # the doctor's own steps, and the engine's, begin anew
    trainer.hold_lr(0.0)
    images, labels = step_batch(patient, trainer)
    train_without_chance(patient.model)
    with still(patient.model, images):
        mean = mean_gradient(patient, images, labels)
        first = watch_step(patient, trainer, images, labels)
        if first is None:
            return Seen(left_out="no_update_came")
        # The first may have been the end of a cycle; `step_gradient` has seen a whole one.
        if (calls := max(first.calls, patient.tried.get("calls", 1))) > 1:
            return collected(patient, trainer, images, labels, mean, calls)
        parameters = dict(patient.model.named_parameters())
        left = {name: one for name in mean if (one := parameters[name].grad) is not None and bool(one.any())}
        if not left:
            return Seen(measured={"left": 0})
        for name, grad in left.items():
            grad.copy_(-PLANTED_TIMES * mean[name])
        second = watch_step(patient, trainer, images, labels)
    if second is None or second.calls > 1:
        return Seen(measured={"left": len(left)})
    cosine = cosine_of(second.grads, mean, [name for name in left if name in second.grads])
    seen = Seen(measured={"left": len(left), "cosine": cosine})
    if cosine < CARRIED_OVER:
        seen.findings.append(
            Finding("gradients_not_zeroed", 0.95, {"left": len(left), "of": len(mean), "cosine": cosine})
        )
    return seen
