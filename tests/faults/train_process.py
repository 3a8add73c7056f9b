"""Training in processes of their own, to be killed and continued: starting them, hitting them, comparing what is left.

`start` begins `vitscope train` as a person does. Importing torch is most of what a small run costs, so most cases use
`start_warm`: a process that has imported everything forks one that runs the same command line, a real process with a
process group, signals and exit code of its own, though it draws no pictures: they would be most of what is left. A
`Trap` sends it a signal at an exact point of its work.

Run as a script, this file is that process.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 60.0
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_CBWR": "COMPATIBLE"}
"""One thread and one way through the kernels: sums are added in one order."""
WARM_IMPORTS = ("vitscope.cli.train", "vitscope.train.fit", "sklearn.datasets", "tyro", "tensorboard.summary.writer")

SETTINGS: dict[str, Any] = {
    "model": {
        "family": "vit",
        "img_size": 8,
        "patch_size": 2,
        "in_chans": 1,
        "embed_dim": 16,
        "depth": 2,
        "num_heads": 2,
        "drop_rate": 0.1,
        "drop_path_rate": 0.2,
    },
    "data": {"name": "digits", "batch_size": 72, "loader": "device"},
    "augment": {"crop": "padded", "padding": 1, "rotate_degrees": 10.0, "mixup_alpha": 0.4, "cutmix_alpha": 1.0},
    "optim": {"lr": 3e-3},
    "schedule": {"warmup": "5 steps"},
    "loop": {"epochs": 2, "device": "cpu", "ema_decay": 0.95, "monitor": "val/loss"},
    "checkpoint": {"every_steps": 4},
}
STEPS_PER_EPOCH = 16
STEPS = 2 * STEPS_PER_EPOCH
"""1,222 training pictures in batches of 72, the rest left out, twice."""


@dataclass(frozen=True)
class Trap:
    """Just before the `call`-th call (from 1) of `function` in `place` (a module, or a class in one), the process sends
    itself `signals`."""

    place: str
    function: str
    call: int = 1
    signals: tuple[int, ...] = (signal.SIGKILL,)

    def set(self) -> None:
        module, _, cls = self.place.rpartition(".")
        place = getattr(importlib.import_module(module), cls)
        original, calls = getattr(place, self.function), 0

        def trapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == self.call:
                for number in self.signals:
                    os.kill(os.getpid(), number)
            return original(*args, **kwargs)

        setattr(place, self.function, trapped)


@dataclass(frozen=True)
class Ended:
    """What is left of a process."""

    code: int
    """Exit code; minus the signal's number where that ended it."""
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


@dataclass(frozen=True)
class Child:
    """A process at work. `pid` is also its process group."""

    pid: int
    papers: Path
    """Where its standard output, standard error and exit code go."""
    process: subprocess.Popen[bytes] | None = None

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def send_to_all(self, number: int) -> None:
        """As a terminal does: to the process and its loader workers alike."""
        os.killpg(self.pid, number)

    def wait(self) -> Ended:
        if self.process is not None:
            code = self.process.wait(LIMIT_S)
        else:
            code_file = self.papers / "code"
            _wait_until(code_file.exists, "the process to end")
            code = int(code_file.read_text())
        return Ended(code, *((self.papers / name).read_text() for name in ("out", "err")))

    def wait_for_step(self, run: Path, step: int) -> None:
        """Until the run's metrics hold this step."""
        metrics, wanted = run / "metrics.jsonl", f'{{"step": {step},'.encode()

        def is_there() -> bool:
            if self.has_ended():
                raise AssertionError(f"it ended before step {step}: {self.wait()}")
            return metrics.exists() and wanted in metrics.read_bytes()

        _wait_until(is_there, f"step {step}")

    def has_ended(self) -> bool:
        return self.process.poll() is not None if self.process is not None else (self.papers / "code").exists()


def start(*args: str) -> Child:
    """`vitscope train ARGS`, from nothing."""
    papers = _new_folder()
    with (papers / "out").open("wb") as out, (papers / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "vitscope", "train", *args],
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )
    return Child(process.pid, papers, process)


def start_warm(*args: str, traps: tuple[Trap, ...] = (), environment: Mapping[str, str] | None = None) -> Child:
    """`vitscope train ARGS` in a process that need not import torch, with `traps` set."""
    papers = _new_folder()
    order = {
        "args": ["train", *args],
        "papers": str(papers),
        "traps": [asdict(trap) for trap in traps],
        "environment": dict(environment or {}),
    }
    return Child(_forker().ask(order), papers)


def train(*args: str, traps: tuple[Trap, ...] = ()) -> Ended:
    return start_warm(*args, traps=traps).wait()


@functools.cache
def uninterrupted(*args: str) -> Path:
    """The folder of a run nobody disturbed; made once for all tests."""
    folder = _new_folder()
    done = train(str(write_settings(folder / "settings.yaml")), "--out", str(folder / "run"), *args)
    if done.code != 0:
        raise AssertionError(f"undisturbed: {done}")
    return folder / "run"


