"""Which loader: the device loader where all pictures fit there in one size, else the worker loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vitscope.core.environment import available_memory_bytes
from vitscope.data.config import AugmentConfig, PreprocessConfig, augmentation
from vitscope.data.config.data import MOST_BYTES_ON_CPU
from vitscope.data.dataset import Dataset
from vitscope.data.loaders.bad import refuse_too_many
from vitscope.data.loaders.device import DeviceLoader
from vitscope.data.loaders.loader import BadSample, Loader
from vitscope.data.loaders.storage import Progress, Storage, common_size, load_pictures, plan_storage
from vitscope.data.loaders.worker import WorkerLoader
from vitscope.data.mix import Mixer
from vitscope.data.order import ALONE, Lane
from vitscope.data.transforms.batch import BatchTransform

SHARE_OF_GPU = 0.3
"""Of its free memory; the model needs the rest."""
SHARE_OF_MEMORY = 0.25
COPIED_AT_ONCE = 4096


def make_loader(
    dataset: Dataset,
    part: Literal["train", "val", "test"],
    *,
    preprocess: PreprocessConfig | int,
    augment: AugmentConfig | str | None = None,
    training: bool | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    lane: Lane = ALONE,
    compiled: bool = False,
    agreed: str | None = None,
    on_bad: Callable[[BadSample], None] | None = None,
    progress: Progress | None = None,
) -> Loader:
    """Batches of one part of a data set, ready for a model on `device`.

    `preprocess` is the model's, or just the side of its input in pixels: then pictures are RGB, resized and normalised
    as `dataset.config` says.
    `augment` is a named strength ("basic") or settings of one's own.
    `training` (by default: of the part `train`) means shuffled, varied by `augment`, whole batches only. Otherwise
    every picture comes once, in order, as `preprocess` makes it. `dataset.config` says which loader; `auto` chooses,
    and the loader's `why` says what and why; of several processes that agreed on one kind, that is `agreed`.
    `compiled` compiles the device loader's work.
    """
    config, device = dataset.config, torch.device(device)
    if isinstance(preprocess, int):
        preprocess = config.preprocess(preprocess)
    if isinstance(augment, str):
        augment = augmentation(augment, preprocess.img_size)
    training = part == "train" if training is None else training
    augment = (augment or AugmentConfig()) if training else None
    batch_size = batch_size or config.batch_size
    rows = dataset.splits[part]
    # The limit is a share of all pictures: one damaged file must not be too many for a small part.
    bad_limit = min(1.0, config.bad_limit * len(dataset.source) / max(1, len(rows)))
    mixer = Mixer(augment, dataset.num_classes, device) if augment is not None and augment.mixes else None
    transform = BatchTransform(augment or AugmentConfig(), preprocess).to(device)

    one_size = common_size(dataset.source, rows)
    storage = plan_storage(one_size, preprocess, augment, config.pixel_limit)
    kind, why = choose_loader(config.loader, dataset, storage, one_size, device, agreed=agreed)
    if kind == "worker":
        return WorkerLoader(
            dataset.source,
            rows,
            preprocess=preprocess,
            augment=augment,
            batch_size=batch_size,
            seed=seed,
            device=device,
            training=training,
            lane=lane,
            workers=config.workers,
            timeout_s=config.timeout_s,
            sampling=config.sampling,
            repeats=config.repeats,
            bad_limit=bad_limit,
            pixel_limit=config.pixel_limit,
            cache=config.cache,
            finish=transform.finish,
            mix=mixer,
            why=why,
            on_bad=on_bad,
        )
    pictures, bad = load_pictures(dataset.source, storage, keep=config.cache, progress=progress)
    left_out = np.isin(rows, [sample.index for sample in bad])
    own = set(rows[left_out].tolist())
    bad = [sample for sample in bad if sample.index in own]
    for sample in bad:
        if on_bad is not None:
            on_bad(sample)
    refuse_too_many(bad, len(rows), bad_limit)
    rows = rows[~left_out]
    return DeviceLoader(
        _on_device(pictures, rows, device),
        torch.from_numpy(dataset.source.labels[rows]),
        torch.from_numpy(rows),
        transform=transform,
        mixer=mixer,
        batch_size=batch_size,
        seed=seed,
        training=training,
        lane=lane,
        sampling=config.sampling,
        repeats=config.repeats,
        compiled=compiled,
        why=why,
        bad_samples=bad,
    )


def loader_kind(dataset: Dataset, *, preprocess: PreprocessConfig, augment: AugmentConfig, device: torch.device) -> str:
    """`worker` or `device`: what `make_loader` takes for training. It goes by the memory that is free now."""
    one_size = common_size(dataset.source, dataset.splits["train"])
    storage = plan_storage(one_size, preprocess, augment, dataset.config.pixel_limit)
    return choose_loader(dataset.config.loader, dataset, storage, one_size, device)[0]


def choose_loader(
    wish: str,
    dataset: Dataset,
    storage: Storage,
    one_size: tuple[int, int] | None,
    device: torch.device,
    *,
    agreed: str | None = None,
) -> tuple[str, str]:
    """`worker` or `device`, and why, in words."""
    count = len(dataset.source)
    need = count * storage.picture_bytes
    room = min(_room(device), _room(torch.device("cpu"), most=np.inf))  # they are decoded on the host first
    height, width = storage.size
    amount = f"{count:,} pictures of {height} x {width} are {_size(need)} as bytes"
    if wish != "auto":
        cut = wish == "device" and one_size is None
        note = f"; pictures of many sizes are first brought to {height} x {width}" if cut else ""
        return wish, f"{wish} loader, as asked for{note}"
    if agreed is not None:
        return agreed, f"{agreed} loader: {amount}; the first process chose it for all"
    if one_size is None:
        return "worker", "worker loader: the pictures have many sizes"
    if need > room:
        return "worker", f"worker loader: {amount}, more than the {_size(room)} to spare on {device}"
    return "device", f"device loader: {amount}, which fit on {device} ({_size(room)} to spare)"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:,.1f} MB"


def _room(device: torch.device, most: float = MOST_BYTES_ON_CPU) -> float:
    """Bytes that may be taken for pictures."""
    if device.type == "cuda":
        return SHARE_OF_GPU * torch.cuda.mem_get_info(device)[0]
    available = available_memory_bytes()
    return most if available is None else min(most, SHARE_OF_MEMORY * available)


def _on_device(pictures: np.ndarray, rows: np.ndarray, device: torch.device) -> Tensor:
    """Chosen pictures, copied a few at a time: a second copy on the host might not fit."""
    own = torch.empty((len(rows), *pictures.shape[1:]), dtype=torch.uint8, device=device)
    for start in range(0, len(rows), COPIED_AT_ONCE):
        part = rows[start : start + COPIED_AT_ONCE]
        own[start : start + len(part)] = torch.from_numpy(pictures[part])
    return own
