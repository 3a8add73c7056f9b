"""A signal raises the flag and nothing else; the second Ctrl-C leaves; handlers come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from vitscope.train.signals import StopFlag


@pytest.mark.parametrize(
    ("number", "code", "cause"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")]
)
def test_a_signal_raises_the_flag(number: signal.Signals, code: int, cause: str) -> None:
    before = signal.getsignal(number)
    with StopFlag() as stop:
        assert not stop
        assert stop.exit_code == 0
        os.kill(os.getpid(), number)
        assert stop
        assert (stop.exit_code, stop.cause) == (code, cause)
        assert signal.getsignal(number) is not before
    assert signal.getsignal(number) is before
    assert stop, "it stays up after the block"


def test_the_second_ctrl_c_leaves_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopFlag():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("numbers", "code"), [("TT", 143), ("IT", 143), ("TI", 130)])
def test_other_pairs_only_keep_the_flag_up(numbers: str, code: int) -> None:
    with StopFlag() as stop:
        for letter in numbers:
            os.kill(os.getpid(), signal.SIGINT if letter == "I" else signal.SIGTERM)
        assert stop.exit_code == code


def test_a_pause_stops_a_run_without_being_a_signal() -> None:
    stop = StopFlag()
    stop.pause()
    assert stop
    assert stop.is_paused
    assert (stop.exit_code, stop.cause) == (0, "the plan")
    stop.lower()
    assert not stop
    assert not stop.is_paused


@pytest.mark.parametrize("first", ["pause", "signal"])
def test_a_signal_counts_before_and_after_a_pause(first: str) -> None:
    """And is not lowered: whoever paused must leave too."""
    with StopFlag() as stop:
        deeds = [stop.pause, lambda: os.kill(os.getpid(), signal.SIGTERM)]
        for deed in deeds if first == "pause" else reversed(deeds):
            deed()
        assert not stop.is_paused
        stop.lower()
        assert stop
        assert (stop.exit_code, stop.cause) == (143, "SIGTERM")


def test_outside_the_main_thread_it_is_raised_by_hand() -> None:
    found: list[object] = []

    def work() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with StopFlag() as stop:
            found.append(signal.getsignal(signal.SIGTERM) is before)
            found.append(bool(stop))
            stop.raise_flag(signal.SIGINT)
            found.append(stop.exit_code)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True, False, 130]


def test_it_is_there_before_torch() -> None:
    code = "import sys, vitscope.train.signals; print('torch' in sys.modules, 'numpy' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["False", "False"]
