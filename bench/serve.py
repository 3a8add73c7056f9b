"""How much does gathering requests into batches bring, and how much of the model's own speed reaches the client?

    OMP_NUM_THREADS=1 python bench/serve.py

Three real servers (`vitscope serve` in processes of their own, vit_tiny, the CPU) get the same requests from the same
number of clients, each of which sends its next picture when it has its answer:

- batched: as it comes, up to 32 pictures at once;
- one at a time: the same with --max-batch 1;
- no model: the same server, whose model answers at once with zeros, so that what remains is HTTP, decoding and queues.

Beside them the model alone, on batches of 32 prepared images. All take turns, round by round. "With HTTP and decoding
subtracted" is 1 / (1 / batched - 1 / no model), as a share of the model alone; on several cores the two overlap, and it
can exceed 1. Beside it stands what the server itself counted: pictures per second in which its model was busy. Where
others share the machine, look at processor time: what the server's threads had of it, for each picture.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from report import report
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import paired_ratio, summary

BATCH = 32
NO_MODEL = """
import sys, torch
from vitscope.infer.predictor import Predictor
Predictor.probabilities = lambda self, images: torch.zeros(len(images), self.num_classes)
from vitscope.cli.main import main
sys.exit(main())
"""
AS_IT_COMES = "import sys; from vitscope.cli.main import main; sys.exit(main())"


@dataclass
class Server:
    """A server in a process of its own."""

    program: str
    model: Path
    flags: Sequence[str] = ()
    process: subprocess.Popen[str] = field(init=False)
    port: int = field(init=False)

    def __enter__(self) -> Server:
        command = [sys.executable, "-c", self.program, "serve", str(self.model), "--port", "0", "--device", "cpu"]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([*command, *self.flags], stdout=subprocess.PIPE, text=True, env=env)
        told = self.process.stdout.readline() if self.process.stdout else ""
        self.port = int(re.findall(r":(\d+)", told)[-1])
        while not self.is_ready():
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60):
            raise RuntimeError(f"the server left with {self.process.returncode}")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def is_ready(self) -> bool:
        try:
            return "ready" in self.get("/readyz")
        except OSError:
            return False

    def counted(self, name: str) -> float:
        return sum(
            float(line.rpartition(" ")[2]) for line in self.get("/metrics").splitlines() if line.startswith(name)
        )

    def cpu_seconds(self) -> float:
        """That its threads had a processor: where others share the machine, far steadier than the time that passed."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        line = next(
            x for x in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if x.startswith("VmRSS")
        )
        return int(line.split()[1]) / 1e3


def pictures(count: int, side: int) -> list[bytes]:
    """Pieces of a photograph, as JPEGs."""
    from vitscope.data.photographs import builtin_picture

    photograph, files = builtin_picture("china"), []
    for number in range(count):
        left, top = (37 * number) % (photograph.width - 160), (23 * number) % (photograph.height - 160)
        file = io.BytesIO()
        photograph.crop((left, top, left + 160, top + 160)).resize((side, side)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def request(picture: bytes) -> bytes:
    head = ["POST /predict?top_k=1 HTTP/1.1", "Host: 127.0.0.1", "Content-Type: image/jpeg"]
    return "\r\n".join([*head, f"Content-Length: {len(picture)}", "\r\n"]).encode() + picture


async def client(
    port: int, requests: Sequence[bytes], share: slice, statuses: dict[int, int], seconds: list[float]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for one in requests[share]:
        start = time.perf_counter()
        writer.write(one)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))
        seconds.append(time.perf_counter() - start)
        status = int(head.split(b" ", 2)[1])
        statuses[status] = statuses.get(status, 0) + 1
    writer.close()


async def load(port: int, requests: Sequence[bytes], clients: int) -> tuple[float, list[float], dict[int, int]]:
    """Seconds for all, seconds of each, and how many got which status."""
    statuses: dict[int, int] = {}
    seconds: list[float] = []
    start = time.perf_counter()
    await asyncio.gather(*(client(port, requests, slice(i, None, clients), statuses, seconds) for i in range(clients)))
    return time.perf_counter() - start, seconds, statuses


