"""metrics.jsonl: nothing complete is lost, nothing half is believed."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitscope.core.errors import InputError, VitscopeError
from vitscope.core.metrics_file import MetricsFile


@pytest.fixture
def metrics(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "metrics.jsonl")


def steps(metrics: MetricsFile) -> list[int]:
    return [row["step"] for row in metrics.read()]


def test_rows_come_back_with_their_time(metrics: MetricsFile) -> None:
    before = time.time()
    metrics.append({"step": 1, "epoch": 0, "train/loss": 0.5, "note": "ö", "flag": True, "none": None})
    metrics.append(step=2, epoch=0.5, **{"val/accuracy": 1})
    first, second = metrics.read()
    assert before <= first.pop("time") <= time.time()
    assert first == {"step": 1, "epoch": 0, "train/loss": 0.5, "note": "ö", "flag": True, "none": None}
    assert (second["epoch"], second["val/accuracy"]) == (0.5, 1)
    assert metrics.bad_lines == 0


def test_a_missing_file_has_no_rows(metrics: MetricsFile) -> None:
    assert metrics.read() == []
    assert metrics.column("train/loss") == ([], [])
    assert metrics.cut_after(3) == 0
    assert not metrics.path.exists()


def test_what_json_has_no_word_for_is_text_in_the_file_and_a_float_outside(metrics: MetricsFile) -> None:
    metrics.append(step=0, epoch=0, a=math.nan, b=math.inf, c=-math.inf)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    written = json.loads(metrics.path.read_text(), parse_constant=refuse)
    assert (written["a"], written["b"], written["c"]) == ("NaN", "Infinity", "-Infinity")
    (row,) = metrics.read()
    assert math.isnan(row["a"])
    assert (row["b"], row["c"]) == (math.inf, -math.inf)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([2]), 2),
        (torch.tensor(0.25, dtype=torch.bfloat16, requires_grad=True), 0.25),
        (torch.tensor(True), True),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.array(1.5), 1.5),
        (np.bool_(True), True),
    ],
)
def test_scalars_of_torch_and_numpy_are_numbers(metrics: MetricsFile, value: Any, plain: object) -> None:
    metrics.append(step=0, epoch=0, x=value)
    (row,) = metrics.read()
    assert row["x"] == plain
    assert type(row["x"]) is type(plain)


@pytest.mark.parametrize(
    ("value", "received"),
    [
        ([1, 2], "received list"),
        ({"a": 1}, "received dict"),
        (torch.zeros(2, 3), "received Tensor of shape (2, 3)"),
        (np.zeros(2), "received ndarray of shape (2,)"),
        (1j, "received complex"),
        (b"x", "received bytes"),
        (object(), "received object"),
    ],
)
def test_other_values_are_refused_and_nothing_is_written(metrics: MetricsFile, value: Any, received: str) -> None:
    with pytest.raises(InputError, match="metric 'train/loss': expected a number") as refusal:
        metrics.append({"step": 0, "epoch": 0, "train/loss": value})
    assert received in refusal.value.what
    assert not metrics.path.exists()


@pytest.mark.parametrize(
    "row",
    [
        {"epoch": 0},
        {"step": 1.5, "epoch": 0},
        {"step": -1, "epoch": 0},
        {"step": True, "epoch": 0},
        {"step": "1", "epoch": 0},
        {"step": 1},
        {"step": 1, "epoch": None},
        {"step": 1, "epoch": "1"},
    ],
)
def test_a_row_needs_a_step_and_an_epoch(metrics: MetricsFile, row: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"(step|epoch) of a metrics row: expected"):
        metrics.append(row)
    assert not metrics.path.exists()


@given(st.dictionaries(st.text(min_size=1), st.none() | st.booleans() | st.integers() | st.floats() | st.text()))
def test_any_row_is_one_line_and_survives(tmp_path_factory: pytest.TempPathFactory, row: dict[str, Any]) -> None:
    row = {**row, "step": 3, "epoch": 1, "time": 5.0}
    metrics = MetricsFile(tmp_path_factory.mktemp("m") / "metrics.jsonl")
    metrics.append(row)
    metrics.append(row)
    assert len(metrics.path.read_text().splitlines()) == 2
    words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    wanted = {key: words.get(value, value) if isinstance(value, str) else value for key, value in row.items()}
    read = metrics.read()[1]
    assert {key: repr(value) for key, value in read.items()} == {key: repr(value) for key, value in wanted.items()}


@pytest.mark.parametrize("half", [b'{"step": 3, "ep', b"{", b'{"step": 3}x', b"\x00\x00\x00", b'{"a": "\xe4'])
def test_half_a_last_line_is_passed_over_and_then_removed(metrics: MetricsFile, half: bytes) -> None:
    metrics.append(step=1, epoch=0)
    metrics.append(step=2, epoch=0)
    complete = metrics.path.read_bytes()
    metrics.path.write_bytes(complete + half)
    reopened = MetricsFile(metrics.path)
    assert steps(reopened) == [1, 2]
    assert metrics.path.read_bytes() == complete + half  # reading changes nothing
    reopened.append(step=3, epoch=0)
    assert metrics.path.read_bytes().startswith(complete)
    assert steps(reopened) == [1, 2, 3]
    assert reopened.bad_lines == 0


def test_a_file_that_is_nothing_but_half_a_line(metrics: MetricsFile) -> None:
    metrics.path.write_bytes(b'{"step"')
    assert metrics.read() == []
    metrics.append(step=0, epoch=0)
    assert steps(metrics) == [0]


def test_a_whole_row_without_its_line_end_is_kept(metrics: MetricsFile) -> None:
    metrics.path.write_bytes(b'{"step": 1, "epoch": 0}')
    assert steps(metrics) == [1]
    metrics.append(step=2, epoch=0)
    assert steps(metrics) == [1, 2]
    assert metrics.bad_lines == 0


def test_garbage_in_the_middle_is_left_out_and_counted(metrics: MetricsFile) -> None:
    metrics.append(step=1, epoch=0)
    with metrics.path.open("ab") as file:
        file.write(b'\xff\xfe\n{"half": \n[1]\n"text"\n{"no_step": 1}\n{"step": "x"}\n\n' + b"[" * 9000 + b"\na\rb\n")
    metrics.append(step=2, epoch=0)
    assert steps(metrics) == [1, 2]
    assert metrics.bad_lines == 8
    metrics.path.write_bytes(b"")
    assert metrics.read() == []
    assert metrics.bad_lines == 0  # counted anew by each read


def test_cut_after_drops_later_rows_only(metrics: MetricsFile) -> None:
    for step in range(6):
        metrics.append(step=step, epoch=0, x=step)
    lines = metrics.path.read_bytes().splitlines(keepends=True)
    assert metrics.cut_after(3) == 2
    assert metrics.path.read_bytes() == b"".join(lines[:4])  # byte for byte
    assert metrics.cut_after(3) == 0
    metrics.append(step=4, epoch=1)
    assert steps(metrics) == [0, 1, 2, 3, 4]
    assert metrics.cut_after(-1) == 5
    assert metrics.read() == []


def test_cut_after_keeps_what_it_cannot_read_and_drops_half_a_line(metrics: MetricsFile) -> None:
    metrics.path.write_bytes(b'{"step": 1}\ngarbage\n{"step": 9}\n{"step": 2}\n{"st')
    assert metrics.cut_after(5) == 1
    assert metrics.path.read_bytes() == b'{"step": 1}\ngarbage\n{"step": 2}\n'


def test_a_cut_that_fails_leaves_the_file(metrics: MetricsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(3):
        metrics.append(step=step, epoch=0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        metrics.cut_after(0)
    assert steps(metrics) == [0, 1, 2]


def test_column_gives_numbers_for_plotting(metrics: MetricsFile) -> None:
    metrics.append(step=1, epoch=0, **{"train/loss": 2})
    metrics.append(step=2, epoch=0, **{"val/loss": 1.0})
    metrics.append(step=3, epoch=0, **{"train/loss": math.nan})
    metrics.append(step=4, epoch=0, **{"train/loss": "text"})
    metrics.append(step=5, epoch=0, **{"train/loss": None})
    at, values = metrics.column("train/loss")
    assert at == [1, 3]
    assert values[0] == 2.0
    assert isinstance(values[0], float)
    assert math.isnan(values[1])
    assert metrics.column("nothing") == ([], [])


def test_each_row_is_one_write(metrics: MetricsFile) -> None:
    """A reader in another process sees every row as soon as `append` returns, and never a buffer's edge."""
    sizes = []
    for step in range(50):
        metrics.append(step=step, epoch=0, note="x" * 3000)
        sizes.append(metrics.path.stat().st_size)
        assert metrics.path.read_bytes().endswith(b"\n")
    assert len(set(sizes)) == 50


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics._ends_with_line = True  # /dev/full cannot be read to its end
    with pytest.raises(VitscopeError, match=r"cannot write metrics: .*No space left") as refusal:
        metrics.append(step=0, epoch=0)
    assert refusal.value.where == str(metrics.path)


