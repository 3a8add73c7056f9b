"""The processes that train one model together: which one this is, and how they agree.

One process alone is the plain case: it is asked the same questions and answers at once. Several are started by torchrun
and average their gradients through torch's DistributedDataParallel, each with the whole model, or through FSDP2, each
with its shard of it; all of them decide by the same numbers, and the first alone writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from vitscope.core.device import pick_device
from vitscope.core.environment import process_place, processes_here
from vitscope.core.errors import UsageError, VitscopeError, expected
from vitscope.data.order import ALONE, Lane
from vitscope.train.board import Board
from vitscope.train.meeting import meet
from vitscope.train.shards import cut_parameters, gathered, make_mesh

S = TypeVar("S")
T = TypeVar("T")


class LostError(VitscopeError):
    """Another process has gone, and nobody knows why."""


class Processes:
    """One process alone."""

    rank, world = 0, 1
    can_try_again = True
    """Whether a step that failed may be taken again: not while others wait in the middle of it."""
    is_sharded = False
    """Whether each holds only its part of the model: nobody can run it or read its weights without the others."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    @property
    def lane(self) -> Lane:
        """This process's part of every training batch."""
        return ALONE

    def most(self, number: int) -> int:
        """The largest number that any process gives."""
        return number

    def total(self, number: int) -> int:
        """The sum of what the processes give. Waits for their hosts, not for a device."""
        return number

    def mean_(self, *tensors: Tensor) -> None:
        """Each becomes its mean over the processes, in place. No host sync."""

    def by_first(self, call: Callable[[], T]) -> T:
        """What `call` gives or raises in the first process, in all of them. It must be plain data."""
        return call()

    def of_first(self, found: T) -> T:
        """What the first process has found, in all of them. It must be plain data."""
        return self.by_first(lambda: found)

    def by_first_with(self, make: Callable[[], S], call: Callable[[S], T]) -> T:
        """As `by_first`, where `call` needs what `make` gives: a state, whose tensors reach it whole."""
        return call(make())

    def after_first(self, call: Callable[[], T]) -> T:
        """`call` in the first process, then in the others; what it refuses there is refused everywhere."""
        return call()

    def wait(self) -> None:
        """Until all have come this far."""

    def place(self, model: nn.Module, device: torch.device) -> None:
        """Bring the model, or this process's part of it, to the device. Says nothing to the others."""
        model.to(device)

    def share(self, objective: Any) -> None:
        """Let the gradients of `objective.model` be means over the processes."""

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Of all gradients of the model, where these are what this process holds of them. No host sync."""
        return nn.utils.get_total_norm(gradients)

    def together(self) -> AbstractContextManager[None]:
        """Around work in which processes may wait for each other: one that is lost is said to be."""
        return contextlib.nullcontext()

    def adding_up(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Around a micro batch: gradients are exchanged with the last one only."""
        return contextlib.nullcontext()

    def put_up(self, note: Any) -> None:
        """Leave plain data for the first process to read, whenever it does."""

    def notes(self) -> list[Any]:
        """What the others have put up since the last time."""
        return []

    def leave(self, error: BaseException | None = None) -> None:
        """The end of working together, with the error that ends this process, if one does: whoever still waits for it
        reads that."""


ALONE_PROCESSES = Processes(torch.device("cpu"))
"""For whoever is not told of others. Its device is nobody's."""


