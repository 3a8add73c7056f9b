"""A hub on loopback that answers what `huggingface_hub` asks, and a client in a process of its own.

`huggingface_hub` reads where the hub and the cache are when it is imported, so whoever asks must be a new process.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """Files of one commit. `behaviour` is what the hub does when asked for them."""

    files: dict[str, bytes]
    sha: str = "a" * 40
    names: tuple[str, ...] = ("main",)
    behaviour: str = "answers"
    """answers, breaks (500), gates (403), cuts (sends half of a file and hangs up)."""


@dataclass
class StandInHub:
    url: str
    repositories: dict[str, list[Repository]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Methods and paths, in order."""

    def add(self, name: str, folder: Path, **settings: Any) -> Repository:
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        repository = Repository(files, **settings)
        self.repositories.setdefault(name, []).append(repository)
        return repository

    def downloads(self) -> list[str]:
        return [line.rpartition("/")[2] for line in self.asked if line.startswith("GET") and "/resolve/" in line]


@contextmanager
def running_hub() -> Iterator[StandInHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = StandInHub(f"http://127.0.0.1:{server.server_address[1]}")
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # one answer a connection: a hub that is stopped answers nobody

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing on the test's screen."""

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        hub: StandInHub = self.server.hub  # type: ignore[attr-defined]
        hub.asked.append(f"{self.command} {path}")
        parts = path.removeprefix("api/models/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        commits = hub.repositories.get(name)
        if commits is None:
            return self._fail(404, "RepoNotFound")
        wanted = rest[1] if len(rest) > 1 else "main"
        commit = next((one for one in commits if wanted in (*one.names, one.sha)), None)
        if commit is None:
            return self._fail(404, "RevisionNotFound")
        if commit.behaviour == "breaks":
            return self._fail(500, "")
        if commit.behaviour == "gates":
            return self._fail(403, "GatedRepo")
        if not path.startswith("api/"):
            return self._send_file(commit, "/".join(rest[2:]), with_body)
        if rest[:1] == ["tree"]:
            said: Any = [_entry(file, content) for file, content in commit.files.items()]
        else:
            siblings = [{"rfilename": file} for file in commit.files]
            said = {"id": name, "modelId": name, "sha": commit.sha, "siblings": siblings, "private": False, "tags": []}
        return self._send(200, json.dumps(said).encode(), {"Content-Type": "application/json"})

    def _send_file(self, commit: Repository, file: str, with_body: bool) -> None:
        content = commit.files.get(file)
        if content is None:
            return self._fail(404, "EntryNotFound")
        headers = {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": commit.sha, "Accept-Ranges": "bytes"}
        begin = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]
        rest = content[int(begin or 0) :]
        status = 206 if "Range" in self.headers else 200
        if commit.behaviour == "cuts" and with_body and len(rest) > 1000:
            self._send(status, rest[: len(rest) // 2], headers, length=len(rest))
            self.wfile.flush()
            self.close_connection = True
            return None
        return self._send(status, rest if with_body else b"", headers, length=len(rest))

    def _fail(self, status: int, code: str) -> None:
        body = json.dumps({"error": code or "it broke"}).encode()
        self._send(status, b"" if self.command == "HEAD" else body, {"X-Error-Code": code} if code else {})

    def _send(self, status: int, body: bytes, headers: dict[str, str], length: int | None = None) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body) if length is None else length)}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def _entry(file: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": file, "size": len(content), "oid": _oid(content)}


# --- the client -------------------------------------------------------------------------------------------------


class Client:
    """A process that fetches and loads by name: `ask("load", "owner/name", img_size=32)`."""

    def __init__(self, cache: Path, url: str, *, offline: bool = False) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
        env |= {"HF_HOME": str(cache), "HF_ENDPOINT": url, "HF_HUB_OFFLINE": "1" if offline else "0"}
        env |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "no_proxy": "127.0.0.1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=cache,
        )

    def ask(self, verb: str, name: str, **settings: Any) -> dict[str, Any]:
        pipes = self._process
        if pipes.stdin is None or pipes.stdout is None or pipes.stderr is None:
            raise RuntimeError("the client has no pipes")
        pipes.stdin.write(json.dumps({"verb": verb, "name": name, "settings": settings}) + "\n")
        pipes.stdin.flush()
        line = pipes.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended: {pipes.stderr.read()}")
        return json.loads(line)

    def close(self) -> str:
        """What it wrote to stderr."""
        return self._process.communicate(timeout=60)[1]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _serve_lines() -> None:
    out = sys.stdout
    sys.stdout = sys.stderr  # only answers go to the pipe
    for line in sys.stdin:
        asked = json.loads(line)
        out.write(json.dumps(_answered(asked["verb"], asked["name"], asked["settings"])) + "\n")
        out.flush()


def _answered(verb: str, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    from vitscope.core.errors import VitscopeError
    from vitscope.weights.hub import fetch

    try:
        if verb == "fetch":
            return {"folder": str(fetch(name))}
        if verb == "train_settings":
            return _train_settings(name)
        import torch

        from vitscope.core.config import to_dict
        from vitscope.weights.create import create_model
        from vitscope.weights.load import load_model

        was_train = None
        if verb == "create":
            model = create_model(name, pretrained=True, **settings)
            was_train = model.training
        else:
            model = load_model(name, **settings)
        size, count = model.preprocessing.img_size, model.config.in_chans
        images = torch.randn(2, count, *size, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            features = model.eval().forward_head(model.forward_features(images), pre_logits=True)
        return {
            "features": features.tolist(),
            "config": to_dict(model.config),
            "certificate": model.certificate.to_dict(),
            "labels": model.labels,
            "was_train": was_train,
            "loaded_transformers": "transformers" in sys.modules or "timm" in sys.modules,
        }
    except VitscopeError as error:
        return {"error": error.what, "where": error.where, "fix": error.fix}


def _train_settings(name: str) -> dict[str, Any]:
    """What `vitscope train --from NAME` would train with."""
    from vitscope.cli.main import main

    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main(["train", "--data", "shapes", "--from", name, "--print-config", "--json"])
    return {"code": code, **(json.loads(printed.getvalue()) if code == 0 else {})}


if __name__ == "__main__":
    _serve_lines()
