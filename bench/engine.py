"""What the training engine really did: where something fails it goes on with less, and that is another number."""

from __future__ import annotations

import sys

from vitscope.data.loaders.device import DeviceLoader
from vitscope.train.launch import Launcher


def as_asked(launcher: Launcher, launch: str) -> dict[str, str | int]:
    """Launch and pictures at once after a run. Stops where they are not `launch` and the whole batch."""
    at_once = launcher.state.micro_batch or launcher.batch_size
    loader = launcher.loader
    if launcher.launch != launch:
        sys.exit(f"asked for launch '{launch}', but steps were launched as '{launcher.launch}': nothing is reported")
    if at_once != launcher.batch_size:
        sys.exit(f"a batch of {launcher.batch_size} did not fit, {at_once} at once did: nothing is reported")
    if isinstance(loader, DeviceLoader) and launch.startswith("compiled") and not loader.is_compiled:
        sys.exit("the augmentation could not be compiled: nothing is reported")
    return {"launch": launcher.launch, "micro_batch": at_once}


def say(text: str) -> None:
    """What the engine tells while it runs: beside the results, not among them."""
    print(text, file=sys.stderr, flush=True)
