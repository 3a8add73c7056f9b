"""Two processes, or more, that train together: forked ready-made as torchrun would start them, or by torchrun itself.

Run as a script, this file is what torchrun starts: it starts `vitscope` in its turn and notes its exit code, which
torchrun does not always tell.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ != "__main__":
    from faults.train_process import ENVIRONMENT, Child, Ended, Trap, _new_folder, start_warm, write_settings

WORLD = 2
BOTH = (0, 1)


def start_together(
    *args: str, traps: tuple[Trap, ...] = (), trapped: tuple[int, ...] = BOTH, world: int = WORLD
) -> list[Child]:
    """`vitscope train ARGS` in processes that meet; those in `trapped` have the traps."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    return [
        start_warm(
            *args,
            traps=traps if rank in trapped else (),
            environment={**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]


def train_together(
    *args: str, traps: tuple[Trap, ...] = (), trapped: tuple[int, ...] = BOTH, world: int = WORLD
) -> list[Ended]:
    return [child.wait() for child in start_together(*args, traps=traps, trapped=trapped, world=world)]


@functools.cache
def together_uninterrupted(*args: str) -> Path:
    """The folder of a run of two processes that nobody disturbed."""
    folder = _new_folder()
    ended = train_together(str(write_settings(folder / "settings.yaml")), "--out", str(folder / "run"), *args)
    if [one.code for one in ended] != [0, 0]:
        raise AssertionError(f"undisturbed: {ended[0]}\n{ended[1]}")
    return folder / "run"


def start_torchrun(*args: str, verb: str = "train") -> tuple[Child, Path]:
    """`torchrun ... vitscope VERB ARGS`, and the folder in which each process's number and exit code will stand."""
    papers, notes = _new_folder(), Path(tempfile.mkdtemp(dir=_new_folder()))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD), __file__, str(notes)]
    with (papers / "out").open("wb") as out, (papers / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, *launcher, verb, *args],
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )
    return Child(process.pid, papers, process), notes


def noted(notes: Path, what: str) -> list[int]:
    """`pid` or `code` of each process."""
    return [int((notes / f"{what}-{rank}").read_text()) for rank in range(WORLD)]


def _run_and_note(notes: Path, args: list[str]) -> int:
    rank = os.environ["RANK"]
    child = subprocess.Popen([sys.executable, "-m", "vitscope", *args])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # torchrun signals the process group, and so the child itself
    (notes / f"pid-{rank}").write_text(str(child.pid))
    code = child.wait()
    (notes / f"code-{rank}").write_text(str(code))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(_run_and_note(Path(sys.argv[1]), sys.argv[2:]))
