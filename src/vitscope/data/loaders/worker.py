"""The loader for pictures that must be read and decoded one by one: worker processes do that, the device the rest.

Everything in a batch is a function of (seed, epoch, index, copy): neither the number of workers and processes nor an
interruption shows in it. Pictures that cannot be decoded are left out and recorded, never replaced by others.
M places in an epoch, B pictures in this process's part of a batch, of which b could be decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitscope.core.environment import usable_cpus
from vitscope.core.errors import DataError, expected
from vitscope.data.config import AugmentConfig, PreprocessConfig
from vitscope.data.config.data import PIXEL_LIMIT
from vitscope.data.draws import epoch_key, picture_keys
from vitscope.data.loaders.bad import refuse_too_many
from vitscope.data.loaders.loader import AUGMENT, LASTING, BadSample, Batch, was_closed, was_given_up
from vitscope.data.loaders.worker_dataset import PictureDataset, Pixels, Wanted
from vitscope.data.loaders.worker_stream import PixelStream, WorkersLostError
from vitscope.data.order import ALONE, Lane, batch_count, batch_places, epoch_order, in_sequence, refuse_batch
from vitscope.data.sources.source import Source
from vitscope.data.transforms.flip import alternating_flips, random_flips
from vitscope.data.transforms.picture import picture_transform

MOST_WORKERS = 16

Finish = Callable[[Tensor, Tensor], Tensor]
"""(pixels uint8 (b, C, H, W), keys (b,)) -> images float32, normalised, and painted over as training wants."""
Mix = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(images, labels (b,), keys (b,)) -> images and label shares (b, K)."""

log = logging.getLogger("vitscope")


