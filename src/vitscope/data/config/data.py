"""Which pictures, how they are split, and how they are loaded."""

from __future__ import annotations

import math
from typing import Literal

from vitscope.core.config import config, require
from vitscope.data.config.preprocess import NORMALISATIONS, PreprocessConfig

PIXEL_LIMIT = 89_478_485
"""Largest picture that is decoded, in pixels: 256 MB as RGB, and Pillow's own limit."""


MOST_BYTES_ON_CPU = 4 * 10**9
"""Of pictures that may lie in memory as a whole, where no GPU holds them."""


@config
class DataConfig:
    """Which pictures, how they are split, and how they are loaded."""

    name: str = "digits"
    """A built-in set, a folder or file, a folder's name under $VITSCOPE_DATA or data/, or a Hugging Face name."""
    image_column: str | None = None
    """Column of the pictures (Parquet, CSV), where it cannot be told from the file."""
    label_column: str | None = None
    """Column of the labels (Parquet, CSV), where it cannot be told from the file."""
    split_seed: int = 0
    """Seed of the split. Not the run's seed: runs with several seeds must share one test set."""
    val_share: float = 0.1
    """Share of the training pictures that becomes validation, where none is given."""
    pool_shares: tuple[float, float, float] = (0.68, 0.12, 0.2)
    """Shares of train, validation and test, where the pictures are one pool."""
    train_limit: int | None = None
    """Train on so many pictures only, drawn by `split_seed` with the classes' shares kept."""
    batch_size: int = 128
    """Pictures per step, over all processes."""
    loader: Literal["auto", "worker", "device"] = "auto"
    """`worker`: processes decode and vary single pictures. `device`: all pictures lie on the device as bytes and are
    varied there, a batch at a time."""
    workers: int | None = None
    """Processes of the worker loader; by default as many as there are CPUs, up to 16. 0: none beside this one."""
    timeout_s: float = 120.0
    """How long a worker may be silent before it counts as hung."""
    sampling: Literal["shuffled", "balanced"] = "shuffled"
    """`balanced`: every class equally often, rare ones repeated, frequent ones shown in part."""
    repeats: int = 1
    """Repeated augmentation: each picture of a batch in this many variations; an epoch stays as long as it was."""
    normalisation: Literal["half", "imagenet", "mnist"] = "half"
    """Which mean and std pixels are normalised by: 0.5, ImageNet's, or MNIST's."""
    mean: tuple[float, ...] | None = None
    """Own mean per channel, instead of the named one's."""
    std: tuple[float, ...] | None = None
    """Own std per channel, instead of the named one's."""
    resize: Literal["centre", "squash"] = "centre"
    """What is done with pictures that are not square: cut the middle out, or squash the whole."""
    crop_share: float = 1.0
    """Share of the side the middle cut keeps in evaluation (timm's crop_pct)."""
    interpolation: Literal["bicubic", "bilinear", "nearest"] = "bicubic"
    """How pictures are resampled."""
    resizer: Literal["pillow", "tensor"] = "pillow"
    """What resamples pictures in evaluation: Pillow, or torchvision on tensors, as transformers does."""
    bad_limit: float = 0.01
    """Largest share of all pictures that may turn out to be unreadable."""
    pixel_limit: int = PIXEL_LIMIT
    """Most pixels a picture may have: larger ones are refused before they are decoded."""
    cache: bool = True
    """Keep decoded pictures on the disk for the next run, under the hash of their content."""

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "name", "a name or path", repr(self.name))
        require(0 <= self.split_seed < 2**63, "split_seed", "0 or more", self.split_seed)
        require(0 < self.val_share < 1, "val_share", "a share between 0 and 1", self.val_share)
        shares = self.pool_shares
        adds_up = min(shares) > 0 and math.isclose(sum(shares), 1, abs_tol=1e-6)
        require(adds_up, "pool_shares", "three positive shares that add up to 1", shares)
        limit = self.train_limit
        require(limit is None or 0 < limit <= 10**12, "train_limit", "a positive integer, or nothing", limit)
        require(0 < self.batch_size <= 1_000_000, "batch_size", "from 1 to 1,000,000", self.batch_size)
        require(self.workers is None or 0 <= self.workers <= 1024, "workers", "from 0 to 1024", self.workers)
        require(0 < self.timeout_s < math.inf, "timeout_s", "a positive number of seconds", self.timeout_s)
        require(1 <= self.repeats <= 100, "repeats", "from 1 to 100", self.repeats)
        one_way = self.repeats == 1 or self.sampling == "shuffled"
        require(one_way, "repeats", "1 beside balanced sampling, which repeats by itself", self.repeats)
        require(0 <= self.bad_limit <= 1, "bad_limit", "a share from 0 to 1", self.bad_limit)
        require(self.pixel_limit > 0, "pixel_limit", "a positive number of pixels", self.pixel_limit)
        for name in ("mean", "std"):
            values = getattr(self, name)
            require(values is None or len(values) > 0, name, "one number per channel", values)

    def preprocess(self, img_size: int | tuple[int, int], in_chans: int = 3) -> PreprocessConfig:
        """What these settings do to a picture for a model of this input size."""
        img_size = (img_size, img_size) if isinstance(img_size, int) else img_size
        mean, std = NORMALISATIONS[self.normalisation]
        return PreprocessConfig(
            img_size=img_size,
            in_chans=in_chans,
            crop=self.resize,
            crop_share=self.crop_share,
            interpolation=self.interpolation,
            resizer=self.resizer,
            mean=self.mean or _for_channels(mean, in_chans),
            std=self.std or _for_channels(std, in_chans),
        )


def _for_channels(values: tuple[float, ...], in_chans: int) -> tuple[float, ...]:
    """A grey picture has the mean of the colours; a colour picture made of grey has it three times."""
    if len(values) == in_chans:
        return values
    return (sum(values) / len(values),) * in_chans