def test_a_disk_that_takes_half_a_line_costs_only_that_line(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel take a part of a write, as a disk does that runs full."""
    path = tmp_path / "metrics.jsonl"
    code = f"""if True:
        import resource, signal
        from vitscope.core.errors import VitscopeError
        from vitscope.core.metrics_file import MetricsFile
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        metrics = MetricsFile({str(path)!r})
        metrics.append(step=0, epoch=0)
        size = metrics.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        try:
            metrics.append(step=1, epoch=0)
        except VitscopeError as error:
            print(error.what)
        assert metrics.path.stat().st_size == size
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        metrics.append(step=2, epoch=0)
    """
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "only a part of the line was taken" in made.stdout
    metrics = MetricsFile(path)
    assert steps(metrics) == [0, 2]
    assert metrics.bad_lines == 0


def test_a_line_of_which_only_the_end_is_missing_is_not_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    code = f"""if True:
        import resource, signal, time
        from vitscope.core.errors import VitscopeError
        from vitscope.core.metrics_file import MetricsFile
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        time.time = lambda: 1.5
        metrics = MetricsFile({str(path)!r})
        metrics.append(step=0, epoch=0)
        size = metrics.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * size - 1, resource.RLIM_INFINITY))
        try:
            metrics.append(step=1, epoch=0)
        except VitscopeError as error:
            print(error.what)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        metrics.append(step=1, epoch=0)
    """
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "only a part of the line was taken" in made.stdout
    assert steps(MetricsFile(path)) == [0, 1]


WRITER = """if True:
    import sys
    from vitscope.core.metrics_file import MetricsFile
    metrics = MetricsFile(sys.argv[1])
    step = int(sys.argv[2])
    while True:
        metrics.append(step=step, epoch=0, note="x" * 2000)
        print(step, flush=True)
        step += 1
