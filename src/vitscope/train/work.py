"""All that takes part in a run, and where it stands."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from vitscope.core.run_folder import RunFolder
from vitscope.data.loaders.loader import BadSample, Batch, Loader
from vitscope.train.checkpoints.store import Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.course import Course
from vitscope.train.evaluate import Evaluation
from vitscope.train.launch import Launcher
from vitscope.train.optim.schedule import Plateau
from vitscope.train.processes import ALONE_PROCESSES, Processes
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState
from vitscope.train.step import AfterStep
from vitscope.train.watch import Watch

log = logging.getLogger("vitscope")


class BetweenSteps(Protocol):
    """Looks at a run from the host, between two steps, and leaves it as it was, random numbers included."""

    def begin(self, work: Work, sample: Callable[[], Batch]) -> None:
        """Before the first step; `sample` gives the first validation batch."""
        ...

    def see(self, work: Work) -> None:
        """A step was launched. Asking the device for a number makes the host wait: not at every step."""
        ...


@dataclass
class Work:
    """`train.setup` puts it together."""

    config: TrainConfig
    run: RunFolder
    state: TrainState
    course: Course
    launcher: Launcher
    checkpoints: Checkpoints
    plateau: Plateau
    watch: Watch
    observers: Observer
    stop: StopFlag
    evaluate: Callable[[], Evaluation | None]
    """On the validation part; None when stopped in the middle."""
    weights: Callable[[], Mapping[str, Tensor]]
    """As they would be used: the running mean, where there is one."""
    loaders: Sequence[Loader]
    """Of training and validation, to be closed."""
    write_model: Callable[[Mapping[str, Tensor], int], None]
    """Write whole weights, and of which step they are, into the run's model folder: for the first process."""
    left_out: Callable[[BadSample], None]
    """Say and write down that a picture is left out; in another process than the first, let that one do it."""
    processes: Processes = ALONE_PROCESSES
    after: Sequence[AfterStep] = ()
    between: Sequence[BetweenSteps] = ()
    steps_per_epoch: int = 1
    split_hash: str = ""
    steps_unread: list[int] = field(default_factory=list)
    """Batch numbers of the steps whose rows are still on the device."""
    rows_unwritten: list[dict[str, Any]] = field(default_factory=list)
    """Rows the disk did not take."""
    clock: float = 0.0
    """When the steps not yet read began."""
    failed_saves: int = 0
    """In a row."""
    saved_step: int | None = None
    """Of the newest checkpoint."""
    status_written: float = 0.0

    @property
    def step(self) -> int:
        """Steps taken so far."""
        return self.course.epoch * self.steps_per_epoch + self.course.batch

    @property
    def hooks_with_state(self) -> list[Any]:
        """What they remember goes into checkpoints, under their names."""
        return [hook for hook in self.after if hasattr(hook, "state_dict")]

    def note_others(self) -> None:
        """Write down which pictures other processes have left out."""
        for sample in self.processes.notes() if self.processes.is_first else ():
            self.left_out(sample)

    def close(self) -> None:
        """Give back the loaders' processes and memory, whatever else fails."""
        with contextlib.ExitStack() as stack:
            for loader in self.loaders:
                stack.callback(loader.close)
            self.note_others()

    def save_model(self) -> None:
        """The weights as they would be used now become the run's model. For all processes."""
        self.processes.by_first_with(self.weights, lambda weights: self.write_model(weights, self.step))


def say(work: Work, text: str) -> None:
    log.info(text)
    work.observers.say(text)
