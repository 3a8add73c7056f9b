"""Pictures that cannot be read: said and written down once, whichever process met them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict

from vitscope.core.files import append_line
from vitscope.core.run_folder import RunFolder
from vitscope.data.loaders.loader import BadSample
from vitscope.train.processes import Processes

log = logging.getLogger("vitscope")
OnBad = Callable[[BadSample], None]


def recorder(run: RunFolder | None, say: Callable[[str], None]) -> OnBad:
    """Says which picture is left out and writes it down, once, however many processes met it."""
    known: set[int] = set()

    def record(sample: BadSample) -> None:
        if sample.index in known:
            return
        known.add(sample.index)
        say(f"left out: {sample.where}: {sample.reason}")
        if run is not None:
            append_line(run.bad_samples_path, json.dumps(asdict(sample)))

    return record


def pass_on(processes: Processes, sample: BadSample) -> None:
    """In a process that keeps no record: the first one does."""
    log.warning("left out: %s: %s", sample.where, sample.reason)
    processes.put_up(sample)
