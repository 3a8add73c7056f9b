"""Does it matter where a patch lies? Patches change places: a model that cannot tell gives the same answer.

A position table that begins at zero is healthy, since it learns. So every weight that training moves is nudged first:
whatever could tell positions apart then does; without any, the answer stays the same for all weights whatsoever.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitscope.doctor.attention_parts import MOST_PREFIX, has_attention, is_attention
from vitscope.doctor.batch import with_channels
from vitscope.doctor.calls import calls_of
from vitscope.doctor.checks.forward.dependence import features_of
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import FAR_MEAN, WIDE_STD
from vitscope.doctor.thresholds.forward import FORWARD_PICTURES, POSITION_ROUNDINGS, POSITION_SHARE


@torch.no_grad()
def position(patient: Patient) -> Seen:
    if not has_attention(patient.model):
        return Seen(left_out="no_patches")
    images, _ = patient.sample(FORWARD_PICTURES)
    patient.model.eval()
    patch = patient.facts.patch_size or patch_by_tokens(patient.model, images[:2])
    if patch is None:
        return Seen(left_out="patches_not_known")
    rows, columns = images.shape[-2] // patch[0], images.shape[-1] // patch[1]
    if rows * columns < 4 or (rows * patch[0], columns * patch[1]) != tuple(images.shape[-2:]):
        return Seen(left_out="patches_too_few")
    images = in_usual_range(images)
    shuffled = shuffled_patches(
        images, patch, torch.randperm(rows * columns, generator=torch.Generator().manual_seed(1))
    )
    share, rounding = _moved(patient, images, shuffled)
    if share < POSITION_SHARE + rounding:
        nudge(patient)
        share, rounding = _moved(patient, images, shuffled)
    seen = Seen(measured={"moved": share})
    if share < POSITION_SHARE + rounding:
        numbers = {"moved": share, "patches": rows * columns}
        seen.findings.append(Finding("no_position_information", 0.96, numbers))
    return seen


def patch_by_tokens(model: nn.Module, images: Tensor) -> tuple[int, int] | None:
    """The square patch that cuts the pictures into as many as the first attention has tokens, but for a few that
    stand before them. A wrong one condemns nobody: whoever knows where patches lie, or mixes them, sees a change."""
    calls = calls_of(model, images, is_attention)
    if not calls:
        return None
    tokens = calls[0].tokens(len(images))
    height, width = images.shape[-2:]
    for prefix in range(MOST_PREFIX + 1):
        for side in range(1, min(height, width) // 2 + 1):
            is_cut = height % side == 0 and width % side == 0
            if is_cut and (height // side) * (width // side) == tokens - prefix:
                return side, side
    return None


def in_usual_range(images: Tensor) -> Tensor:
    """Pixels that were never normalised, normalised: bytes are so large that a position table of the usual size is lost
    beside them, which is their fault and not the table's."""
    pixels = with_channels(images)
    mean, std = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), keepdim=True)
    if bool(((mean.abs() <= FAR_MEAN) & (std <= WIDE_STD)).all()):
        return images
    return ((pixels - mean) / std.clamp(min=1e-6)).view_as(images)


def nudge(patient: Patient, *, forgotten: bool = False) -> None:
    """A little noise on every weight that training moves, of its own size or of the size weights begin with. With
    `forgotten` those too that may move, but that the optimiser was not given."""
    moved = patient.make_trainer().moved if patient.make_trainer is not None and not forgotten else None
    generator = torch.Generator().manual_seed(2)
    for name, parameter in patient.model.named_parameters():
        if parameter.requires_grad and (moved is None or name in moved):
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter += noise * (0.1 * float(parameter.float().pow(2).mean().sqrt()) + 0.02)


def shuffled_patches(images: Tensor, patch: tuple[int, int], order: Tensor) -> Tensor:
    """The same pictures, all cut in the same way and put together in another order."""
    b, c, h, w = with_channels(images).shape
    rows, columns = h // patch[0], w // patch[1]
    cut = images.reshape(b, c, rows, patch[0], columns, patch[1]).permute(2, 4, 0, 1, 3, 5)
    moved = cut.reshape(rows * columns, b, c, *patch)[order.to(images.device)]
    return moved.reshape(rows, columns, b, c, *patch).permute(2, 3, 0, 4, 1, 5).reshape(images.shape)


def _moved(patient: Patient, images: Tensor, shuffled: Tensor) -> tuple[float, float]:
    """How far the features go, and how far rounding alone may take them, in terms of how far pictures lie apart."""
    plain, other = features_of(patient, images), features_of(patient, shuffled)
    rounding = POSITION_ROUNDINGS * torch.finfo(plain.dtype).eps * float(plain.float().pow(2).mean().sqrt())
    plain, other = plain.float(), other.float()
    spread = max(float((plain - plain.mean(0)).pow(2).mean().sqrt()), 1e-30)
    return float((plain - other).pow(2).mean().sqrt()) / spread, rounding / spread