"""


@pytest.mark.parametrize("delay_seconds", [0.0, 0.013, 0.05])
def test_kill_9_in_the_middle_of_appends_loses_no_row(metrics: MetricsFile, delay_seconds: float) -> None:
    begin = 0
    for _ in range(2):  # the second writer goes on where the first was killed
        command = [sys.executable, "-c", WRITER, str(metrics.path), str(begin)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            told = [int(writer.stdout.readline()) for _ in range(20)]
            time.sleep(delay_seconds)
            writer.send_signal(signal.SIGKILL)
            told += [int(line) for line in writer.stdout.read().split("\n")[:-1] if line]
        assert writer.returncode == -signal.SIGKILL
        found = steps(metrics)
        assert found == list(range(len(found)))  # every row once, in order
        assert len(found) > told[-1]  # nothing that was said to be written is missing
        assert metrics.bad_lines == 0
        begin = len(found)


def test_two_processes_can_append_to_one_file(metrics: MetricsFile) -> None:
    code = """if True:
        import sys
        from vitscope.core.metrics_file import MetricsFile
        metrics = MetricsFile(sys.argv[1])
        for step in range(200):
            metrics.append(step=step, epoch=0, who=sys.argv[2], note="x" * 500)
    """
    metrics.path.touch()
    writers = [subprocess.Popen([sys.executable, "-c", code, str(metrics.path), who]) for who in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    rows = metrics.read()
    assert metrics.bad_lines == 0
    for who in "ab":
        assert [row["step"] for row in rows if row["who"] == who] == list(range(200))