def stopped(folder: Path, step: int) -> None:
    """A run in `folder`/run that SIGTERM has stopped after `step`, and its settings beside it."""
    trap = Trap("vitscope.train.launch", "train_step", step, (signal.SIGTERM,))
    ended = train(str(write_settings(folder / "settings.yaml")), "--out", str(folder / "run"), traps=(trap,))
    if ended.code != 143:
        raise AssertionError(f"not stopped: {ended}")


def write_settings(path: Path, changes: Mapping[str, Mapping[str, Any]] | None = None) -> Path:
    """SETTINGS with some changed, as YAML (of which JSON is a part)."""
    merged = {section: dict(settings) for section, settings in SETTINGS.items()}
    for section, settings in (changes or {}).items():
        merged.setdefault(section, {}).update(settings)
    path.write_text(json.dumps(merged))
    return path


# --- what a run left -----------------------------------------------------------------------------------------------


def rows(run: Path) -> list[dict[str, Any]]:
    """The metrics without what a clock decides."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if key not in ("time", "train/images_per_s")} for row in found]


def status(run: Path) -> dict[str, Any]:
    return json.loads((run / "status.json").read_text())


def newest_checkpoint(run: Path) -> Path:
    return run / "checkpoints" / (run / "checkpoints" / "last").read_text().strip()


def tensors(run: Path) -> dict[str, Any]:
    """Every value of the last checkpoint and every weight of the saved model, by name; not the time spent."""
    import torch
    from safetensors.torch import load_file

    place = newest_checkpoint(run)
    trainer = torch.load(place / "trainer.pt", weights_only=True)
    trainer["course"].pop("train_seconds")
    found = {
        "model": load_file(run / "model" / "model.safetensors"),
        "weights": load_file(place / "model.safetensors"),
        "trainer": trainer,
        "meta": json.loads((place / "meta.json").read_text())["meta"],
    }
    return dict(_flat(found))


def differences(run: Path, other: Path) -> list[str]:
    """Names of whatever is not equal to the last bit in two runs: weights, EMA, optimiser, course, metrics, best."""
    import torch

    first, second = tensors(run), tensors(other)
    names = sorted(first.keys() ^ second.keys())
    for name in first.keys() & second.keys():
        one, two = first[name], second[name]
        both = isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor)
        if not (_bits(one) == _bits(two) if both else type(one) is type(two) and one == two):
            names.append(name)
    if rows(run) != rows(other):
        names.append("metrics.jsonl")
    names += [name for name in ("last", "best") if _pointer(run, name) != _pointer(other, name)]
    return names


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time of change and its content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def _pointer(run: Path, name: str) -> str:
    return (run / "checkpoints" / name).read_text()


def _bits(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().numpy().tobytes()


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}{key}/")
    else:
        yield prefix.removesuffix("/"), value


# --- the process that forks -------------------------------------------------------------------------------------------


class Forker:
    """A process that holds every import and begins others on demand."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT},
            text=True,
        )

    def ask(self, order: dict[str, Any]) -> int:
        """The process number of the one that carries it out."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the forker has no pipes")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the forker ended with exit code {self._process.wait()}")
        return int(answer)

    def close(self) -> None:
        self._process.communicate(timeout=LIMIT_S)


@functools.cache
def _forker() -> Forker:
    forker = Forker()
    atexit.register(forker.close)
    return forker


@functools.cache
def _papers() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="vitscope-faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=_papers()))


def _wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {LIMIT_S:g} s for {what}")
        time.sleep(0.002)


def _fork_on_demand() -> None:
    """Two forks for each order: one process does it, one waits for it and notes its exit code."""
    for name in WARM_IMPORTS:
        importlib.import_module(name)
    gc.freeze()  # else every collection in a child would copy what it shares with this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who wait are waited for by nobody
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            order = json.loads(line)
            child = os.fork()
            if child == 0:
                _carry_out(order)
            os.write(1, f"{child}\n".encode())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            note = Path(order["papers"], "code.part")
            note.write_text(str(code))
            note.rename(note.with_name("code"))
            os._exit(0)


def _carry_out(order: dict[str, Any]) -> None:
    os.setsid()
    os.environ.update(order["environment"])
    for handle, name in enumerate(("in", "out", "err")):
        path = os.devnull if name == "in" else Path(order["papers"], name)
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), handle)
    finish: Any = importlib.import_module("vitscope.train.finish")
    finish._draw = lambda *args: None
    for trap in order["traps"]:
        Trap(**trap).set()
    code = importlib.import_module("vitscope.cli.main").main(order["args"])
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)  # taking torch apart would cost as much as the run


if __name__ == "__main__":
    _fork_on_demand()
