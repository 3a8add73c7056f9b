"""Which loader: the device loader where all pictures fit there in one size, else the worker loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from vitscope.core.environment import available_memory_bytes
from vitscope.data.config import AugmentConfig, PreprocessConfig
from vitscope.data.dataset import Dataset
from vitscope.data.loaders.bad import refuse_too_many
from vitscope.data.loaders.device import DeviceLoader
from vitscope.data.loaders.loader import BadSample, Loader
from vitscope.data.loaders.storage import Progress, Storage, common_size, load_pictures, plan_storage
from vitscope.data.loaders.worker import WorkerLoader
from vitscope.data.mix import Mixer
from vitscope.data.order import ALONE, Shard
from vitscope.data.transforms.batch import BatchTransform

SHARE_OF_GPU = 0.3
"""Of its free memory; the model needs the rest."""
SHARE_OF_MEMORY = 0.25
MOST_ON_CPU = 4 * 10**9


def make_loader(
    dataset: Dataset,
    part: Literal["train", "val", "test"],
    *,
    preprocess: PreprocessConfig,
    augment: AugmentConfig | None = None,
    training: bool | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    shard: Shard = ALONE,
    compiled: bool = False,
    on_bad: Callable[[BadSample], None] | None = None,
    progress: Progress | None = None,
) -> Loader:
    """Batches of one part of a data set, ready for a model on `device`.

    `training` (by default: of the part `train`) means shuffled, varied by `augment`, whole batches only. Otherwise
    every picture comes once, in order, as `preprocess` makes it. `dataset.config` says which loader; `auto` chooses,
    and the loader's `why` says what and why. `compiled` compiles the device loader's work.
    """
    config, device = dataset.config, torch.device(device)
    training = part == "train" if training is None else training
    augment = (augment or AugmentConfig()) if training else None
    batch_size = batch_size or config.batch_size
    rows = dataset.splits[part]
    mixer = Mixer(augment, dataset.num_classes, device) if augment is not None and augment.mixes else None
    transform = BatchTransform(augment or AugmentConfig(), preprocess).to(device)

    one_size = common_size(dataset.source, rows)
    storage = plan_storage(one_size, preprocess, augment, config.pixel_limit)
    kind, why = choose_loader(config.loader, dataset, storage, one_size, device)
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
            shard=shard,
            workers=config.workers,
            timeout_s=config.timeout_s,
            sampling=config.sampling,
            repeats=config.repeats,
            bad_limit=config.bad_limit,
            pixel_limit=config.pixel_limit,
            finish=transform.finish,
            mix=mixer,
            why=why,
            on_bad=on_bad,
        )
    pictures, bad = load_pictures(dataset.source, storage, keep=config.cache, progress=progress)
    left_out = np.isin(rows, [sample.index for sample in bad])
    bad = [sample for sample in bad if sample.index in set(rows[left_out].tolist())]
    for sample in bad:
        if on_bad is not None:
            on_bad(sample)
    refuse_too_many(bad, len(rows), config.bad_limit)
    rows = rows[~left_out]
    return DeviceLoader(
        torch.from_numpy(np.ascontiguousarray(pictures[rows])).to(device),
        torch.from_numpy(dataset.source.labels[rows]),
        torch.from_numpy(rows),
        transform=transform,
        mixer=mixer,
        batch_size=batch_size,
        seed=seed,
        training=training,
        shard=shard,
        sampling=config.sampling,
        repeats=config.repeats,
        compiled=compiled,
        why=why,
        bad_samples=bad,
    )


def choose_loader(
    wish: str, dataset: Dataset, storage: Storage, one_size: tuple[int, int] | None, device: torch.device
) -> tuple[str, str]:
    """`worker` or `device`, and why, in words."""
    count = len(dataset.source)
    need = count * storage.picture_bytes
    room = _room(device)
    height, width = storage.size
    amount = f"{count:,} pictures of {height} x {width} are {need / 1e9:.2f} GB as bytes"
    if wish != "auto":
        cut = wish == "device" and one_size is None
        note = f"; pictures of many sizes are first brought to {height} x {width}" if cut else ""
        return wish, f"{wish} loader, as asked for{note}"
    if one_size is None:
        return "worker", "worker loader: the pictures have many sizes"
    if need > room:
        return "worker", f"worker loader: {amount}, more than the {room / 1e9:.2f} GB to spare on {device}"
    return "device", f"device loader: {amount}, which fit on {device} ({room / 1e9:.2f} GB to spare)"


def _room(device: torch.device) -> float:
    """Bytes that may be taken for pictures."""
    if device.type == "cuda":
        return SHARE_OF_GPU * torch.cuda.mem_get_info(device)[0]
    available = available_memory_bytes()
    return MOST_ON_CPU if available is None else min(MOST_ON_CPU, SHARE_OF_MEMORY * available)
