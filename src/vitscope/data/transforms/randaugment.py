"""RandAugment (Cubuk et al. 2019) on a batch, each picture with its own operations, as torchvision's RandAugment.

The magnitude is fixed, so an operation has at most two variants, one for each sign, and what a variant does is known
before the first picture comes. Three steps per slot do all fourteen operations; a picture stands still in the others:
move (shear, translate, rotate: a table of where each pixel comes from), map levels (brightness, contrast, posterize,
solarize, autocontrast, equalize: a table for each channel), blend (colour, sharpness).
B pictures, C channels, H height, W width, N = H * W pixels, L = 256 levels, V = 28 variants.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitscope.data.draws import integers
from vitscope.data.transforms.colour import blend, grey, mean_grey
from vitscope.data.transforms.histogram import LEVELS, autocontrast_tables, equalize_tables, look_up
from vitscope.data.transforms.settle import settled
from vitscope.data.transforms.streams import Stream

OPERATIONS = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)
"""torchvision's names, in its order. Variant 2 k is operation k; 2 k + 1 is it the other way, where it has two ways."""
SIGNED = OPERATIONS[1:10]
BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")
MOVES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
BINS = 31
"""Steps from no magnitude to the full one."""
OUTSIDE = -1


class RandAugment(nn.Module):
    """`ops` operations of this magnitude (0 to 30) for each picture of (B, C, H, W)."""

    source: Tensor
    """(moves, N) int32: which pixel each pixel shows, or OUTSIDE."""
    move: Tensor
    """(V,): its row in `source`."""
    levels: Tensor
    """(V, L) uint8: what the variants that only look at a pixel's own level make of it."""
    factor: Tensor
    """(V,) float32: the blends' factor, 1 for all other variants."""
    rest: Tensor
    """(V,) float32: 1 - factor, subtracted in double precision as torchvision does."""

    def __init__(self, ops: int, magnitude: int, img_size: tuple[int, int]) -> None:
        super().__init__()
        self.ops, self.img_size = ops, img_size
        table = variants(magnitude, img_size)
        numbers = torch.arange(1, math.prod(img_size) + 1, dtype=torch.float32).view(1, *img_size)
        moved = [numbers, *(_moved(numbers, name, strength) for name, strength in table if name in MOVES)]
        rows = iter(range(1, len(moved)))
        keep = partial(self.register_buffer, persistent=False)
        keep("source", torch.stack(moved).flatten(1).to(torch.int32) - 1)
        keep("move", torch.tensor([next(rows) if name in MOVES else 0 for name, _ in table]))
        keep("levels", torch.stack([_mapped(name, strength) for name, strength in table]))
        factors = [1 + strength if name in BLENDS else 1.0 for name, strength in table]
        keep("factor", torch.tensor(factors))
        keep("rest", torch.tensor([1 - factor for factor in factors]))

    def forward(self, images: Tensor, keys: Tensor) -> Tensor:
        """(B, C, H, W) uint8, varied by the keys (B,)."""
        for slot in range(self.ops):
            images = settled(self.vary(images, settled(integers(keys, Stream.RANDAUGMENT + slot, len(self.factor)))))
        return images

    def vary(self, images: Tensor, variants: Tensor) -> Tensor:
        """(B, C, H, W) uint8, to each picture its variant (B,)."""
        operation = variants // 2
        factor = self.factor[variants][:, None, None, None]
        rest = self.rest[variants][:, None, None, None]
        pixels = images.flatten(2)
        shades = grey(images.to(torch.float32))
        tables = self._tables(pixels, shades, variants, operation, factor, rest)
        pixels = look_up(self._moved(pixels, variants), tables)
        return _blended(pixels.view_as(images), shades, operation, factor, rest)

    def _moved(self, pixels: Tensor, variants: Tensor) -> Tensor:
        source = self.source[self.move[variants]].long()[:, None]
        moved = pixels.gather(2, source.clamp(min=0).expand_as(pixels))
        return moved * (source != OUTSIDE)

    def _tables(
        self, pixels: Tensor, shades: Tensor, variants: Tensor, operation: Tensor, factor: Tensor, rest: Tensor
    ) -> Tensor:
        """(B, C, L) uint8."""
        levels = torch.arange(LEVELS, device=pixels.device, dtype=torch.float32)
        contrast = blend(levels, mean_grey(shades), factor, rest)[:, 0].to(torch.uint8)
        tables = torch.where(_is(operation, "Contrast"), contrast, self.levels[variants][:, None])
        tables = torch.where(_is(operation, "AutoContrast"), autocontrast_tables(pixels), tables)
        return torch.where(_is(operation, "Equalize"), equalize_tables(pixels), tables)


def _is(operation: Tensor, name: str) -> Tensor:
    """(B, 1, 1) bool."""
    return (operation == OPERATIONS.index(name))[:, None, None]


