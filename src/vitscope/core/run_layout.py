"""What a run folder holds, and how to recognise one."""

from __future__ import annotations

from pathlib import Path

CONFIG, ENVIRONMENT, STATUS, METRICS = "config.yaml", "env.json", "status.json", "metrics.jsonl"
LOG, BAD_SAMPLES = "train.log", "bad_samples.jsonl"
DIAGNOSTICS, CHECKPOINTS, MODEL, PLOTS = "diagnostics", "checkpoints", "model", "plots"
LOCK, REPLACED = ".lock", ".replaced"
RUNS = "runs"
"""The folder of runs nobody named a place for."""

NAMES = frozenset(
    {CONFIG, ENVIRONMENT, STATUS, METRICS, LOG, BAD_SAMPLES, DIAGNOSTICS, CHECKPOINTS, MODEL, PLOTS, LOCK, REPLACED}
)


def is_run_folder(path: Path) -> bool:
    return any((path / name).is_file() for name in (STATUS, METRICS, CONFIG))


def runs_in(folder: Path) -> list[str]:
    """Names of the run folders directly inside `folder`."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if is_run_folder(entry))
    except OSError:
        return []


def folder_before(path: Path) -> str:
    """What a name beside `path` needs before it to be found: nothing in the current folder."""
    return "" if str(path.parent) == "." else str(path.parent / "_").removesuffix("_")
