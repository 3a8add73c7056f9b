"""How steps are launched: kernel by kernel, through `torch.compile`, or as one CUDA graph of a whole step.

Whatever fails before the update (no memory, no compiler) leaves everything as it was, so the step is tried again: with
half the pictures at once, or launched plainly.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from vitscope.core.cuda_graph import index_of, record
from vitscope.core.errors import VitscopeError
from vitscope.core.seed import derive_seed
from vitscope.data.loaders.device import DeviceLoader
from vitscope.data.loaders.loader import Loader
from vitscope.train.memory import is_out_of_memory
from vitscope.train.state import TrainState
from vitscope.train.step import AfterStep, LossAndLogits, train_step

WORTH_COMPILING = 2e15
"""Multiply-adds, forward and backward: about two minutes of a small ViT on an H200 as a graph of plain kernels."""


def choose_launch(wish: str, device: torch.device, *, work: float = 0.0, alone: bool = True) -> str:
    """`auto` decided; what a device cannot do is left out. Several processes launch kernel by kernel. `work`: the
    multiply-adds of the whole run. Compiling takes half a minute and up to three quarters off what comes after."""
    if not alone:
        return "eager"
    if wish == "auto":
        if device.type != "cuda":
            return "eager"
        return "compiled_graph" if work >= WORTH_COMPILING else "graph"
    if device.type != "cuda":
        return {"graph": "eager", "compiled_graph": "compiled"}.get(wish, wish)
    return wish


def seed_step(seed: int, epoch: int, batch: int, rank: int = 0) -> None:
    """What process `rank` drops in a step; the first drops as one process alone does."""
    torch.manual_seed(derive_seed(seed, "step", epoch, batch, *((rank,) if rank else ())))


class Launcher:
    """Takes the steps of an epoch, one by one."""

    def __init__(
        self,
        state: TrainState,
        loader: Loader,
        objective: LossAndLogits,
        *,
        launch: str,
        batch_size: int,
        seed: int,
        after: Sequence[AfterStep] = (),
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.state, self.loader, self.after = state, loader, after
        self.batch_size, self.seed, self.say = batch_size, seed, say
        self.launch = launch
        self.objective = objective
        self._objective: LossAndLogits = torch.compile(objective) if launch.startswith("compiled") else objective
        self._prove_loader()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, Tensor] | None = None
        """Where a captured step reads its batch, if it does not draw it itself."""

    def epoch(self, epoch: int, start: int) -> Iterator[int]:
        """Take an epoch's steps from batch `start` on. After each, the number of the batch that comes next."""
        if self.launch.endswith("graph") and isinstance(self.loader, DeviceLoader):
            self._capture_drawing(self.loader, epoch, start)
            if self._graph is not None:
                yield from self._replay(self._graph, self.loader, epoch, start)
                return
        for images, labels, _ in self.loader.epoch(epoch, start):
            address = epoch, self.loader.position - 1
            if self.launch.endswith("graph") and len(images) == self.batch_size:
                self._attempt(lambda i=images, y=labels, a=address: self._step_in_graph(i, y, a))
            else:
                self._attempt(lambda i=images, y=labels, a=address: self._step(i, y, a))
            yield self.loader.position

    def _step(self, images: Tensor, labels: Tensor, address: tuple[int, int]) -> None:
        self.seed_step(*address)
        train_step(self.state, images, labels, objective=self._objective, after=self.after)

    def seed_step(self, epoch: int, batch: int) -> None:
        """Dropout and drop path are functions of (seed, epoch, batch) too: nothing of any generator has to be saved.
        A captured graph reads its generator's seed anew at every replay. Of several processes each drops others."""
        seed_step(self.seed, epoch, batch, self.state.processes.rank)

    # --- CUDA graphs --------------------------------------------------------------------------------------------

    def _capture_drawing(self, loader: DeviceLoader, epoch: int, start: int) -> None:
        """Capture augmentation and step together: then an epoch needs nothing of Python but the replays."""

        def draw_and_step() -> None:
            images, labels, _ = loader.draw()
            train_step(self.state, images, labels, objective=self._objective, after=self.after)

        def begin_and_capture() -> None:
            if self._graph is None and self.launch.endswith("graph"):
                loader.begin(epoch, start)
                self._graph = self._captured(draw_and_step)

        self._attempt(begin_and_capture)

    def _replay(self, graph: torch.cuda.CUDAGraph, loader: DeviceLoader, epoch: int, start: int) -> Iterator[int]:
        loader.begin(epoch, start)
        for batch in range(start, loader.num_batches):
            self.seed_step(epoch, batch)
            graph.replay()
            yield batch + 1

    def _step_in_graph(self, images: Tensor, labels: Tensor, address: tuple[int, int]) -> None:
        """The batch was made outside: copy it to where the captured step reads."""
        if not self.launch.endswith("graph"):
            return self._step(images, labels, address)
        if self._graph is None or self._inputs is None:
            self._inputs = images.clone(), labels.clone()
            inputs = self._inputs
            self._graph = self._captured(
                lambda: train_step(self.state, *inputs, objective=self._objective, after=self.after)
            )
        for held, given in zip(self._inputs, (images, labels), strict=True):
            held.copy_(given)
        self.seed_step(*address)
        return self._graph.replay()

    def _captured(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """`work` as a graph. It is warmed up with held steps, which change nothing."""
        state, pool = self.state, torch.cuda.graph_pool_handle()
        state.hold.fill_(1.0)
        try:
            graph, _ = record(work, state.device, pool=pool)
        except Exception:
            _fresh_generator(state.device)
            _end_pool(state.device, pool)
            raise
        finally:
            state.hold.fill_(0.0)
            state.is_updating = False  # a held step that failed half-way has changed nothing
        self.say(f"a step is one CUDA graph{' of compiled kernels' if self.launch == 'compiled_graph' else ''}")
        return graph

    # --- what may fail ------------------------------------------------------------------------------------------

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do it, if need be with fewer pictures at once or launched more plainly."""
        while True:
            try:
                return work()
            except Exception as error:
                if self.state.is_updating or not self._can_help(error):
                    if is_out_of_memory(error) and not self.state.processes.can_try_again:
                        raise self._too_many_at_once() from error
                    raise
                is_full, reason = is_out_of_memory(error), _in_a_line(error)
                cannot_compile = _is_about_compiling(error)
            # Only here are the frames gone that held the failed step's memory.
            self._forget()
            if is_full:
                self._halve(reason)
            else:
                self._launch_plainly(reason, cannot_compile=cannot_compile)

    def _prove_loader(self) -> None:
        """A compiled loader is tried once, before anything depends on it."""
        if not (self.launch.startswith("compiled") and isinstance(self.loader, DeviceLoader)):
            return
        try:
            self.loader.begin(0)
            self.loader.draw()
        except Exception as error:
            if is_out_of_memory(error):  # made plainly, a batch needs no less
                raise VitscopeError(
                    f"out of memory in the augmentation of a batch of {self.batch_size:,}",
                    where=f"the device loader on {self.state.device}: {_in_a_line(error)}",
                    fix="--data.loader worker, which keeps no pictures there, or a smaller --batch-size",
                ) from error
            self.loader.make_plainly()
            self.say(f"augmentation cannot be compiled here ({_in_a_line(error)}): it goes on plainly")

    def _can_help(self, error: Exception) -> bool:
        if not self.state.processes.can_try_again:
            return False
        return is_out_of_memory(error) or (self.launch != "eager" and not isinstance(error, VitscopeError))

    def _too_many_at_once(self) -> VitscopeError:
        """While other processes wait for this one's gradients, a step cannot begin anew with fewer."""
        processes = self.state.processes
        at_once = min(self.state.micro_batch or self.batch_size, self.batch_size // processes.world)
        return VitscopeError(
            f"out of memory with {at_once} pictures at once in process {processes.rank} of {processes.world}",
            where=f"a training step on {self.state.device}",
            fix=f"continue with --resume --loop.micro-batch {max(at_once // 2, 1)}",
        )

    def _forget(self) -> None:
        self.state.optimizer.zero_grad()
        self.state.restore_buffers()
        self._graph = self._inputs = None
        gc.collect()
        if self.state.device.type == "cuda":
            torch.cuda.empty_cache()

    def _halve(self, reason: str) -> None:
        old = self.state.micro_batch or self.batch_size
        if old <= 1:
            raise VitscopeError(
                "out of memory with one picture at a time",
                where=f"a training step on {self.state.device} ({reason})",
                fix="--precision.grad-checkpointing, --precision.dtype bf16, or a smaller model or img_size",
            )
        new = (old + 1) // 2
        self.state.micro_batch = new
        self.say(
            f"out of memory with {old} pictures at once: going on with micro_batch {new}, "
            f"{-(-self.batch_size // new)} parts; the batch stays {self.batch_size}"
        )

    def _launch_plainly(self, reason: str, *, cannot_compile: bool) -> None:
        """Of two means only the one goes that failed."""
        was = self.launch
        self.launch = ("graph" if cannot_compile else "compiled") if was == "compiled_graph" else "eager"
        if not self.launch.startswith("compiled"):
            self._objective = self.objective
            if isinstance(self.loader, DeviceLoader):
                self.loader.make_plainly()
        self.say(f"launch '{was}' does not work here ({reason}): going on with '{self.launch}'")


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _is_about_compiling(error: Exception) -> bool:
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "triton"))


def _fresh_generator(device: torch.device) -> None:
    """A capture that fails leaves torch's generator waiting for its end, and every dropout after it fails too. It gets
    another state in its place; the next step seeds it anyway."""
    torch.cuda.default_generators[index_of(device)].graphsafe_set_state(torch.Generator(device).graphsafe_get_state())


def _end_pool(device: torch.device, pool: tuple[int, int]) -> None:
    """It leaves torch's allocator waiting too, which then gives nothing back to the GPU as long as the process lives: a
    batch that does not fit would not fit in parts either. There is no public call for it."""
    with contextlib.suppress(Exception):  # where the capture was not begun, or did end, there is nothing to end
        torch.cuda.memory._cuda_endAllocateToPool(index_of(device), pool)  # pyright: ignore[reportPrivateImportUsage]
        torch.cuda.memory._cuda_releasePool(index_of(device), pool)  # pyright: ignore[reportPrivateImportUsage]