class JoinedProcesses(Processes):
    """One of several. Each question but `rank`, `world` and `is_first` must be asked by all, in the same order."""

    can_try_again = False
    _board: Board | None = None
    """Where they met. None where others had connected them: then nothing can be left there."""

    def __init__(self, device: torch.device, rank: int, world: int) -> None:
        super().__init__(device)
        self.rank, self.world = rank, world
        self._shared: Any = None
        """The objective whose model is wrapped."""
        self._is_own_group = not distributed.is_initialized()
        if self._is_own_group:
            self._board = Board(meet(device, rank, world), rank, world)

    @property
    def lane(self) -> Lane:
        return Lane(self.rank, self.world)

    def most(self, number: int) -> int:
        return self._of_all(number, distributed.ReduceOp.MAX)

    def total(self, number: int) -> int:
        return self._of_all(number, distributed.ReduceOp.SUM)

    @torch.no_grad()
    def mean_(self, *tensors: Tensor) -> None:
        if not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with self._exchange():
            distributed.all_reduce(flat)
        flat /= self.world
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))

    def by_first(self, call: Callable[[], T]) -> T:
        if not self.is_first:
            return self._hear()
        try:
            found = call()
        except Exception as error:
            self._say(None, _travelling(error, self.rank))
            raise
        self._say(found, None)
        return found

    def by_first_with(self, make: Callable[[], S], call: Callable[[S], T]) -> T:
        return self.by_first(lambda: call(make()))

    def after_first(self, call: Callable[[], T]) -> T:
        if not self.is_first:
            self._hear()
            return call()
        made: list[T] = []
        self.by_first(lambda: made.append(call()))
        return made[0]

    def wait(self) -> None:
        self.most(0)

    def share(self, objective: Any) -> None:
        where = [self.device.index] if self.device.type == "cuda" else None
        objective.model = nn.parallel.DistributedDataParallel(objective.model, device_ids=where)
        self._shared = objective

    def together(self) -> AbstractContextManager[None]:
        return self._naming_the_lost(_is_about_others)

    @contextmanager
    def adding_up(self, *, is_last: bool) -> Iterator[None]:
        alone = contextlib.nullcontext() if is_last or self._shared is None else self._shared.model.no_sync()
        with alone, self.together():
            yield

    def put_up(self, note: Any) -> None:
        if self._board is not None:
            self._board.put_up(note)

    def notes(self) -> list[Any]:
        return [] if self._board is None else self._board.unread()

    def leave(self, error: BaseException | None = None) -> None:
        if self._board is not None and isinstance(error, Exception) and not _is_of_another(error):
            self._board.leave_error(_travelling(error, self.rank))
        if self._shared is not None:  # what is wrapped keeps the others waiting for as long as it lives
            self._shared.model = self._shared.model.module
            self._shared = None
        if self._is_own_group and distributed.is_initialized():
            with contextlib.suppress(RuntimeError):
                distributed.destroy_process_group()

    def _say(self, found: Any, error: VitscopeError | None) -> None:
        with self._exchange():
            distributed.broadcast_object_list([found, error], src=0)

    def _hear(self) -> Any:
        heard: list[Any] = [None, None]
        with self._exchange():
            distributed.broadcast_object_list(heard, src=0)
        found, error = heard
        if error is not None:
            error.was_said = True
            raise error
        return found

    def _of_all(self, number: int, how: Any) -> int:
        found = torch.tensor([number])
        with self._exchange():
            distributed.all_reduce(found, how)
        return int(found)

    def _exchange(self) -> AbstractContextManager[None]:
        """Around nothing but an exchange with the others: whatever fails in it is about them."""
        return self._naming_the_lost(lambda error: True)

    @contextmanager
    def _naming_the_lost(self, is_about_others: Callable[[RuntimeError], bool]) -> Iterator[None]:
        """A lost process becomes an error a person can understand."""
        try:
            yield
        except RuntimeError as error:
            if not is_about_others(error):
                raise
            raise self._why_lost() from error

    def _why_lost(self) -> VitscopeError:
        """The error another process ended with, where it left one; it has said it itself."""
        left = None if self._board is None else self._board.error_left()
        if left is None:
            lost: VitscopeError = LostError(
                f"process {self.rank} of {self.world} has lost the others: one has ended without a word, or cannot be "
                "reached",
                where="torch.distributed; what the connection said stands in train.log",
                fix="see what the process that ended first says; continue with --resume",
            )
            return lost
        rank, error = left
        error.what = f"process {rank}: {error.what}"
        error.was_said = True
        return error


class ShardedProcesses(JoinedProcesses):
    """One of several that hold weights, gradients, optimiser and running mean together, each its rows of every tensor.
    A forward pass is for all of them, in the same order."""

    is_sharded = True

    def __init__(self, device: torch.device, rank: int, world: int) -> None:
        super().__init__(device, rank, world)
        with self._exchange():
            self._mesh = make_mesh(device, world)

    def place(self, model: nn.Module, device: torch.device) -> None:
        cut_parameters(model, self._mesh)

    def share(self, objective: Any) -> None:
        """They are already: each backward pass leaves every process its rows of the mean."""

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        own = super().norm(gradients)
        squares = own.double().square()  # in float32, a norm above 1e19 would be infinite
        with self._exchange():
            distributed.all_reduce(squares)
        return squares.sqrt().to(own.dtype)

    def by_first_with(self, make: Callable[[], S], call: Callable[[S], T]) -> T:
        with self.together():
            whole = gathered(make(), keeps=self.is_first)
        return self.by_first(lambda: call(whole))


def join(wish: str, parallel: str = "ddp") -> Processes:
    """Meet the other processes, if torchrun has started any, with the device that is wished for; else stay alone.
    `parallel` is what each of several holds: the model (ddp), or its shard of it (fsdp)."""
    rank, local_rank, world = process_place()
    if world == 1:
        return Processes(pick_device(wish))
    kind = pick_device(wish)
    if kind.type == "mps" or kind.index is not None:
        raise UsageError(
            f"{world} processes cannot train on the one device '{kind}'",
            where="--device",
            fix="give --device cuda (each process takes a GPU of its own) or --device cpu",
        )
    if kind.type == "cuda":
        gpus = torch.cuda.device_count()
        if processes_here() > gpus:
            raise UsageError(
                expected("processes on this machine", f"{gpus} at most, one for each GPU", processes_here()),
                where="torchrun",
                fix=f"give --nproc-per-node {gpus}, or --device cpu",
            )
        kind = torch.device("cuda", local_rank)
        torch.cuda.set_device(kind)
    return ShardedProcesses(kind, rank, world) if parallel == "fsdp" else JoinedProcesses(kind, rank, world)


def _is_about_others(error: RuntimeError) -> bool:
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


def _is_of_another(error: Exception) -> bool:
    """Whether it was heard from another process, or is that one was lost."""
    return isinstance(error, LostError) or (isinstance(error, VitscopeError) and error.was_said)


def _travelling(error: Exception, rank: int) -> VitscopeError:
    """What the other processes are told of an error: all of one a person can mend, else one line."""
    if isinstance(error, VitscopeError):
        return error
    return VitscopeError(f"process {rank} failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
