"""Runs the commands of a plan side by side on one device, within a time; the same call again goes on where it ended.

    python bench/side_by_side.py bench/plans/cifar10_sparse.txt --out runs/cifar10 --at-once 3 --mps
    python bench/side_by_side.py bench/plans/cifar10_sparse.txt --out runs/cifar10 --limit-seconds 560

A plan is a text file with a shell command a line, run in --out. A command must go on where it was when it is given
again, as `vitscope train --resume` and `vitscope sparsify --resume` do: what the limit finds at work is sent SIGTERM,
and saves itself. A line `---` waits until everything above has succeeded; # begins a comment. Logs lie in --out/logs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NOTE = "side_by_side.json"
"""In --out: how long each command took so far, and which have succeeded: these are not run again."""
BARRIER = "---"
LOOK_SECONDS, TELL_SECONDS, SAVE_SECONDS = 0.5, 30.0, 60.0


@dataclass
class Job:
    """A command at work."""

    command: str
    log: Path
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)

    def last_line(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1].strip() if lines else ""

    def is_over(self) -> bool:
        """The command and all it started: a shell dies of a signal that the program in it answers by saving."""
        return self.process.poll() is not None and not self.send(0)

    def send(self, number: int) -> bool:
        """To the command and what it started; False where nobody is left."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True


def stages(plan: str) -> list[list[str]]:
    """Commands in groups; each waits for the one before."""
    found: list[list[str]] = [[]]
    for line in plan.splitlines():
        text = line.strip()
        if text == BARRIER:
            found.append([])
        elif text and not text.startswith("#"):
            found[-1].append(text)
    return [stage for stage in found if stage]


def numbered(plan: Sequence[Sequence[str]]) -> dict[str, str]:
    """A command's name for its log: its place in the plan."""
    commands = [command for stage in plan for command in stage]
    if len(set(commands)) < len(commands):
        twice = next(command for command in commands if commands.count(command) > 1)
        raise SystemExit(f"the plan has a command twice, which would write into one folder at once: {twice}")
    return {command: f"{number:02d}" for number, command in enumerate(commands, start=1)}


class Plan:
    """What is to be done, what is done, and what failed."""

    def __init__(self, text: str, out: Path) -> None:
        self.stages, self.out = stages(text), out
        self.names = numbered(self.stages)
        self.note = out / NOTE
        known = json.loads(self.note.read_text(encoding="utf-8")) if self.note.exists() else {"seconds": {}, "done": []}
        self.seconds: dict[str, float] = known["seconds"]
        self.done: list[str] = known["done"]
        self.failed: list[str] = []

    def waiting(self, at_work: Sequence[Job]) -> Iterator[str]:
        """Of the first group that is not done: what is neither done, nor failed, nor at work."""
        taken = {*(job.command for job in at_work), *self.done, *self.failed}
        for stage in self.stages:
            if not all(command in self.done for command in stage):
                yield from (command for command in stage if command not in taken)
                return

    def start(self, command: str) -> Job:
        log = self.out / "logs" / f"{self.names[command]}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        tell(f"{self.names[command]} begins: {command}")
        with log.open("ab") as sink:
            process = subprocess.Popen(
                command, shell=True, cwd=self.out, stdout=sink, stderr=sink, start_new_session=True
            )
        return Job(command, log, process)

    def end(self, job: Job, *, stopped: bool) -> None:
        code, took = job.process.wait(), time.monotonic() - job.began
        name = self.names[job.command]
        self.seconds[job.command] = took = self.seconds.get(job.command, 0.0) + took
        if code == 0:
            self.done.append(job.command)
            tell(f"{name} is done, {took:.0f} s")
        elif stopped:
            tell(f"{name} is stopped (exit {code}), {took:.0f} s: {job.last_line()}")
        else:
            self.failed.append(job.command)
            tell(f"{name} failed (exit {code}), {took:.0f} s: {job.last_line()}; all of it in {job.log}")
        self.note.write_text(json.dumps({"seconds": self.seconds, "done": self.done}, indent=1), encoding="utf-8")

    def table(self) -> str:
        lines = ["| | state | seconds | command |", "|---|---|---:|---|"]
        for command, name in self.names.items():
            state = "done" if command in self.done else "failed" if command in self.failed else "to do"
            took = f"{self.seconds[command]:.0f}" if command in self.seconds else ""
            lines.append(f"| {name} | {state} | {took} | `{command}` |")
        return "\n".join(lines)


def run(plan: Plan, *, at_once: int, limit_seconds: float) -> None:
    """Everything, or as much as there is time for."""
    began = told = time.monotonic()
    jobs: list[Job] = []
    try:
        while time.monotonic() - began < limit_seconds:
            for job in [job for job in jobs if job.is_over()]:
                jobs.remove(job)
                plan.end(job, stopped=False)
            for command in list(plan.waiting(jobs))[: at_once - len(jobs)]:
                jobs.append(plan.start(command))
            if not jobs:
                return
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                for job in jobs:
                    tell(f"{plan.names[job.command]}: {job.last_line()}")
            time.sleep(LOOK_SECONDS)
        tell(f"{limit_seconds:.0f} s are over")
    finally:
        stop(plan, jobs)


def stop(plan: Plan, jobs: Sequence[Job]) -> None:
    """All are asked at once, and have a while to save themselves."""
    for job in jobs:
        job.send(signal.SIGTERM)
    patience = time.monotonic() + SAVE_SECONDS
    for job in jobs:
        while not job.is_over() and time.monotonic() < patience:
            time.sleep(LOOK_SECONDS)
        if not job.is_over():
            tell(f"{plan.names[job.command]} did not end in {SAVE_SECONDS:.0f} s and is killed")
            job.send(signal.SIGKILL)
        plan.end(job, stopped=True)


@contextlib.contextmanager
def multi_process_service(*, wanted: bool) -> Iterator[None]:
    """NVIDIA's daemon that lets kernels of several processes run at the same time, rather than in turns."""
    control = shutil.which("nvidia-cuda-mps-control")
    if wanted and control is None:
        raise SystemExit("--mps: there is no nvidia-cuda-mps-control on this machine; leave the flag out")
    if not wanted or control is None:
        yield
        return
    subprocess.run([control, "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run([control], input=b"quit\n", check=False)


def tell(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="where commands run and logs are kept")
    parser.add_argument("--at-once", type=int, default=3, help="commands at the same time")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="stop what is at work after so many")
    parser.add_argument("--mps", action="store_true", help="share the GPU through NVIDIA's multi-process service")
    wish = parser.parse_args()
    if wish.at_once < 1:
        parser.error(f"--at-once: expected 1 or more, received {wish.at_once}")
    wish.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(wish.plan.read_text(encoding="utf-8"), wish.out.resolve())
    for number in (signal.SIGINT, signal.SIGTERM):  # the same way out as the limit's: everything is saved
        signal.signal(number, lambda code, _: sys.exit(128 + code))
    with multi_process_service(wanted=wish.mps):
        run(plan, at_once=wish.at_once, limit_seconds=wish.limit_seconds)
    print(plan.table())
    sys.exit(1 if plan.failed else 0)


if __name__ == "__main__":
    main()
