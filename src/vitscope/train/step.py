"""One optimiser update. No I/O, no host sync: the scalars it leaves stay on the device, so all of it can be captured.

B pictures in the batch, b in a micro batch, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitscope.train.precision import autocast
from vitscope.train.state import TrainState

LossAndLogits = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(images, labels) of a micro batch -> mean loss, logits (b, K)."""
AfterStep = Callable[[TrainState], None]
"""A hook: runs after every update, on the device (EMA, masks, probes). What it puts into `state.scalars` is logged."""


def train_step(
    state: TrainState, images: Tensor, labels: Tensor, *, objective: LossAndLogits, after: Sequence[AfterStep] = ()
) -> None:
    """Forward, backward, clip, step: the gradients of a batch's parts add up to the whole batch's."""
    loss, accuracy = images.new_zeros(()), images.new_zeros(())
    # Where pictures were left out, processes have unlike parts; a picture weighs the same in each.
    pictures = state.processes.total(len(images)) / state.processes.world
    state.keep_buffers()
    parts = _parts(state, images, labels)
    for number, (x, y, count) in enumerate(parts, start=1):
        share = count / pictures  # the uneven last part weighs less
        with state.processes.adding_up(is_last=number == len(parts)):
            with autocast(state.device, state.dtype):
                part, logits = objective(x, y)
            (part * (share * state.scale.scale)).backward()
        loss += part.detach() * share
        accuracy += hits(logits, y) * share
    state.processes.mean_(loss, accuracy)  # so that all skip, or none
    state.agree_on_buffers()

    state.is_updating = True
    scale = state.scale.scale.clone() if state.scale.is_active else None  # the one used: the next may be another
    lr = state.lr()
    grad_norm = clip_and_step(state, lr, loss)
    state.restore_buffers(state.skipped)
    state.updates += (state.skipped == 0).to(torch.int64)
    state.scalars = {
        "train/loss": loss,
        "train/accuracy": accuracy,
        "train/lr": lr,
        "train/grad_norm": grad_norm,
        "train/skipped": state.skipped,
    }
    if scale is not None:
        state.scalars["train/loss_scale"] = scale
    with torch.no_grad(), state.processes.together():
        for hook in after:
            hook(state)
        state.ledger.enter(state.scalars, state.hold)
    state.is_updating = False


def _parts(state: TrainState, images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor, int]]:
    """The micro batches, and how many pictures each counts for. Processes that hold a model together must run it
    equally often: one with fewer parts, because pictures were left out, takes its first again, for nothing."""
    size = state.micro_batch or len(images)
    parts = [(x, y, len(x)) for x, y in zip(images.split(size), labels.split(size), strict=True)]
    if state.processes.is_sharded and state.micro_batch is not None:
        x, y, _ = parts[0]
        parts += [(x, y, 0)] * (state.processes.most(len(parts)) - len(parts))
    return parts


@torch.no_grad()
def clip_and_step(state: TrainState, lr: Tensor, loss: Tensor) -> Tensor:
    """Clip the gradients and let the optimiser take its step, or let nothing change where anything is not finite. The
    norm of all gradients before clipping."""
    grads = state.optimizer.gradients()
    if state.scale.is_active:
        torch._foreach_mul_(grads, 1 / state.scale.scale)  # pyright: ignore[reportPrivateImportUsage]
    grad_norm = state.processes.norm(grads)
    if state.grad_norms is not None:
        _note_norms(state.grad_norms, grads, [p.grad is not None for p in state.optimizer.params])
    overflowed = (~(torch.isfinite(grad_norm) & torch.isfinite(loss))).to(torch.float32)
    state.skipped.copy_(torch.maximum(overflowed, state.hold))
    if state.clip_value is not None:
        torch._foreach_clamp_min_(grads, -state.clip_value)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_clamp_max_(grads, state.clip_value)  # pyright: ignore[reportPrivateImportUsage]
    if state.clip_norm is not None:
        length = grad_norm if state.clip_value is None else state.processes.norm(grads)
        torch._foreach_mul_(grads, (state.clip_norm / (length + 1e-6)).clamp(max=1.0))  # pyright: ignore[reportPrivateImportUsage]
    with state.processes.together():
        state.optimizer.step(lr, state.skipped)
    state.optimizer.zero_grad()
    state.scale.update(overflowed, state.hold)
    return grad_norm


def _note_norms(norms: Tensor, grads: Sequence[Tensor], has_gradient: Sequence[bool]) -> None:
    each = iter(torch._foreach_norm(list(grads)))  # pyright: ignore[reportPrivateImportUsage]
    torch.stack([next(each).to(norms) if has else norms.new_zeros(()) for has in has_gradient], out=norms)


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of pictures whose largest logit is their class; of mixed pictures, the class with the largest share."""
    classes = labels if labels.ndim == 1 else labels.argmax(-1)
    return (logits.argmax(-1) == classes).to(torch.float32).mean()
