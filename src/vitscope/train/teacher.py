"""A trained model that a student learns from: it sees the student's pictures as its own preprocessing makes them.

B batch, C channels, H W image, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import ConfigError, expected
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.models.config import pair
from vitscope.models.model import VisionModel
from vitscope.train.classes import are_numbers, said_of_numbers
from vitscope.weights.load import load_model

LUMINANCE = (0.299, 0.587, 0.114)
"""Share of red, green and blue in grey, as Pillow converts (ITU-R 601)."""


class Teacher:
    """The student's images (B, C, H, W) -> the teacher's logits (B, K), float32, without gradient.

    The teacher is frozen and in evaluation mode. It sees the very cut-out the student sees, varied and mixed alike:
    only normalisation, channels and size are made its own, on the device.
    """

    remark: str | None = None
    """What is to be said before anything is learnt from it."""

    def __init__(
        self, model: VisionModel, *, student_preprocess: PreprocessConfig, order: Sequence[int] | None = None
    ) -> None:
        """`order`: for each class of the student, its number at the teacher; none where they are the same."""
        self.model = model.eval().requires_grad_(False)
        config = model.config
        seen = model.preprocessing or half_normalised(pair(config.img_size), config.in_chans)
        self._same_pixels = (seen.mean, seen.std) == (student_preprocess.mean, student_preprocess.std)
        self._same_size = seen.img_size == student_preprocess.img_size
        self._size, self._interpolation, self._in_chans = seen.img_size, seen.interpolation, seen.in_chans
        device = next(model.parameters()).device
        self._mean, self._std = _per_channel(seen, device)
        self._student_mean, self._student_std = _per_channel(student_preprocess, device)
        self._grey = torch.tensor(LUMINANCE, device=device).view(1, 3, 1, 1)
        self._order = None if order is None else torch.tensor(order, device=device)

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        student_preprocess: PreprocessConfig,
        num_classes: int,
        device: torch.device | str = "cpu",
        labels: Sequence[str] | None = None,
    ) -> Teacher:
        """The model of a run or model folder. It must know the student's classes: as many, and where both sides have
        names for them the same, in whatever order."""
        model = load_model(source)
        if model.num_classes != num_classes:
            raise ConfigError(
                expected("loss.teacher", f"a model of the {num_classes} classes of the data", model.num_classes),
                where=str(source),
                fix="take a teacher trained on the same classes",
            )
        order = _order(model.labels, labels, where=str(source))
        remark = None if labels is None else said_of_numbers(model.labels, labels, whose="the teacher")
        own, given = model.config.in_chans, student_preprocess.in_chans
        if own != given and {own, given} != {1, 3}:
            raise ConfigError(
                expected("loss.teacher", f"a model that reads {given} channels", own),
                where=str(source),
                fix=f"take a teacher that reads {given}, or 1 where the student reads 3, and the other way round",
            )
        teacher = cls(model.to(device), student_preprocess=student_preprocess, order=order)
        teacher.remark = remark
        return teacher

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        logits = self.model(self.seen(images)).float()
        return logits if self._order is None else logits.index_select(1, self._order)

    def seen(self, images: Tensor) -> Tensor:
        """The student's images as the teacher's own preprocessing would have made them; untouched where it is alike."""
        if not self._same_pixels:
            pixels = images * self._student_std + self._student_mean
            images = (self._in_channels(pixels) - self._mean) / self._std
        if not self._same_size:
            smooth = self._interpolation != "nearest"
            images = F.interpolate(images, size=self._size, mode=self._interpolation, antialias=smooth)
        return images

    def _in_channels(self, pixels: Tensor) -> Tensor:
        if pixels.shape[1] == self._in_chans:
            return pixels
        if self._in_chans == 1:
            return (pixels * self._grey).sum(1, keepdim=True)
        return pixels.expand(-1, self._in_chans, -1, -1)


def _per_channel(config: PreprocessConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (config.mean, config.std))
    return mean, std


def _order(known: Sequence[str] | None, wanted: Sequence[str] | None, *, where: str) -> list[int] | None:
    """For each wanted class its number among the known ones; none where nothing has to move, or no names are known."""
    if known is None or wanted is None or list(known) == list(wanted) or are_numbers(known) or are_numbers(wanted):
        return None
    missing = [label for label in wanted if label not in known]
    if missing or len(set(wanted)) != len(wanted):
        raise ConfigError(
            f"the teacher does not know the class '{missing[0] if missing else wanted[0]}' of the data",
            where=where,
            fix="take a teacher trained on the same classes",
        )
    return [list(known).index(label) for label in wanted]
