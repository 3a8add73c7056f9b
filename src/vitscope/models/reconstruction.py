"""What masked image models share: the result, the random choice, pixels as patches, the encoder to take away.

B batch, C channels, H W image, N patches, P prefix tokens, D width, p q patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, InputError, VitscopeError, expected
from vitscope.models.config import Size, ViTConfig, pair
from vitscope.models.layers.patch import cut_patches, join_patches
from vitscope.models.layers.resample import ChannelMethod, PatchMethod
from vitscope.models.model import VisionModel
from vitscope.models.vit import ViT

Sides: TypeAlias = tuple[int, int]
"""Something (down, across), counted in pixels."""


class Reconstruction(NamedTuple):
    """What a masked model painted. A tuple, because DDP, FSDP and export look for tensors inside tuples."""

    loss: Tensor
    """One number: the mean error over what was hidden, and over nothing else."""
    prediction: Tensor
    """MAE: patches (B, N, p*q*C), in the units of its target. SimMIM: a picture (B, C, H, W)."""
    mask: Tensor
    """(B, N) bool: True (1) = hidden from the encoder."""


class MaskedModel(VisionModel):
    """A ViT under `encoder` that learns by painting what it was not shown. Its features are the encoder's."""

    encoder: ViT
    supports_grad_checkpointing = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder = ViT(config.encoder)
        self.num_features = self.encoder.num_features

    @property
    def config(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The settings as they now are, also after the encoder alone was changed. An encoder that no longer fits (it
        was given a classifier) is refused."""
        if self._config.encoder is not self.encoder.config:
            try:
                self._config = updated(self._config, encoder=self.encoder.config)
            except ConfigError as error:
                raise ConfigError(
                    f"the encoder no longer fits its {type(self).__name__}: {error.what}",
                    where=f"{type(self).__name__}.config",
                    fix="use or save the encoder by itself: encoder = model.encoder",
                ) from None
        return self._config

    @config.setter
    def config(self, config: Any) -> None:
        self._config = config

    @property
    def num_classes(self) -> int:
        return 0

    def forward_features(self, images: Tensor) -> Tensor:
        """The encoder's tokens of the whole image, nothing hidden: (B, P + N, D)."""
        return self.encoder.forward_features(images)

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Any:
        """The encoder's pooled features (B, D); there are no logits."""
        return self.encoder.forward_head(features, pre_logits=pre_logits)

    def forward_intermediates(
        self, images: Tensor, indices: int | Sequence[int] | None = None, *, norm: bool = False
    ) -> dict[int, Tensor]:
        return self.encoder.forward_intermediates(images, indices, norm=norm)

    def attention_maps(self, images: Tensor, layers: int | Sequence[int] | None = None) -> dict[int, Tensor]:
        return self.encoder.attention_maps(images, layers)

    def check_images(self, images: Tensor) -> None:
        self.encoder.check_images(images)

    def classifiers(self) -> list[str]:
        return []

    def reset_classifier(self, num_classes: int) -> None:
        raise VitscopeError(
            f"{type(self).__name__} paints pictures and has no classifier to reset",
            where=f"{type(self).__name__}.reset_classifier",
            fix=f"take its encoder: encoder = model.encoder; encoder.reset_classifier({num_classes})",
        )

    def set_input_size(
        self,
        img_size: Size,
        *,
        patch_size: Size | None = None,
        antialias: bool = True,
        patch_filter: PatchMethod = "pseudo_inverse",
    ) -> None:
        """Move the positions of the encoder, and of a decoder that has any, to another image or patch size. The layer
        that paints a patch is resized as the picture it paints."""
        before: ViTConfig = self.config.encoder
        patch = before.patch_size if patch_size is None else patch_size
        encoder_config = updated(before, img_size=img_size, patch_size=patch)
        # The whole config first: a size it refuses must leave the network as it was.
        updated(self.config, encoder=encoder_config)
        self.encoder.set_input_size(img_size, patch_size=patch, antialias=antialias, patch_filter=patch_filter)
        self._repaint(before, encoder_config)
        self.reset_buffers()

    def set_in_chans(self, in_chans: int, *, method: ChannelMethod = "sum") -> None:
        """The encoder reads other channels, and as many are painted."""
        before: ViTConfig = self.config.encoder
        self.encoder.set_in_chans(in_chans, method=method)
        self._repaint(before, self.encoder.config)

    def _repaint(self, before: ViTConfig, now: ViTConfig) -> None:
        """Where patches have another size or other channels, move the layer that paints them."""
        old, new = ((pair(config.patch_size), config.in_chans) for config in (before, now))
        if old != new:
            self.repaint(*old, *new)

    def repaint(self, old_patch: Sides, old_chans: int, patch: Sides, in_chans: int) -> None:
        """Move the layer that paints to patches of `patch` pixels with `in_chans` channels."""
        raise NotImplementedError

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        super().set_grad_checkpointing(enable)
        self.encoder.set_grad_checkpointing(enable)

    def reset_buffers(self) -> None:
        self.encoder.reset_buffers()

    def check_per_patch(self, name: str, values: Tensor, images: Tensor) -> None:
        """Refuse a tensor that does not hold one value for each patch of each image."""
        wanted = (images.shape[0], self.config.encoder.num_patches)
        if tuple(values.shape) != wanted:
            raise InputError(
                expected(name, f"(batch, patches) = {wanted}", tuple(values.shape)),
                where=f"{type(self).__name__}.forward",
            )


def random_noise(images: Tensor, num_patches: int) -> Tensor:
    """(B, N) uniform. Always float32: in bf16 many draws tie, and ties would favour the first patches."""
    return torch.rand(images.shape[0], num_patches, device=images.device, dtype=torch.float32)


def ranked(noise: Tensor) -> tuple[Tensor, Tensor]:
    """Patches in the order of rising noise, and the rank of each patch in that order: both (B, N).

    A stable sort, so that equal noise means equal masks on every device.
    """
    order = noise.argsort(dim=1, stable=True)
    return order, order.argsort(dim=1)


def cut_pixels(images: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """(B, C, H, W) -> (B, N, p*q*C): `cut_patches` with the channels of a pixel side by side, as in MAE."""
    patches = cut_patches(images, patch_size)
    return patches.unflatten(2, (images.shape[1], -1)).transpose(2, 3).flatten(2)


def join_pixels(patches: Tensor, patch_size: tuple[int, int], grid_size: tuple[int, int]) -> Tensor:
    """The inverse of `cut_pixels`: (B, N, p*q*C) -> (B, C, H, W)."""
    channels_first = patches.unflatten(2, (patch_size[0] * patch_size[1], -1)).transpose(2, 3).flatten(2)
    return join_patches(channels_first, patch_size, grid_size)