def _blended(images: Tensor, shades: Tensor, operation: Tensor, factor: Tensor, rest: Tensor) -> Tensor:
    """Colour blends with grey, sharpness with a blurred picture. (B, C, H, W) uint8."""
    pixels = images.to(torch.float32)
    colour, sharp = _is(operation, "Color")[:, None], _is(operation, "Sharpness")[:, None]
    if images.shape[1] == 1:
        colour = torch.zeros_like(colour)
    # x f + y (1 - f) for colour, x + (y - x) (1 - f) for sharpness: equal on paper, rounded as torchvision rounds
    start = pixels * torch.where(colour, factor, 1.0)
    towards = torch.where(sharp, _blur(pixels) - pixels, shades)
    share = torch.where(colour | sharp, rest, 0.0)
    return torch.addcmul(start, towards, share).clamp(0, 255).to(torch.uint8)


def _blur(pixels: Tensor) -> Tensor:
    """Each pixel five times and its eight neighbours once, rounded; the edge stays. Whole numbers, so exact."""
    if min(pixels.shape[-2:]) <= 2:
        return pixels
    across = pixels[..., :-2] + pixels[..., 1:-1] + pixels[..., 2:]
    total = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :]
    inner = ((total + 4 * pixels[..., 1:-1, 1:-1]) * (1 / 13)).round()
    rows = torch.cat((pixels[..., 1:-1, :1], inner, pixels[..., 1:-1, -1:]), dim=-1)
    return torch.cat((pixels[..., :1, :], rows, pixels[..., -1:, :]), dim=-2)


def variants(magnitude: int, img_size: tuple[int, int]) -> list[tuple[str, float]]:
    """The V variants in order: operation and strength."""
    table = []
    for name in OPERATIONS:
        strength = _strength(name, magnitude, img_size)
        table += [(name, strength), (name, -strength if name in SIGNED else strength)]
    return table


def _strength(name: str, magnitude: int, img_size: tuple[int, int]) -> float:
    """The magnitude in the operation's own unit."""
    height, width = img_size
    full = {
        "ShearX": 0.3,
        "ShearY": 0.3,
        "TranslateX": 150 / 331 * width,
        "TranslateY": 150 / 331 * height,
        "Rotate": 30.0,
        "Brightness": 0.9,
        "Color": 0.9,
        "Contrast": 0.9,
        "Sharpness": 0.9,
    }
    if name == "Posterize":
        return 8 - round(magnitude / ((BINS - 1) / 4))
    if name == "Solarize":
        return float(torch.linspace(1.0, 0.0, BINS)[magnitude])
    # linspace in float32, for torchvision's last bit
    return float(torch.linspace(0.0, full[name], BINS)[magnitude]) if name in full else 0.0


def _moved(numbers: Tensor, name: str, strength: float) -> Tensor:
    """What torchvision makes of a picture whose pixels are numbered from 1; 0 is what came from outside."""
    height, width = numbers.shape[-2:]
    # Counted as torchvision does, for its last bit: from the middle, in half a picture's width and height.
    x = torch.linspace((1.0 - width) * 0.5, (width - 1.0) * 0.5, width).expand(height, width)
    y = torch.linspace((1.0 - height) * 0.5, (height - 1.0) * 0.5, height)[:, None].expand(height, width)
    places = torch.stack((x, y, torch.ones_like(x)), dim=-1).view(1, -1, 3)
    theta = torch.tensor(_source_of(name, strength, height, width)).t().div(torch.tensor([0.5 * width, 0.5 * height]))
    grid = places.bmm(theta[None]).view(1, height, width, 2)
    return F.grid_sample(numbers[None], grid, mode="nearest", padding_mode="zeros", align_corners=False)[0]


def _source_of(name: str, strength: float, height: int, width: int) -> list[list[float]]:
    """Where the pixel at (x, y, 1), counted from the middle, comes from: rows for x and for y."""
    match name:
        case "Rotate":
            turn = math.radians(-(strength % 360))
            return [[math.cos(turn), math.sin(turn), 0.0], [-math.sin(turn), math.cos(turn), 0.0]]
        case "TranslateX":
            return [[1.0, 0.0, -float(int(strength))], [0.0, 1.0, 0.0]]
        case "TranslateY":
            return [[1.0, 0.0, 0.0], [0.0, 1.0, -float(int(strength))]]
    # A shear leaves the upper left corner where it is.
    slant = math.tan(math.radians(math.degrees(math.atan(strength))))
    if name == "ShearX":
        return [[1.0, slant, slant * height * 0.5], [0.0, 1.0, 0.0]]
    # Half the height is taken off and added again, which rounds: the last bit decides between two pixels as near.
    return [[1.0, 0.0, 0.0], [slant, 1.0, -height * 0.5 + slant * width * 0.5 + height * 0.5]]


def _mapped(name: str, strength: float) -> Tensor:
    """(L,) uint8: what becomes of every level."""
    levels = torch.arange(LEVELS)
    match name:
        case "Brightness":
            levels = (levels * (1 + strength)).clamp(0, LEVELS - 1)
        case "Posterize":
            levels = levels & -int(2 ** (8 - int(strength)))
        case "Solarize":
            levels = torch.where(levels >= 255 * strength, LEVELS - 1 - levels, levels)
    return levels.to(torch.uint8)
