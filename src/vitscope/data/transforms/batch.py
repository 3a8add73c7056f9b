"""All that training does to a batch of pictures, on the device that holds them; each picture by its own key.

No generator, no host sync, no shape that depends on values: both methods can be compiled and captured in a CUDA graph.
Each picture comes out the same in whatever batch it is. B pictures, C channels, h w stored height and width, H W the
model's.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from vitscope.core.errors import InputError, expected
from vitscope.data.config.augment import AugmentConfig
from vitscope.data.config.preprocess import PreprocessConfig
from vitscope.data.transforms.colour import jitter, jitter_draws
from vitscope.data.transforms.crop import crop_places, cut, padded_crop
from vitscope.data.transforms.erase import cutout_places, erase_places, paint
from vitscope.data.transforms.flip import alternating_flips, flip, random_flips
from vitscope.data.transforms.randaugment import RandAugment
from vitscope.data.transforms.resized import part_places, resized_crop
from vitscope.data.transforms.rotate import angles, rotate
from vitscope.data.transforms.settle import settled


class BatchTransform(nn.Module):
    """`vary` changes pictures, `finish` makes them what the model reads. Mixing, which needs labels, comes after."""

    mean: Tensor
    std: Tensor

    def __init__(self, augment: AugmentConfig, preprocess: PreprocessConfig) -> None:
        super().__init__()
        if preprocess.in_chans not in (1, 3):
            raise InputError(expected("in_chans", "1 (grey) or 3 (RGB) for pictures", preprocess.in_chans))
        self.augment, self.preprocess = augment, preprocess
        self.randaugment: RandAugment | None = None
        if augment.randaugment_ops:
            ops, magnitude = augment.randaugment_ops, augment.randaugment_magnitude
            self.randaugment = RandAugment(ops, magnitude, preprocess.img_size)
        keep = partial(self.register_buffer, persistent=False)
        keep("mean", torch.tensor(preprocess.mean)[:, None, None])
        keep("std", torch.tensor(preprocess.std)[:, None, None])

    def vary(self, pictures: Tensor, keys: Tensor, lasting_keys: Tensor, epoch: Tensor) -> Tensor:
        """(B, C, H, W) uint8 from stored pictures (B, C, h, w) uint8, each varied by its key (B,).

        `lasting_keys` (B,) do not depend on the epoch, a 0-dim integer: the alternating flip needs both.
        """
        self._check(pictures)
        augment = self.augment
        pictures = settled(self._cropped_and_flipped(pictures, keys, self._flips(keys, lasting_keys, epoch)))
        if augment.rotate_degrees:
            pictures = settled(rotate(pictures, settled(angles(keys, augment.rotate_degrees))))
        if any(augment.jitter):
            factors, ranks = map(settled, jitter_draws(keys, augment.jitter))
            pictures = settled(jitter(pictures, factors, ranks, augment.jitter))
        if self.randaugment is not None:
            pictures = self.randaugment(pictures, keys)
        return pictures

    def finish(self, pictures: Tensor, keys: Tensor) -> Tensor:
        """(B, C, H, W) float32, normalised, from varied pictures (B, C, H, W) uint8; parts of it painted over."""
        augment, img_size = self.augment, (pictures.shape[2], pictures.shape[3])
        # In place: on a CPU three temporaries would cost more than decoding spares.
        images = pictures.to(torch.float32).mul_(1 / 255).sub_(self.mean).div_(self.std)
        if augment.erase_prob:
            places = erase_places(keys, img_size, augment.erase_prob, augment.erase_scale, augment.erase_ratio)
            images = paint(images, *map(settled, places))
        if augment.cutout_size:
            images = paint(images, *map(settled, cutout_places(keys, img_size, augment.cutout_size)))
        return images

    def _flips(self, keys: Tensor, lasting_keys: Tensor, epoch: Tensor) -> Tensor | None:
        match self.augment.flip:
            case "random":
                return settled(random_flips(keys))
            case "alternating":
                return settled(alternating_flips(lasting_keys, epoch))
        return None

    def _cropped_and_flipped(self, pictures: Tensor, keys: Tensor, flips: Tensor | None) -> Tensor:
        """A crop mirrors on the way, since it chooses each pixel anyway."""
        augment, size = self.augment, self.preprocess.img_size
        stored = (pictures.shape[2], pictures.shape[3])
        match augment.crop:
            case "padded":
                top, left = map(settled, crop_places(keys, stored, size, augment.padding))
                return padded_crop(pictures, top, left, augment.padding, size, flips)
            case "margin":
                top, left = map(settled, crop_places(keys, stored, size))
                return cut(pictures, top, left, size, flips)
            case "resized":
                top, left, height, width = map(
                    settled, part_places(keys, stored, augment.crop_scale, augment.crop_ratio)
                )
                return resized_crop(pictures, top, left, height, width, size, self.preprocess.interpolation, flips)
        return pictures if flips is None else flip(pictures, flips)

    def _check(self, pictures: Tensor) -> None:
        size, channels = self.preprocess.img_size, self.preprocess.in_chans
        if pictures.dtype != torch.uint8 or pictures.dim() != 4 or pictures.shape[1] != channels:
            raise InputError(
                expected("pictures", f"uint8 (B, {channels}, H, W)", f"{pictures.dtype} {tuple(pictures.shape)}")
            )
        if self.augment.crop in ("none", "padded") and tuple(pictures.shape[2:]) != size:
            raise InputError(
                expected("pictures", f"{size[0]} x {size[1]} pixels", " x ".join(map(str, pictures.shape[2:]))),
                where=f"augment.crop: {self.augment.crop}",
                fix="store the pictures at preprocess.img_size, or set augment.crop to resized or margin",
            )
