"""Moving weights to another grid, patch or number of channels, so that those made for some pictures serve others.

D width, C channels, N M patches before and after, p q patch, P prefix tokens.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from vitscope.core.errors import ConfigError, expected

PatchMethod: TypeAlias = Literal["pseudo_inverse", "area"]
ChannelMethod: TypeAlias = Literal["sum", "mean", "repeat"]


def resample_positions(
    table: Tensor,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    *,
    num_prefix: int = 0,
    antialias: bool = True,
) -> Tensor:
    """(1, P + N, D) -> (1, P + M, D): bicubic over the grid; rows of prefix tokens stay as they are.

    Two conventions are in use. `antialias` widens the filter where the grid shrinks: timm's, and that of DINOv2 with
    registers in transformers. Without it, plain bicubic: that of DeiT, MAE, DINO and the others of transformers. They
    differ even where the grid grows, because their cubics do (a of -0.5 and of -0.75).
    """
    if old_grid == new_grid:
        return table
    prefix, patches = table[:, :num_prefix], table[:, num_prefix:]
    image = patches.float().reshape(1, *old_grid, -1).permute(0, 3, 1, 2)
    image = _bicubic(image, new_grid, antialias=antialias)
    patches = image.permute(0, 2, 3, 1).flatten(1, 2).to(table.dtype)
    return torch.cat([prefix, patches], dim=1)


def resample_relative_table(table: Tensor, old_grid: tuple[int, int], new_grid: tuple[int, int]) -> Tensor:
    """(offsets + extra, heads): bicubic over the offsets of two patches; extra rows stay as they are."""
    if old_grid == new_grid:
        return table
    old, new = (2 * old_grid[0] - 1, 2 * old_grid[1] - 1), (2 * new_grid[0] - 1, 2 * new_grid[1] - 1)
    offsets, extra = table[: old[0] * old[1]], table[old[0] * old[1] :]
    image = offsets.float().reshape(1, *old, -1).permute(0, 3, 1, 2)
    image = _bicubic(image, new, antialias=False)
    return torch.cat([image.permute(0, 2, 3, 1).reshape(new[0] * new[1], -1).to(table.dtype), extra])


def resample_patch_filter(weight: Tensor, new_size: tuple[int, int], method: PatchMethod = "pseudo_inverse") -> Tensor:
    """(D, C, p, q) -> (D, C, *new_size): the filter for patches of another size.

    A filter is no picture: blurred to a quarter of its pixels it would answer with a quarter of its strength.
    "pseudo_inverse" (FlexiViT, arXiv 2212.08013) is the filter whose answers to resized patches come closest to the
    old answers; to patches that were enlarged they are the very same. "area" gives each new pixel the sum of the
    old weights it covers, so that a patch of one colour is answered as before.
    """
    old_size = (weight.shape[2], weight.shape[3])
    if old_size == new_size:
        return weight
    if method == "area":
        down, across = (_overlaps(old, new).to(weight.device) for old, new in zip(old_size, new_size, strict=True))
        return (down @ weight.float() @ across.T).to(weight.dtype)
    if method != "pseudo_inverse":
        raise ConfigError(expected("patch_filter", "'pseudo_inverse' or 'area'", repr(method)))
    # The resizing of a picture is separable, and so is its pseudo-inverse: one small matrix a side.
    down, across = (
        torch.linalg.pinv(_resizing(old, new)).float().to(weight.device)
        for old, new in zip(old_size, new_size, strict=True)
    )
    return (down.T @ weight.float() @ across).to(weight.dtype)


def resample_channels(weight: Tensor, in_chans: int, method: ChannelMethod = "sum") -> Tensor:
    """(D, C, p, q) -> (D, in_chans, p, q): the filter for pictures of other channels.

    "sum": the sum over channels stays, so that a grey picture is answered as its copy in the old channels was. To
    fewer, old ones are summed in turn; to more, each old one is shared by those that repeat it. (timm's
    `adapt_input_conv` scales all by C / in_chans instead: the same for one channel and for multiples of C only.)
    "mean": every channel gets the mean of the old ones. "repeat": in turn, as they are; to one channel, the first.
    """
    old = weight.shape[1]
    if old == in_chans:
        return weight
    numbers = weight.float()
    if method == "mean":
        moved = numbers.mean(dim=1, keepdim=True).expand(-1, in_chans, -1, -1)
    elif method == "sum" and in_chans < old:
        moved = torch.stack([numbers[:, first::in_chans].sum(dim=1) for first in range(in_chans)], dim=1)
    elif method in ("sum", "repeat"):
        in_turn = [channel % old for channel in range(in_chans)]
        moved = numbers[:, in_turn]
        if method == "sum":
            shares = [1 / in_turn.count(channel) for channel in in_turn]
            moved = moved * moved.new_tensor(shares)[:, None, None]
    else:
        raise ConfigError(expected("channels", "'sum', 'mean' or 'repeat'", repr(method)))
    return moved.to(weight.dtype).contiguous()


def resample_painted(pixels: Tensor, new_size: tuple[int, int], in_chans: int) -> Tensor:
    """(D, C, p, q) -> (D, in_chans, *new_size), for a layer that paints a patch: its outputs are a picture, and are
    resized as one. One channel is the mean of the old ones; several take theirs in turn."""
    old, image = pixels.shape[1], pixels.float()
    if tuple(pixels.shape[2:]) != new_size:
        image = _bicubic(image, new_size, antialias=True)
    if in_chans != old:
        in_turn = [channel % old for channel in range(in_chans)]
        image = image.mean(dim=1, keepdim=True) if in_chans == 1 else image[:, in_turn]
    return image.to(pixels.dtype).contiguous()


def _bicubic(image: Tensor, size: tuple[int, int], *, antialias: bool) -> Tensor:
    """(B, C, h, w) -> (B, C, *size)."""
    if image.shape[3] > 1:
        return F.interpolate(image, size=size, mode="bicubic", antialias=antialias)
    # With antialias, PyTorch 2.15 gives every row of a single column the value of its first: so it is laid on its side.
    lying = image.transpose(2, 3).contiguous()
    return F.interpolate(lying, size=size[::-1], mode="bicubic", antialias=antialias).transpose(2, 3)


def _resizing(old: int, new: int) -> Tensor:
    """(new, old), float64: what bicubic resizing with antialias does to a line of pixels."""
    lines = torch.eye(old, dtype=torch.float64, device="cpu")[None, None]
    return _bicubic(lines, (new, old), antialias=True)[0, 0]


def _overlaps(old: int, new: int) -> Tensor:
    """(new, old): the share of each old pixel of a line that each new one covers."""
    edges = torch.arange(new + 1, dtype=torch.float64, device="cpu") * old / new
    pixels = torch.arange(old, dtype=torch.float64, device="cpu")
    end = torch.minimum(edges[1:, None], pixels + 1)
    return (end - torch.maximum(edges[:-1, None], pixels)).clamp(min=0).float()