def model_alone(model: Path) -> Any:
    import vitscope

    network = vitscope.load_model(model).eval()
    images = torch.rand(BATCH, 3, 32, 32)

    @torch.inference_mode()
    def rate(count: int) -> float:
        network(images)
        start = time.perf_counter()
        for _ in range(max(1, count // BATCH)):
            network(images).float().softmax(-1)
        return BATCH * max(1, count // BATCH) / (time.perf_counter() - start)

    return rate


def throughput(model: Path, args: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    requests = [request(one) for one in pictures(64, args.side)]
    requests = (requests * (args.requests // len(requests) + 1))[: args.requests]
    rates: dict[str, list[float]] = {name: [] for name in ("batched", "one at a time", "no model", "model alone")}
    cpu: dict[str, list[float]] = {name: [] for name in rates}
    busy, slowest = [], []
    alone = model_alone(model)
    with (
        Server(AS_IT_COMES, model, ["--max-batch", str(BATCH)]) as batched,
        Server(AS_IT_COMES, model, ["--max-batch", "1"]) as single,
        Server(NO_MODEL, model, ["--max-batch", str(BATCH)]) as none,
    ):
        servers = {"batched": batched, "one at a time": single, "no model": none}
        for server in servers.values():
            asyncio.run(load(server.port, requests[: args.clients], args.clients))
        for number in range(args.rounds):
            names = list(rates)
            for name in names if number % 2 == 0 else reversed(names):
                if name == "model alone":
                    start = time.process_time()
                    rates[name].append(alone(args.requests))
                    cpu[name].append(1e3 * (time.process_time() - start) / (args.requests + BATCH))
                    continue
                server = servers[name]
                before, had = server.counted("vitscope_model_seconds_total"), server.cpu_seconds()
                wall, seconds, statuses = asyncio.run(load(server.port, requests, args.clients))
                if statuses != {200: len(requests)}:
                    raise RuntimeError(f"{name}: {statuses}")
                rates[name].append(len(requests) / wall)
                cpu[name].append(1e3 * (server.cpu_seconds() - had) / len(requests))
                if name == "batched":
                    busy.append(len(requests) / (server.counted("vitscope_model_seconds_total") - before))
                    slowest.append(1e3 * statistics.quantiles(seconds, n=100)[-1])
            print(
                f"round {number + 1}: " + ", ".join(f"{name} {told[-1]:.0f}/s" for name, told in rates.items()),
                flush=True,
            )
    net = [1 / max(1 / a - 1 / b, 1e-9) for a, b in zip(rates["batched"], rates["no model"], strict=True)]
    net_cpu = [a - b for a, b in zip(cpu["batched"], cpu["no model"], strict=True)]
    ratios = {
        "batched / one at a time": paired_ratio(rates["batched"], rates["one at a time"]),
        "batched / one at a time, by processor time": paired_ratio(cpu["one at a time"], cpu["batched"]),
        "batched, HTTP and decoding subtracted / model alone": paired_ratio(net, rates["model alone"]),
        "batched, HTTP and decoding subtracted / model alone, by processor time": paired_ratio(
            cpu["model alone"], net_cpu
        ),
        "while the server's model is busy / model alone": paired_ratio(busy, rates["model alone"]),
    }
    lines = ["| | pictures/s | quartiles | processor, ms/picture | quartiles |", "|---|---:|---:|---:|---:|"]
    for name in rates:
        told, took = summary(rates[name]), summary(cpu[name])
        lines.append(
            f"| {name} | {told.median:.0f} | {told.low:.0f} to {told.high:.0f} "
            f"| {took.median:.2f} | {took.low:.2f} to {took.high:.2f} |"
        )
    lines += ["", "| ratio, median of rounds | | quartiles |", "|---|---:|---:|"]
    for name, ratio in ratios.items():
        lines.append(f"| {name} | {ratio.median:.2f} | {ratio.low:.2f} to {ratio.high:.2f} |")
    lines.append(f"| slowest 1 % of answers, ms | {statistics.median(slowest):.0f} | |")
    rows = [{"name": name, "pictures_per_s": rates[name], "cpu_ms": cpu[name]} for name in rates]
    return rows, "\n".join(lines)


def crowd(model: Path, args: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    """500 clients at a queue of 64, again and again: who is turned away, how long answers take, what memory does."""
    requests = [request(one) for one in pictures(64, args.side)]
    lines = ["| second | answered | 503 | slowest 1 %, ms | memory, MB |", "|---:|---:|---:|---:|---:|"]
    rows: list[dict[str, Any]] = []
    with Server(AS_IT_COMES, model, ["--max-batch", str(BATCH), "--queue", "64"]) as server:
        start, answered, turned, seconds = time.perf_counter(), 0, 0, []
        told = 0.0
        while time.perf_counter() - start < args.crowd_seconds:
            wave = [requests[number % len(requests)] for number in range(args.crowd)]
            _, took, statuses = asyncio.run(load(server.port, wave, args.crowd))
            answered, turned = answered + statuses.get(200, 0), turned + statuses.get(503, 0)
            seconds += took
            if sum(statuses.values()) != len(wave) or set(statuses) - {200, 503}:
                raise RuntimeError(f"lost or failed: {statuses}")
            now = time.perf_counter() - start
            if now - told >= args.crowd_seconds / 12 or not rows:
                slow = 1e3 * statistics.quantiles(seconds, n=100)[-1]
                rows.append(
                    {"second": now, "answered": answered, "503": turned, "p99_ms": slow, "mb": server.memory_mb()}
                )
                lines.append(f"| {now:.0f} | {answered} | {turned} | {slow:.0f} | {rows[-1]['mb']:.0f} |")
                print(lines[-1], flush=True)
                told, seconds = now, []
    return rows, "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1024, help="in each round, of each server")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--side", type=int, default=32, help="of the pictures sent")
    parser.add_argument("--crowd", type=int, default=0, help="instead: so many clients at once at a queue of 64")
    parser.add_argument("--crowd-seconds", type=float, default=180)
    parser.add_argument("--quick", action="store_true", help="a few requests: does it run?")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.quick:
        args.requests, args.clients, args.crowd_seconds = 64, 16, 0.1
    torch.set_num_threads(1)
    import vitscope

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "vit_tiny")
        torch.manual_seed(0)
        vitscope.save_model(vitscope.create_model("vit_tiny", num_classes=10), model)
        rows, text = crowd(model, args) if args.crowd else throughput(model, args)
    facts = surroundings(torch.device("cpu"))
    facts["servers"] = "OMP_NUM_THREADS=1: one thread computes, the others decode and talk HTTP"
    report(facts, rows, text, args.json)


if __name__ == "__main__":
    main()
