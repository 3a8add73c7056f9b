"""Who says what processes find before they have met: the first; another one only what nobody else has found."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from vitscope.core import one_voice
from vitscope.core.errors import UsageError
from vitscope.core.one_voice import in_one_voice


def said(monkeypatch: pytest.MonkeyPatch, *, local_rank: int, ends: bool = False, asked: bool = False) -> bool:
    """Whether an error is left to this process to say."""
    for name, value in (("RANK", "3"), ("LOCAL_RANK", str(local_rank)), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
    if ends:
        timer.start()
    with pytest.raises(UsageError, match="no such flag") as refused, in_one_voice(lambda: asked):
        raise UsageError("no such flag")
    assert signal.getsignal(signal.SIGTERM) is before
    return not refused.value.was_said


def test_the_first_of_a_machine_says_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_voice, "WAIT_SECONDS", 3600)
    assert said(monkeypatch, local_rank=0)


def test_another_leaves_silently_when_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_voice, "WAIT_SECONDS", 3600)
    assert not said(monkeypatch, local_rank=1, ends=True)
    assert not said(monkeypatch, local_rank=1, asked=True), "by a signal that came before its error"


def test_what_only_another_has_found_it_says_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_voice, "WAIT_SECONDS", 0.2)
    assert said(monkeypatch, local_rank=1)


def test_alone_an_error_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError) as refused, in_one_voice():
        raise UsageError("no such flag")
    assert not refused.value.was_said


def test_outside_the_main_thread_no_signal_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_voice, "WAIT_SECONDS", 3600)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(said(monkeypatch, local_rank=1)))
    thread.start()
    thread.join(30)
    assert found == [True]
