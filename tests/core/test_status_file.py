"""status.json and its heartbeat."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vitscope.core import status_file
from vitscope.core.errors import ConfigError
from vitscope.core.status_file import Heartbeat, StatusFile


@pytest.fixture
def status(tmp_path: Path) -> StatusFile:
    return StatusFile(tmp_path / "status.json")


def read(status: StatusFile) -> dict[str, object]:
    found = status.read()
    assert found is not None
    return found


def wait_until(condition: object, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def edit(status: StatusFile, **changes: object) -> None:
    status.path.write_text(json.dumps({**read(status), **changes}))


def test_a_status_comes_back(status: StatusFile) -> None:
    before = time.time()
    status.write("running", step=7, eta_seconds=12.5, best=0.9)
    found = read(status)
    assert before <= found.pop("heartbeat") <= time.time()  # type: ignore[operator]
    assert found.pop("host")
    assert found == {"state": "running", "step": 7, "eta_seconds": 12.5, "best": 0.9, "pid": os.getpid()}


def test_the_last_step_stays_known(status: StatusFile) -> None:
    status.write("running", step=7, eta_seconds=3)
    status.write("failed", error="it broke")
    found = read(status)
    assert (found["state"], found["step"], found["eta_seconds"], found["error"]) == (
        "failed",
        7,
        None,
        "it broke",
    )


def test_an_eta_that_is_no_number_yet(status: StatusFile) -> None:
    status.write("running", eta_seconds=math.inf)
    assert '"Infinity"' in status.path.read_text()
    assert read(status)["eta_seconds"] == math.inf


def test_an_unknown_state_is_refused(status: StatusFile) -> None:
    with pytest.raises(ConfigError, match="state: expected one of starting, running, finished"):
        status.write("sleeping")  # type: ignore[arg-type]
    assert not status.path.exists()


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"[1]", b"[" * 9000])
def test_no_status_that_can_be_read_is_none_and_not_alive(status: StatusFile, content: bytes | None) -> None:
    if content is not None:
        status.path.write_bytes(content)
    assert status.read() is None
    assert not status.is_alive()


@pytest.mark.parametrize(
    ("state", "alive"),
    [
        ("starting", True),
        ("running", True),
        ("finished", False),
        ("failed", False),
        ("stopped", False),
        ("diverged", False),
    ],
)
def test_only_a_run_at_work_is_alive(status: StatusFile, state: status_file.State, alive: bool) -> None:
    status.write(state)
    assert status.is_alive() is alive


def test_an_old_heartbeat_is_dead_also_from_the_future(status: StatusFile) -> None:
    status.write("running")
    edit(status, heartbeat=time.time() - 30)
    assert status.is_alive(max_age_seconds=60)
    assert not status.is_alive(max_age_seconds=10)
    edit(status, heartbeat=time.time() + 30)
    assert status.is_alive(max_age_seconds=60)
    assert not status.is_alive(max_age_seconds=10)
    for broken in (None, "x", "NaN"):
        edit(status, heartbeat=broken)
        assert not status.is_alive()


def test_a_killed_process_is_dead_at_once(status: StatusFile) -> None:
    code = """if True:
        import sys
        from vitscope.core.status_file import StatusFile
        StatusFile(sys.argv[1]).write("running")
        print("ready", flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", code, str(status.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        assert status.is_alive()
        run.kill()
        run.wait()
    assert read(status)["state"] == "running"
    assert not status.is_alive()


def test_on_another_machine_the_heartbeat_alone_counts(status: StatusFile) -> None:
    status.write("running")
    edit(status, host="elsewhere", pid=10**9)
    assert status.is_alive()
    edit(status, host=status_file.host_name(), pid=10**9)
    assert not status.is_alive()
    edit(status, pid=None)
    assert not status.is_alive()


def test_the_heart_beats_and_stops(status: StatusFile) -> None:
    status.write("running", step=3, best=0.5)
    first = read(status)
    with Heartbeat(status, interval_seconds=0.01) as heart:
        wait_until(lambda: read(status)["heartbeat"] != first["heartbeat"])
        assert {**read(status), "heartbeat": 0} == {**first, "heartbeat": 0}
        assert "vitscope-heartbeat" in {thread.name for thread in threading.enumerate()}
    assert "vitscope-heartbeat" not in {thread.name for thread in threading.enumerate()}
    last = read(status)["heartbeat"]
    time.sleep(0.05)
    assert read(status)["heartbeat"] == last
    assert heart.failures == 0


def test_the_heart_stops_when_the_work_fails(status: StatusFile) -> None:
    status.write("running")
    with pytest.raises(RuntimeError, match="on purpose"), Heartbeat(status, interval_seconds=0.01):
        raise RuntimeError("on purpose")
    assert "vitscope-heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_a_long_interval_does_not_delay_the_end(status: StatusFile) -> None:
    begin = time.monotonic()
    with Heartbeat(status, interval_seconds=600):
        pass
    assert time.monotonic() - begin < 5


def test_a_failing_write_does_not_stop_the_heart(status: StatusFile) -> None:
    status.write("running")
    with Heartbeat(status, interval_seconds=0.01) as heart:
        # Away in one step: a folder cannot be emptied while the heart goes on writing into it.
        status.path.parent.rename(status.path.parent.with_name("gone"))
        wait_until(lambda: heart.failures >= 2)
        assert isinstance(heart.last_error, OSError)
        status.path.parent.mkdir()
        wait_until(lambda: status.read() is not None)
    assert read(status)["state"] == "running"


def test_the_heart_never_puts_an_old_state_over_a_new_one(status: StatusFile) -> None:
    status.write("running", step=0)
    with Heartbeat(status, interval_seconds=0.0005):
        for step in range(100):
            status.write("running", step=step)
            assert read(status)["step"] == step
        status.write("finished", step=100)
        ended = read(status)
        time.sleep(0.05)
    assert read(status) == ended  # and a finished run has no heartbeat


def test_no_heartbeat_before_the_first_status(status: StatusFile) -> None:
    status.beat()
    assert not status.path.exists()
