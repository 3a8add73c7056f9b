"""The one interface over the whole zoo: what every network here can be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from torch import Tensor, nn

from vitscope.core.config import updated
from vitscope.core.errors import InputError, VitscopeError, expected
from vitscope.models.config import Size, pair
from vitscope.models.init import init_head, is_token_or_table
from vitscope.models.layers.resample import ChannelMethod, PatchMethod, resample_channels


class VisionModel(nn.Module):
    """A network that turns images (B, C, H, W) into features, and features into logits.

    A family defines `forward_features`, `forward_head` and `num_features`, and keeps its classifier under
    `head_name`. `config` always describes the network as it now is, so that saving and rebuilding are exact.
    """

    head_name = "head"
    head_scale = 1.0
    """What a fresh head's weights are multiplied by, where pooled features begin larger than 1."""
    supports_grad_checkpointing = False
    any_size = False
    """Whether `img_size` is only the size the network is counted at, and images may be of any other."""
    pixel_layer: str | None = None
    """The layer that reads pixels, its weight (D, C, p, q), where that can be moved to other channels."""
    num_features: int
    """Width of the pooled features, which the head reads."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.grad_checkpointing = False
        self.preprocessing: Any = None  # what its pictures must go through, and
        self.labels: list[str] | None = None  # what its classes are called: carried from load to save
        self.certificate: Any = None  # what became of every tensor, where the weights were loaded

    @property
    def num_classes(self) -> int:
        return self.config.num_classes

    def forward(self, images: Tensor) -> Any:
        return self.forward_head(self.forward_features(images))

    def forward_features(self, images: Tensor) -> Tensor:
        """Everything before pooling."""
        raise NotImplementedError

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Any:
        """Pool, then classify; `pre_logits` stops at the pooled features (B, num_features)."""
        raise NotImplementedError

    def forward_intermediates(self, images: Tensor, indices: int | Sequence[int] | None = None) -> dict[int, Tensor]:
        """What the chosen layers (stages, where there are stages) say; all by default."""
        raise VitscopeError(f"{type(self).__name__} has no intermediate layers to show", fix="use forward_features")

    def classifiers(self) -> list[str]:
        """State-dict prefixes of the layers that depend on the number of classes."""
        return [self.head_name]

    def reset_classifier(self, num_classes: int) -> None:
        """A new, freshly initialised head for `num_classes` (0: none, the model gives pooled features)."""
        self.config = updated(self.config, num_classes=num_classes)
        self.labels = None  # the old names belong to the old classes
        like = next(self.parameters())
        for name in self.classifiers():
            parent, _, leaf = name.rpartition(".")
            head = make_head(self.num_features, num_classes, self.head_scale).to(like.device, like.dtype)
            setattr(self.get_submodule(parent), leaf, head)

    def set_input_size(
        self,
        img_size: Size,
        *,
        patch_size: Size | None = None,
        antialias: bool = True,
        patch_filter: PatchMethod = "pseudo_inverse",
    ) -> None:
        """Make the network ready for images of another size, cut into patches of another size where it has patches.

        `antialias` and `patch_filter` are the conventions learned tables and filters are moved by, see
        `layers/resample.py`. What need not move stays the very parameter it was.
        """
        changes: dict[str, Any] = {"img_size": img_size}
        if patch_size is not None:
            if not hasattr(self.config, "patch_size"):
                raise VitscopeError(
                    f"{type(self).__name__} has no patches, and so no patch_size to set",
                    where=f"{type(self).__name__}.set_input_size",
                    fix="leave patch_size out",
                )
            changes["patch_size"] = patch_size
        self.config = updated(self.config, **changes)

    def set_in_chans(self, in_chans: int, *, method: ChannelMethod = "sum") -> None:
        """Make the network ready for images of other channels: grey instead of RGB, or more than three."""
        config = updated(self.config, in_chans=in_chans)
        if in_chans == self.config.in_chans:
            return
        if self.pixel_layer is None:
            old = self.config.in_chans
            raise VitscopeError(
                f"the weights of {type(self).__name__} are for {old} channels, and cannot be moved to {in_chans}",
                where=f"{type(self).__name__}.set_in_chans",
                fix=f"convert the images, or build a new model with in_chans={in_chans}",
            )
        layer: Any = self.get_submodule(self.pixel_layer)
        moved = resample_channels(layer.weight.detach(), in_chans, method)
        layer.weight = nn.Parameter(moved, requires_grad=layer.weight.requires_grad)
        if isinstance(layer, nn.Conv2d):
            layer.in_channels = in_chans
        self.config = config

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Trade time for memory: recompute activations in the backward pass instead of keeping them."""
        if enable and not self.supports_grad_checkpointing:
            raise VitscopeError(
                f"{type(self).__name__} has no gradient checkpointing", fix="use a smaller batch with accumulation"
            )
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that are neither biases nor norms and still must not decay (tokens, tables)."""
        return {name for name, _ in self.named_parameters() if is_token_or_table(name)}

    def reset_buffers(self) -> None:
        """Compute again what is derived from the config and not saved: fixed tables, indices, masks. They follow the
        parameters' device and type."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `to`, `half`, `cuda` and `to_empty` go through. Fixed tables are computed anew, never cast twice: a
        trip through bf16 and back leaves them exact, and memory that was only allocated gets its values."""
        super()._apply(fn, recurse)
        self.reset_buffers()
        return self

    def attention_maps(self, images: Tensor, layers: int | Sequence[int] | None = None) -> dict[int, Tensor]:
        raise VitscopeError(
            f"{type(self).__name__} has no attention over the whole image to show",
            fix="attention_maps works for ViT, DeiT and DINOv2 models",
        )

    def check_images(self, images: Tensor) -> None:
        """Refuse images this network was not built for, in words."""
        if not images.is_floating_point():
            raise InputError(
                expected("images", "floating-point numbers", str(images.dtype)),
                where=f"{type(self).__name__}.forward",
                fix="scale and normalise them first: (images / 255 - mean) / std",
            )
        wanted = (self.config.in_chans, *pair(self.config.img_size))
        compared = 1 if self.any_size else 3
        if images.ndim != 4 or tuple(images.shape[1 : 1 + compared]) != wanted[:compared]:
            shown = (wanted[0], "height", "width") if self.any_size else wanted
            raise InputError(
                expected("images", f"(batch, {', '.join(map(str, shown))})", tuple(images.shape)),
                where=f"{type(self).__name__}.forward",
                fix=_image_remedy(images, wanted),
            )


def make_head(num_features: int, num_classes: int, scale: float = 1.0) -> nn.Module:
    """A linear classifier whose first logits are small, or nothing at all for 0 classes."""
    if num_classes == 0:
        return nn.Identity()
    head = nn.Linear(num_features, num_classes)
    init_head(head, scale)
    return head


def choose_layers(wished: int | Sequence[int] | None, count: int) -> list[int]:
    """The wished layers as numbers from 0 (all by default, negative counts from the end), or a refusal."""
    if wished is None:
        return list(range(count))
    wished = [wished] if isinstance(wished, int) else [int(layer) for layer in wished]
    if not wished:
        raise InputError(expected("layers", "at least one layer", wished), fix="leave it out for all layers")
    for layer in wished:
        if not -count <= layer < count:
            raise InputError(expected("layers", f"numbers from {-count} to {count - 1}", layer))
    return [layer % count for layer in wished]


def _image_remedy(images: Tensor, wanted: tuple[int, int, int]) -> str:
    if images.ndim == 3:
        return "add a batch axis: images.unsqueeze(0)"
    if images.ndim != 4:
        return "give a batch of images"
    if images.shape[1] != wanted[0]:
        if images.shape[3] == wanted[0]:
            return "channels come first: images.permute(0, 3, 1, 2)"
        return f"convert the images, or build the model with in_chans={images.shape[1]}"
    return f"resize the images, or call set_input_size(({images.shape[2]}, {images.shape[3]}))"
