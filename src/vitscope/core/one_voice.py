"""Processes that torchrun starts read the same words and refuse the same ones: before they have met, who says so?"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

from vitscope.core.environment import process_place
from vitscope.core.errors import VitscopeError

WAIT_SECONDS = 10.0
"""A process that has torch takes up to three to end on a busy machine."""


@contextlib.contextmanager
def in_one_voice(is_asked_to_leave: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Around what is found before processes have met. The first of a machine says an error at once and leaves;
    torchrun then sends SIGTERM to the others, and whoever has found an error meanwhile leaves without a word. Who waits
    for that in vain has an error of its own, and says it. `is_asked_to_leave`: whether SIGTERM has come already."""
    try:
        yield
    except VitscopeError as error:
        _, local_rank, _ = process_place()
        error.was_said = error.was_said or (local_rank > 0 and _another_has_left(is_asked_to_leave))
        raise


def _another_has_left(is_asked_to_leave: Callable[[], bool]) -> bool:
    if threading.current_thread() is not threading.main_thread():  # where Python hears no signals
        return False
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    until = time.monotonic() + WAIT_SECONDS
    try:
        while not heard and not is_asked_to_leave() and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        signal.signal(signal.SIGTERM, before)
    return bool(heard) or is_asked_to_leave()
