"""How long does loading a weights file take, and how much memory, against timm with the same file?

    python bench/load.py

A ViT-B/16 is written once, from random weights, as safetensors. Each timing is a process of its own that has imported
its library before the clock starts; the two take turns. Memory is the most the process ever had (VmHWM) above what it
had after its imports (VmRSS). Before anything is timed both load the file once and must give the same logits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from report import report
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import paired_ratio, summary

MODEL = "vit_base_patch16_224"
SMALL = "vit_tiny_patch16_224"
NAMES = ("ours", "timm")

ONE_LOAD = """
import json, sys, time
from pathlib import Path

name, model, file = sys.argv[1:]

def megabytes(word):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(word))
    return int(line.split()[1]) * 1024 / 1e6

import torch
torch.set_num_threads(1)
if name == "ours":
    from vitscope.models import vit
    from vitscope.weights.load import load_model
    load = lambda: load_model(file, config=model)
else:
    import timm, safetensors.torch
    load = lambda: timm.create_model(model, checkpoint_path=file).eval()
before = megabytes("VmRSS:")
start, busy = time.perf_counter(), time.process_time()
network = load()
seconds, busy = time.perf_counter() - start, time.process_time() - busy
peak = megabytes("VmHWM:") - before
with torch.inference_mode():
    images = torch.linspace(-1, 1, 3 * 224 * 224).view(1, 3, 224, 224)
    logits = network(images)[0, :8].tolist()
print(json.dumps({"seconds": seconds, "busy": busy, "peak_mb": peak, "logits": logits}))
"""


def write_file(model: str, folder: Path) -> Path:
    from safetensors.torch import save_file

    import vitscope

    torch.manual_seed(0)
    network = vitscope.create_model(model)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    save_file(dict(network.state_dict()), folder / f"{model}.safetensors")
    return folder / f"{model}.safetensors"


def one_load(name: str, model: str, file: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", ONE_LOAD, name, model, str(file)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def prove_equal(first: list[float], second: list[float]) -> float:
    difference = max(abs(a - b) for a, b in zip(first, second, strict=True))
    if difference > 1e-4:
        raise SystemExit(f"not equal work: logits differ by {difference:.2g}")
    return difference


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of timing (default: 7)")
    parser.add_argument("--quick", action="store_true", help=f"{SMALL} instead of {MODEL}")
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    args = parser.parse_args()
    model = SMALL if args.quick else MODEL
    found: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        file = write_file(model, Path(folder))
        size = file.stat().st_size / 1e6
        first = {name: one_load(name, model, file) for name in NAMES}  # the file is in the system's cache after this
        difference = prove_equal(first["ours"]["logits"], first["timm"]["logits"])  # type: ignore[arg-type]
        for number in range(args.rounds):
            for name in NAMES if number % 2 == 0 else reversed(NAMES):
                found[name].append(one_load(name, model, file))
            print(
                f"round {number + 1}: " + ", ".join(f"{n} {found[n][-1]['seconds']:.3f} s" for n in NAMES), flush=True
            )
    facts = surroundings(torch.device("cpu"))
    facts |= {"file": f"{model}, {size:.1f} MB", "equal work": f"logits differ by {difference:.2g} at most"}
    report(facts, [found], table(found, size), args.json)


def table(found: dict[str, list[dict[str, float]]], size: float) -> str:
    lines = ["| | time, s | processor, s | peak memory, MB | peak / file |", "| --- | ---: | ---: | ---: | ---: |"]
    for name in NAMES:
        seconds, busy, peak = (summary([one[key] for one in found[name]]) for key in ("seconds", "busy", "peak_mb"))
        cells = [name, f"{seconds.median:.3f} ({seconds.spread_percent:.0f} %)", f"{busy.median:.3f}"]
        cells += [f"{peak.median:.0f}", f"{peak.median / size:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    ratio = paired_ratio([one["seconds"] for one in found["ours"]], [one["seconds"] for one in found["timm"]])
    lines.append(f"| ours / timm | {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) | | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
