"""How weights move."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from vitscope.core.config import config, require


@config
class OptimConfig:
    """How weights move."""

    synonyms: ClassVar[dict[str, str]] = {
        "optimizer": "name",
        "opt": "name",
        "wd": "weight_decay",
        "clip_grad": "clip_norm",
    }
    value_synonyms: ClassVar[dict[str, str]] = {"sgd_nesterov": "sgd", "nesterov": "sgd", "adam_w": "adamw"}

    name: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """`adam` decays by the gradient (L2), `adamw` apart from it. `sgd` has Nesterov momentum. `muon` updates matrices
    by their orthogonalised momentum and leaves the rest (head, tokens, biases, norms, filters) to AdamW."""
    lr: float = 1e-3
    """Learning rate at the top of the schedule."""
    weight_decay: float | None = None
    """How fast weights decay; biases, norms, tokens and position tables do not. By default 0.05 for `adamw` and `muon`,
    and 1e-4 for `adam` and `sgd`, where it is added to the gradient."""
    betas: tuple[float, float] = (0.9, 0.999)
    """How long Adam and AdamW remember gradients, and their squares."""
    eps: float = 1e-8
    """Epsilon of Adam and AdamW."""
    momentum: float = 0.9
    """Momentum of `sgd`."""
    nesterov: bool = True
    """With `sgd`: look ahead along the momentum."""
    muon_momentum: float = 0.95
    """Momentum of `muon`."""
    muon_lr: float | None = None
    """Learning rate of the matrices under `muon` at the top of the schedule, whatever the batch; by default that of the
    rest. Steps are scaled to the size AdamW's have."""
    layer_decay: float | None = None
    """Each block learns by this factor slower than the one above it; the head fastest."""
    l1: float = 0.0
    """Penalty on the sum of absolute weights (those that decay), added to the loss."""
    clip_norm: float | None = 1.0
    """Clip the gradient of all parameters together to this length."""
    clip_value: float | None = None
    """Clip each entry of the gradient to this size, before the norm."""
    scale_lr: Literal["none", "linear", "sqrt"] = "none"
    """Multiply `lr` by batch_size / base_batch, or by its square root (better for Adam)."""
    base_batch: int = 64
    """The batch `lr` is meant for, where it is scaled."""
    freeze: tuple[str, ...] = ()
    """Parameters that stay as they are: beginnings of names such as `blocks.0.`, or `backbone` for all but the head."""

    def __post_init__(self) -> None:
        for name in ("lr", "eps"):
            require(0 < getattr(self, name) < math.inf, name, "a positive number", getattr(self, name))
        for name, value in (("weight_decay", self.decay), ("l1", self.l1)):
            require(0 <= value < math.inf, name, "0 or more", value)
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "two numbers from 0, below 1", self.betas)
        for name in ("momentum", "muon_momentum"):
            require(0 <= getattr(self, name) < 1, name, "from 0, below 1", getattr(self, name))
        require(not (self.nesterov and self.momentum == 0 and self.name == "sgd"), "nesterov", "some momentum", 0.0)
        for name in ("muon_lr", "clip_norm", "clip_value"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, name, "a positive number, or nothing", value)
        decay = self.layer_decay
        require(decay is None or 0 < decay <= 1, "layer_decay", "a factor above 0, up to 1", decay)
        require(self.base_batch > 0, "base_batch", "a positive number of pictures", self.base_batch)
        require(all(part.strip() for part in self.freeze), "freeze", "beginnings of names", self.freeze)

    @property
    def decay(self) -> float:
        """The weight decay used."""
        if self.weight_decay is not None:
            return self.weight_decay
        return 0.05 if self.name in ("adamw", "muon") else 1e-4