class WorkerLoader:
    """Batches of one part of a source, by worker processes. See `Loader` for what it promises."""

    def __init__(
        self,
        source: Source,
        rows: np.ndarray,
        *,
        preprocess: PreprocessConfig,
        augment: AugmentConfig | None,
        batch_size: int,
        seed: int,
        device: torch.device,
        training: bool,
        finish: Finish,
        mix: Mix | None = None,
        lane: Lane = ALONE,
        workers: int | None = None,
        timeout_s: float = 120.0,
        sampling: str = "shuffled",
        repeats: int = 1,
        bad_limit: float = 0.01,
        pixel_limit: int = PIXEL_LIMIT,
        cache: bool = True,
        why: str = "worker",
        on_bad: Callable[[BadSample], None] | None = None,
    ) -> None:
        """`rows` are the pictures' numbers in the source; `batch_size` counts over all processes. In evaluation
        (`training` false) `augment`, `mix`, `sampling` and `repeats` do nothing."""
        if preprocess.in_chans not in (1, 3):
            raise DataError(expected("in_chans", "1 (grey) or 3 (RGB) for pictures", preprocess.in_chans))
        if training:
            refuse_batch(len(rows), batch_size, lane)
        self.why = why
        self.num_batches = batch_count(len(rows), batch_size, training=training)
        self.num_pictures = len(rows)
        self.bad_samples: list[BadSample] = []
        self.augment = augment if training else None
        self.training, self.batch_size, self.lane, self.seed, self.device = training, batch_size, lane, seed, device
        self.sampling, self.repeats, self.bad_limit = sampling, repeats, bad_limit
        self._rows = torch.as_tensor(np.asarray(rows, dtype=np.int64))
        self._labels = torch.as_tensor(source.labels)[self._rows]
        self._finish, self._mix, self._on_bad = finish, mix if training else None, on_bad
        self._known_bad: set[int] = set()
        self._seen = torch.zeros(len(rows), dtype=torch.bool)
        self.position = 0
        self._turn = 0
        workers = default_workers(lane, device) if workers is None else workers
        source.prepare_random_access(keep=cache)
        self._stream: PixelStream | None = PixelStream(
            PictureDataset(source, picture_transform(self.augment, preprocess), seed=seed, pixel_limit=pixel_limit),
            workers=min(workers, self.num_batches),
            pin_memory=device.type == "cuda",
            timeout_s=timeout_s,
        )

    def __repr__(self) -> str:
        return f"WorkerLoader({self.num_batches:,} batches of {self.batch_size:,}; {self.why})"

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from number `start` on. Ends whatever epoch was being read before."""
        self._turn += 1
        self.position = start
        return self._batches(epoch, start, self._turn)

    def close(self) -> None:
        """End the workers."""
        stream, self._stream = self._stream, None
        self._turn += 1
        if stream is not None:
            stream.stop()

    def _batches(self, epoch: int, start: int, turn: int) -> Iterator[Batch]:
        plan = self._plan(epoch)
        number, under_way, has_recovered = start, False, False
        while number < self.num_batches:
            stream = self._stream_for(turn)
            try:
                if not under_way:
                    stream.start(_wanted(plan, range(number, self.num_batches)))
                    under_way = True
                pixels = stream.receive()
                if pixels is None:
                    raise WorkersLostError(f"batch {number} never came")
                if number == self.num_batches - 1:
                    stream.receive()  # there is none: the workers are free for the next epoch
            except WorkersLostError as error:
                stream.stop(kill=True)
                if has_recovered:
                    raise _lost_again(error) from None
                log.warning("%s: started new workers, going on at batch %d of epoch %d", error, number, epoch)
                under_way, has_recovered = False, True
                continue
            number += 1
            self.position = number
            self._seen[plan.rows[plan.places[number - 1]]] = True
            self._record(pixels.bad)
            if len(pixels.kept):
                yield self._batch(plan, plan.places[number - 1], pixels)
            elif self.training and self.lane.world > 1:
                # The other processes would wait for this one for ever.
                raise DataError(
                    f"no picture of process {self.lane.rank}'s part of batch {number - 1} can be decoded",
                    where=f"{pixels.bad[0].where}: {pixels.bad[0].reason}" if pixels.bad else None,
                    fix="mend or remove the pictures, or give a larger batch_size",
                )

    def _stream_for(self, turn: int) -> PixelStream:
        if self._stream is None:
            raise was_closed()
        if turn != self._turn:
            raise was_given_up()
        return self._stream

    def _plan(self, epoch: int) -> _Plan:
        if self.training:
            order = epoch_order(self._labels, seed=self.seed, epoch=epoch, sampling=self.sampling, repeats=self.repeats)
        else:
            order = in_sequence(len(self._rows))
        indices = self._rows[order.rows]
        keys = picture_keys(epoch_key(self.seed, epoch, AUGMENT), indices, order.copies)
        return _Plan(
            epoch,
            [batch_places(i, len(indices), self.batch_size, self.lane) for i in range(self.num_batches)],
            order.rows,
            indices,
            self._labels[order.rows],
            order.copies,
            keys,
            self._mirrored(epoch, indices, keys),
        )

    def _mirrored(self, epoch: int, indices: Tensor, keys: Tensor) -> Tensor:
        """(M,) bool, the same coins as the device loader's."""
        match self.augment.flip if self.augment is not None else "none":
            case "random":
                return random_flips(keys)
            case "alternating":
                return alternating_flips(picture_keys(epoch_key(self.seed, 0, LASTING), indices), torch.tensor(epoch))
        return torch.zeros_like(keys, dtype=torch.bool)

    def _batch(self, plan: _Plan, places: slice, answer: Pixels) -> Batch:
        def here(values: Tensor) -> Tensor:
            return values[places][answer.kept].to(self.device, non_blocking=True)

        keys, labels = here(plan.keys), here(plan.labels)
        images = self._finish(answer.pixels.to(self.device, non_blocking=True), keys)
        if self._mix is not None:
            images, labels = self._mix(images, labels, keys)
        return Batch(images, labels, here(plan.indices))

    def _record(self, bad: list[BadSample]) -> None:
        for sample in bad:
            if sample.index in self._known_bad:
                continue
            self._known_bad.add(sample.index)
            self.bad_samples.append(sample)
            if self._on_bad is not None:
                self._on_bad(sample)
        # Of several processes each sees its part, and in later epochs other parts: it judges by what it has seen.
        pictures = max(int(self._seen.sum()), len(self._rows) // self.lane.world)
        refuse_too_many(self.bad_samples, pictures, self.bad_limit)


def default_workers(lane: Lane, device: torch.device) -> int:
    """A process's share of this machine's CPUs, if every GPU has a process, or without GPUs all run here."""
    here = min(lane.world, torch.cuda.device_count()) if device.type == "cuda" else lane.world
    return max(1, min(usable_cpus() // max(1, here), MOST_WORKERS))


class _Plan(NamedTuple):
    """An epoch, place by place."""

    epoch: int
    places: list[slice]
    """Of each batch, this process's part."""
    rows: Tensor
    """(M,) the pictures' numbers among those that are loaded."""
    indices: Tensor
    """(M,) the pictures' numbers in the source."""
    labels: Tensor
    copies: Tensor
    keys: Tensor
    """(M,) for what is drawn on the device."""
    mirrored: Tensor


def _wanted(plan: _Plan, batches: range) -> Iterator[Wanted]:
    # A function, not a method: the workers' feed must not keep the loader alive.
    for batch in batches:
        places = plan.places[batch]
        yield Wanted(
            plan.epoch, plan.indices[places].tolist(), plan.copies[places].tolist(), plan.mirrored[places].tolist()
        )


def _lost_again(error: WorkersLostError) -> DataError:
    return DataError(
        f"{error}, the second time in this epoch",
        where="the worker processes that decode pictures",
        fix="give fewer workers (--data.workers), more memory, in a container more shared memory (/dev/shm, docker "
        "--shm-size), or where pictures are slow to read more patience (--data.timeout-s)",
    )
