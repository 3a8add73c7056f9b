"""Everything a step reads and changes on the device, and so everything a checkpoint must hold of it.

All tensors stay where they are for the whole run: a captured CUDA graph reads and writes them, and a checkpoint is
loaded into them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitscope.models.model import VisionModel
from vitscope.train.ledger import Ledger
from vitscope.train.optim.optimizer import Optimizer
from vitscope.train.precision import LossScale
from vitscope.train.processes import ALONE_PROCESSES, Processes


class TrainState:
    """The model and what moves it."""

    def __init__(
        self,
        model: VisionModel,
        optimizer: Optimizer,
        *,
        lr_table: Tensor,
        device: torch.device,
        dtype: torch.dtype | None = None,
        micro_batch: int | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        ledger_rows: int = 1,
        processes: Processes = ALONE_PROCESSES,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.device, self.dtype = device, dtype
        self.processes = processes
        self.micro_batch, self.clip_norm, self.clip_value = micro_batch, clip_norm, clip_value
        self.scale = LossScale(device, dtype)
        self.lr_table = lr_table.to(device)
        self.updates = torch.zeros((), dtype=torch.int64, device=device)
        """Steps that were not skipped: what the schedule goes by."""
        self.lr_factor = torch.ones((), device=device)
        """What plateaus and going back have made of the schedule."""
        self.skipped = torch.zeros((), device=device)
        """1 where the last step changed nothing, because something in it was not finite."""
        self.hold = torch.zeros((), device=device)
        """1 to run a step that computes everything and changes nothing: how compilation and capture warm up."""
        self.is_updating = False
        """Whether a step is past the point from which it can be tried again."""
        self.scalars: dict[str, Tensor] = {}
        """What the last step leaves for the log; hooks may add to it."""
        self.ledger = Ledger(device, ledger_rows)
        self.grad_norms: Tensor | None = None
        """Of each of the optimiser's parameters in the last step, before clipping, where someone has asked (0 for one
        without a gradient)."""
        # BatchNorm's running means see a batch before anyone knows whether it is finite.
        self._buffers = _running_buffers(model)
        self._kept = [buffer.clone() for buffer in self._buffers]

    def lr(self) -> Tensor:
        """The learning rate of this step, on the device."""
        # `take`, since an index in brackets that is a 0-d tensor is read by the host.
        return self.lr_table.take(self.updates.clamp(max=len(self.lr_table) - 1)) * self.lr_factor

    def watch_gradients(self) -> None:
        """From now on every step leaves `grad_norms`. Before the first one: a captured step would not know of it."""
        self.grad_norms = torch.zeros(len(self.optimizer.params), device=self.device)

    def keep_buffers(self) -> None:
        """Remember the running means as they are before a step."""
        if self._buffers:
            torch._foreach_copy_(self._kept, self._buffers)  # pyright: ignore[reportPrivateImportUsage]

    def agree_on_buffers(self) -> None:
        """Each process has seen its own part of the batch: running means become the mean of them all."""
        self.processes.mean_(*(buffer for buffer in self._buffers if buffer.is_floating_point()))

    def restore_buffers(self, skipped: Tensor | None = None) -> None:
        """Put them back, where `skipped` is 1 (always, where it is not given)."""
        for buffer, kept in zip(self._buffers, self._kept, strict=True):
            buffer.copy_(kept if skipped is None else torch.where(skipped > 0, kept, buffer))

    def state_dict(self) -> dict[str, Any]:
        """Beside the model's weights: tensors and plain numbers."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scale": self.scale.state_dict(),
            "updates": self.updates,
            "lr_factor": self.lr_factor,
            "micro_batch": self.micro_batch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.scale.load_state_dict(state["scale"])
        self.updates.copy_(state["updates"])
        self.lr_factor.copy_(state["lr_factor"])
        self.micro_batch = state["micro_batch"]


def _running_buffers(model: VisionModel) -> list[Tensor]:
    """Buffers that a forward pass in training changes: those that are saved. Tables made from the config are not."""
    saved = model.state_dict(keep_vars=True)
    return [buffer for name, buffer in model.named_buffers() if name in saved]
