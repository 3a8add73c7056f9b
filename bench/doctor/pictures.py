"""Real pictures for the fault benchmark: small pools of each set, decoded once, from which every seed draws its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from PIL.Image import Resampling
from torch import Tensor

from vitscope.data.dataset import open_dataset
from vitscope.data.decode import decode_image

BUILT_IN = ("digits", "shapes")
POOLS = {"digits": (1222, 216), "shapes": (4000, 800), "mnist": (6000, 1000), "cifar10": (8000, 1000)}
POOLS |= {"imagenette160": (3000, 900)}


@dataclass
class Pictures:
    """Images (N, C, H, W) from 0 to 1 and their labels (N,)."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def picked(self, which: Tensor) -> Pictures:
        return Pictures(self.images[which].clone(), self.labels[which].clone())

    def drawn(self, count: int, generator: torch.Generator) -> Pictures:
        return self.picked(torch.randperm(len(self), generator=generator)[:count])


@lru_cache(maxsize=16)
def pool(name: str, part: str, img_size: int, in_chans: int) -> Pictures:
    """The same pictures for every seed and set-up that asks: never changed by those who draw."""
    dataset = open_dataset(name)
    count = POOLS[name][0 if part == "train" else 1]
    chosen = np.random.default_rng(0).permutation(dataset.splits[part])[:count]
    images, labels = [], []
    for index, content in dataset.source.scan(np.sort(chosen)):
        if isinstance(content, Exception):
            raise content
        picture = decode_image(content, in_chans=in_chans).resize((img_size, img_size), Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(picture)).reshape(img_size, img_size, in_chans)
        images.append(pixels.permute(2, 0, 1))
        labels.append(int(dataset.source.labels[index]))
    return Pictures(torch.stack(images).float() / 255, torch.tensor(labels))


def draw(name: str, seed: int, *, img_size: int, in_chans: int, train: int, val: int) -> tuple[Pictures, Pictures]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"train": train, "val": val}
    first, second = (pool(name, part, img_size, in_chans).drawn(size, generator) for part, size in sizes.items())
    return first, second
