"""Servers in processes of their own, as a person starts them, and plain requests to them."""

from __future__ import annotations

import functools
import http.client
import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image

from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model

LIMIT_S = 60.0
TINY = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=7)
LABELS = ["ant", "bee <b>big</b>", "cat", "dog", "elk", "fox", "gnu"]
PLAIN = "import sys; from vitscope.cli.main import main; sys.exit(main())"


def write_model(folder: Path) -> Path:
    """A small model that is sure of itself, and of different things for different pictures."""
    torch.manual_seed(0)
    network = build_model(TINY)
    with torch.no_grad():
        network.get_parameter("head.weight").normal_(std=0.5)
        for block in network.get_submodule("blocks").children():
            block.get_parameter("attn.qkv.weight").normal_(std=0.2)
    save_model(network, folder, labels=LABELS, overwrite=True)
    return folder


def picture(number: int, size: tuple[int, int] = (48, 40), file_format: str = "PNG") -> bytes:
    """Coarse random colours, so that the cut and the resizing matter little and the number much."""
    coarse = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return encoded(Image.fromarray(coarse).resize(size, Image.Resampling.NEAREST), file_format)


def encoded(image: Image.Image, file_format: str = "PNG", **settings: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **settings)
    return file.getvalue()


def form(files: Iterable[tuple[str, bytes]], fields: Mapping[str, str] | None = None) -> tuple[bytes, dict[str, str]]:
    """A multipart body as browsers make it, and its header."""
    boundary = f"----{uuid.UUID(int=7).hex}"
    parts = [f'name="{name}"\r\n\r\n'.encode() + value.encode() for name, value in (fields or {}).items()]
    for name, content in files:
        head = f'name="file"; filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        parts.append(head.encode() + content)
    lines = [f"--{boundary}\r\nContent-Disposition: form-data; ".encode() + part + b"\r\n" for part in parts]
    return b"".join(lines) + f"--{boundary}--\r\n".encode(), {
        "content-type": f"multipart/form-data; boundary={boundary}"
    }


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """`vitscope serve MODEL --port 0 FLAGS` until the `with` ends; `program` runs it, so that a test can bend it.

    Importing torch is most of what a start costs, so a process that has done it forks those that serve: real ones, with
    process ids, signals and exit codes of their own. `cold` starts an interpreter instead, as a person does.
    """

    model: Path
    flags: Sequence[str] = ()
    program: str = PLAIN
    env: Mapping[str, str] = field(default_factory=dict)
    cold: bool = False
    host: str = field(init=False)
    port: int = field(init=False)
    said: str = field(init=False)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        out, self._errors = Path(self._folder.name, "out"), Path(self._folder.name, "errors")
        args = ["serve", str(self.model), "--port", "0", "--device", "cpu", *self.flags]
        env = {"OMP_NUM_THREADS": "1", **self.env}
        if self.cold:
            command = [sys.executable, "-c", self.program, *args]
            with out.open("w") as told, self._errors.open("w") as errors:
                self._process = subprocess.Popen(command, env={**os.environ, **env}, stdout=told, stderr=errors)
        else:
            self._process = _warm().Process(
                target=_run, args=(self.program, args, env, str(out), str(self._errors)), daemon=True
            )
            self._process.start()
        end = time.monotonic() + LIMIT_S
        while not out.is_file() or "Ctrl-C" not in out.read_text():
            assert self.exit_code() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)
        self.said = out.read_text()
        host, port = re.findall(r"http://(\S+):(\d+)", self.said)[0]
        self.port = int(port)
        self.host = "::1" if host == "[::1]" else "127.0.0.1"
        while self.get("/readyz").status != 200:
            assert time.monotonic() < end, self.get("/readyz").body
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        if self.exit_code() is None:
            self._process.kill()
        self.wait()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if isinstance(self._process, subprocess.Popen) else self._process.exitcode

    def wait(self) -> int | None:
        if isinstance(self._process, subprocess.Popen):
            return self._process.wait(LIMIT_S)
        self._process.join(LIMIT_S)
        return self._process.exitcode

    def log(self) -> str:
        """What it has said on standard error."""
        return self._errors.read_text() if self._errors.is_file() else ""

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int | None, str]:
        """Exit code and what was said on standard error."""
        os.kill(self.pid, how)
        return self.wait(), self.log()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **settings: Any
    ) -> Answer:
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers or {}), **settings)
            return read(connection)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, *files: bytes, fields: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Files as a form, called 0, 1, 2, ..."""
        body, kind = form(((str(number), content) for number, content in enumerate(files)), fields)
        return self.ask("POST", path, body, {**kind, **headers})

    def memory_mb(self, word: str = "VmRSS:") -> float:
        """Now, or with `VmHWM:` the most there ever was."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(word)).split()[1]) / 1e3

    def counted(self, start: str) -> float:
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def read(connection: http.client.HTTPConnection) -> Answer:
    answer = connection.getresponse()
    return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())


@functools.cache
def _warm() -> Any:
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["serving", "vitscope.serve.app", "vitscope.cli.serve", "uvicorn", "matplotlib"])
    return made


def _run(program: str, args: Sequence[str], env: Mapping[str, str], out: str, errors: str) -> None:
    """In the process that serves."""
    for path, stream in ((out, 1), (errors, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.environ.update(env)
    torch.set_num_threads(1)
    sys.argv = ["vitscope", *args]
    exec(program, {"__name__": "__main__"})
