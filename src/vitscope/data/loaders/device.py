"""The device loader: all pictures lie on the device as bytes; order and augmentation are computed there, in batches.

For sets that fit. Nothing is copied, no process helps, and one batch costs a few fused kernels. `draw` reads and moves
only tensors that stay where they are, so it can be captured in a CUDA graph together with the training step; `begin`
refills them between epochs.

N pictures of this part, M places in an epoch, b pictures of this process per batch, C H W.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from vitscope.data.draws import epoch_key, picture_keys
from vitscope.data.loaders.loader import AUGMENT, LASTING, BadSample, Batch, was_closed, was_given_up
from vitscope.data.mix import Mixer
from vitscope.data.order import ALONE, Lane, batch_count, batch_places, epoch_order, in_sequence, refuse_batch
from vitscope.data.transforms.batch import BatchTransform
from vitscope.data.transforms.settle import settled


class DeviceLoader:
    """Implements `Loader`."""

    def __init__(
        self,
        pictures: Tensor,
        labels: Tensor,
        indices: Tensor,
        *,
        transform: BatchTransform,
        mixer: Mixer | None = None,
        batch_size: int,
        seed: int,
        training: bool,
        lane: Lane = ALONE,
        sampling: str = "shuffled",
        repeats: int = 1,
        compiled: bool = False,
        why: str = "",
        bad_samples: Sequence[BadSample] = (),
    ) -> None:
        """`pictures` (N, C, H, W) uint8, `labels` (N,) and `indices` (N,), their numbers in the source, decide the
        device. `compiled`: the batch is made by `torch.compile`."""
        if training:
            refuse_batch(len(pictures), batch_size, lane)
        device = pictures.device
        self.pictures, self.labels, self.indices = pictures, labels.to(device), indices.to(device)
        self.transform, self.mixer = transform, mixer if training else None
        self.batch_size, self.seed, self.training, self.lane = batch_size, seed, training, lane
        self.sampling, self.repeats = sampling, repeats
        self.why = why
        self.bad_samples = list(bad_samples)
        self.num_pictures = len(pictures)
        self.num_batches = batch_count(len(pictures), batch_size, training=training)
        # What `draw` reads: the same tensors for ever, with new content each epoch.
        self._rows = torch.zeros(len(pictures), dtype=torch.int64, device=device)
        self._copies = torch.zeros_like(self._rows)
        self._key = torch.zeros((), dtype=torch.int64, device=device)
        self._epoch = torch.zeros_like(self._key)
        self._cursor = torch.zeros_like(self._key)
        self._own = self._own_places(device)
        self._lasting_key = epoch_key(seed, 0, LASTING)
        self._made: Callable[[Tensor], Batch] = _compiled(self) if compiled else self._make
        self.is_compiled = compiled
        self.position = 0
        self._turn = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"DeviceLoader({self.num_batches:,} batches of {self.batch_size:,}; {self.why})"

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from number `start` on. Ends whatever epoch was being read before."""
        if self._is_closed:
            raise was_closed()
        self._turn += 1
        self.begin(epoch, start)
        return self._batches(start, self._turn)

    def _batches(self, start: int, turn: int) -> Iterator[Batch]:
        for batch in range(start, self.num_batches):
            if turn != self._turn:
                raise was_closed() if self._is_closed else was_given_up()
            self.position = batch + 1
            if self.training:
                yield self.draw()
                continue
            places = batch_places(batch, self.num_pictures, self.batch_size, self.lane)
            if places.stop > places.start:
                yield self._make(torch.arange(places.start, places.stop, device=self._rows.device))

    def begin(self, epoch: int, start: int = 0) -> None:
        """Set order, keys and the place to draw from."""
        if self.training:
            order = epoch_order(self.labels, seed=self.seed, epoch=epoch, sampling=self.sampling, repeats=self.repeats)
        else:
            order = in_sequence(len(self.labels), self.labels.device)
        self._rows.copy_(order.rows)
        self._copies.copy_(order.copies)
        self._key.fill_(epoch_key(self.seed, epoch, AUGMENT))
        self._epoch.fill_(epoch)
        self._cursor.fill_(start * self.batch_size)
        self.position = start

    def draw(self) -> Batch:
        """The next training batch. No host sync; after `begin`, at most `num_batches` times (then the last picture
        comes again and again: a captured step must not run into a device assert)."""
        batch = self._made((self._cursor + self._own).clamp(max=len(self._rows) - 1))
        self._cursor += self.batch_size
        return batch

    def make_plainly(self) -> None:
        """Make batches without `torch.compile` from now on."""
        self._made = self._make
        self.is_compiled = False

    def close(self) -> None:
        """Give the memory back. A captured graph that draws must not be replayed after it."""
        self._turn += 1
        self._is_closed = True
        self.pictures = self.pictures.new_zeros((0, *self.pictures.shape[1:]))

    def _make(self, places: Tensor) -> Batch:
        rows = self._rows[places]
        indices = self.indices[rows]
        keys = settled(picture_keys(self._key, indices, self._copies[places]))
        lasting_keys = settled(picture_keys(self._lasting_key, indices))
        pictures = self.transform.vary(self.pictures[rows], keys, lasting_keys, self._epoch)
        images = self.transform.finish(pictures, keys)
        labels = self.labels[rows]
        if self.mixer is not None:
            images, labels = self.mixer(images, labels, keys)
        return Batch(images, labels, indices)

    def _own_places(self, device: torch.device) -> Tensor:
        own = batch_places(0, self.batch_size, self.batch_size, self.lane)
        return torch.arange(own.start, own.stop, device=device)


def _compiled(loader: DeviceLoader) -> Callable[[Tensor], Batch]:
    """`loader._make`, compiled as a function of its own: torch counts compilations by the code object, and gives up
    on the eighth of one and the same."""
    plain = DeviceLoader._make
    own = types.FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__)
    return torch.compile(types.MethodType(own, loader), fullgraph=True, dynamic=False)
