"""What goes into a file: the network on the CPU, frozen, traced once for any number of pictures.

B batch, C channels, H W image, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from vitscope.core.errors import VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.models.config import Size, pair
from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel

EXAMPLES = 2
"""Pictures it is traced with: a single one would be taken for the only number there is."""


def frozen(model: VisionModel, *, img_size: Size | None = None) -> VisionModel:
    """The model for use alone, on the CPU in float32 and at another size where one is asked for. What paints pictures
    stays behind: of a masked model its encoder. The caller's model does not change, and its weights are shared as long
    as they need not be moved or cast."""
    inner: VisionModel = model.encoder if isinstance(model, MaskedModel) else model
    shared = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in inner.parameters()}
    copied = deepcopy(inner, shared).to("cpu", torch.float32).eval()
    copied.preprocessing = model.preprocessing
    if img_size is not None and pair(img_size) != pair(copied.config.img_size):
        copied.set_input_size(img_size)
        copied.requires_grad_(False)
    return copied


class Wrapped(nn.Module):
    """float32 in and out, whatever the network counts in; or uint8 pixels in, which are normalised first."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: VisionModel, dtype: torch.dtype, preprocessing: PreprocessConfig | None) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        self.takes_pixels = preprocessing is not None
        if preprocessing is not None:
            self.register_buffer("mean", torch.tensor(preprocessing.mean).view(1, -1, 1, 1))
            self.register_buffer("std", torch.tensor(preprocessing.std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, K)"""
        if self.takes_pixels:
            images = (images.float() / 255 - self.mean) / self.std
        return self.model(images.to(self.dtype)).float()


def network_for(model: VisionModel, *, dtype: torch.dtype, pixels: PreprocessConfig | None) -> nn.Module:
    """`model`, which is frozen and stays so, as a file shall compute it. Unless something is done around it, it is
    traced as it is: then tensors in the file have the names they have everywhere."""
    if dtype == torch.float32 and pixels is None:
        return model
    shared = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in model.parameters()}
    return Wrapped(deepcopy(model, shared).to(dtype), dtype, pixels).eval()


def trace(network: nn.Module, image_shape: tuple[int, ...], *, pixels: bool) -> ExportedProgram:
    """The graph torch.export finds, for any number of pictures (C, H, W)."""
    images = torch.zeros(EXAMPLES, *image_shape, dtype=torch.uint8 if pixels else torch.float32)
    try:
        with torch.no_grad(), without_warnings():
            # Not strict: what is strict traces as torch.compile does, which does not say that it exports.
            program = torch.export.export(network, (images,), dynamic_shapes=({0: Dim("batch")},), strict=False)
    except Exception as error:  # whatever a network of somebody's own makes torch raise
        raise could_not("trace", error) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine's files are nobody's business
    return program


def could_not(what: str, error: Exception) -> VitscopeError:
    told = (str(error).strip().splitlines() or [""])[0][:300]
    return VitscopeError(
        f"torch could not {what} the model: {type(error).__name__}: {told}",
        where=f"torch {torch.__version__}",
        fix="try another --format or --opset, or another version of torch; --debug shows all it says",
    )


@contextmanager
def without_warnings() -> Iterator[None]:
    """Those of the exporters speak of their own insides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
