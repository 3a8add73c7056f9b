"""What one micro batch costs: the labels' loss, the teacher's share, the L1 penalty.

Soft distillation is Hinton et al. 2015 (arXiv 1503.02531), hard distillation and the distillation token are DeiT's
(Touvron et al. 2021, arXiv 2012.12877). B micro batch, K classes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitscope.train.config import LossConfig
from vitscope.train.losses import binary_cross_entropy, cross_entropy
from vitscope.train.teacher import Teacher
from vitscope.weights.folder import unwrapped


class Objective:
    """(images, labels) -> (loss, logits). Nothing in it waits for the device.

    The loss is a mean over the pictures given, so that the losses of a batch's parts, each weighed by its number of
    pictures, add up to the whole batch's. Class weights keep to that: a picture's loss is multiplied by its weight
    and divided by the number of pictures, not by the sum of the weights (which would differ from part to part). The
    weights of `class_weights` are 1 for the average picture, so over an epoch the two are the same.
    """

    def __init__(
        self,
        model: nn.Module,
        config: LossConfig,
        *,
        class_weights: Tensor | None = None,
        teacher: Teacher | None = None,
        l1: float = 0.0,
        decayed: list[nn.Parameter] | None = None,
    ) -> None:
        """`class_weights` lie on the model's device; `decayed` are the weights that `l1` draws towards 0. A model with
        a distillation token is told to give both logits in training exactly when there is a teacher."""
        self.model, self.config = model, config
        self.class_weights, self.teacher = class_weights, teacher
        self.l1, self.decayed = l1, list(decayed or ())
        inner: Any = unwrapped(model)
        if getattr(inner.config, "distilled", False):
            inner.distilled_training = teacher is not None

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, 0-d float32, and the logits (B, K), detached; of a model with two heads the heads' mean."""
        output = self.model(images)
        # With a distillation token labels teach one head, the teacher the other.
        logits, taught = output if isinstance(output, tuple) else (output, output)
        loss = self._of_labels(logits, labels)
        if self.teacher is not None:
            share = self.config.distill_share
            loss = (1 - share) * loss + share * self._of_teacher(taught, self.teacher(images))
        if self.l1:
            loss = loss + self._penalty()
        seen = logits.detach()
        return loss, (seen + taught.detach()) / 2 if taught is not logits else seen

    def at_chance(self, num_classes: int) -> float:
        """The loss of a model that knows nothing, with the weights as they are: ln K for one question with K answers,
        K ln 2 for K questions with yes and no. Under soft distillation it is the most it can be, at a teacher that is
        sure of every answer."""
        chance = math.log(num_classes)
        loss = num_classes * math.log(2) if self.config.name == "binary_cross_entropy" else chance
        if self.teacher is not None:
            share, heat = self.config.distill_share, self.config.distill_temperature
            loss = (1 - share) * loss + share * chance * (heat**2 if self.config.distill == "soft" else 1)
        if self.l1:
            with torch.no_grad():
                loss += float(self._penalty())
        return loss

    def _of_labels(self, logits: Tensor, labels: Tensor) -> Tensor:
        smoothing, weights = self.config.smoothing, self.class_weights
        if self.config.name == "binary_cross_entropy":
            return binary_cross_entropy(logits, labels, smoothing=smoothing, class_weights=weights)
        loss = cross_entropy(logits, labels, smoothing=smoothing, class_weights=weights)
        if weights is None:
            return loss
        # From a mean by weight to a mean by number.
        of_pictures = weights[labels] if labels.ndim == 1 else (labels * weights).sum(-1)
        return loss * of_pictures.mean()

    def _of_teacher(self, logits: Tensor, wisdom: Tensor) -> Tensor:
        """Soft: the divergence of the softened probabilities, mean over pictures, times T^2, which keeps the size of
        its gradients whatever T. Hard: cross-entropy with the teacher's choice, never smoothed."""
        if self.config.distill == "hard":
            return cross_entropy(logits, wisdom.argmax(-1))
        heat = self.config.distill_temperature
        found = F.log_softmax(logits.float() / heat, dim=-1)
        wanted = F.log_softmax(wisdom.float() / heat, dim=-1)
        return F.kl_div(found, wanted, reduction="batchmean", log_target=True) * heat**2

    def _penalty(self) -> Tensor:
        if not self.decayed:
            return torch.zeros((), device=next(self.model.parameters()).device)
        return self.l1 * torch.stack([weights.abs().sum(dtype=torch.float32) for weights in self.decayed]).sum()
