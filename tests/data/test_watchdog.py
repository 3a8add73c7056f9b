"""The watchdog: waits that last too long are ended from outside, others are left alone."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from vitscope.data.loaders.watchdog import Watchdog


def threads_of(watchdog: Watchdog) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread is watchdog._thread}


def test_a_wait_without_an_end_of_its_own_is_ended() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watchdog = Watchdog(0.2, lambda: theirs.shutdown(socket.SHUT_RDWR))
        began = time.monotonic()
        with watchdog:
            assert ours.recv(1) == b"", "without it this never returns"
        assert watchdog.has_bitten
        assert time.monotonic() - began >= 0.2
    watchdog.stop()


def test_short_waits_are_left_alone_and_share_a_thread() -> None:
    bitten: list[float] = []
    watchdog = Watchdog(0.3, lambda: bitten.append(time.monotonic()))
    threads: set[threading.Thread] = set()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:  # longer than its patience together, none of them alone
        with watchdog:
            threads |= threads_of(watchdog)
            time.sleep(0.05)
    time.sleep(0.5)  # nobody waits
    assert len(threads) == 1
    assert not bitten
    assert not watchdog.has_bitten
    watchdog.stop()


def test_a_forgotten_one_ends_its_thread() -> None:
    watchdog = Watchdog(0.2, lambda: None)
    with watchdog:
        (thread,) = threads_of(watchdog)
        assert thread.is_alive()
    del watchdog
    thread.join(5.0)
    assert not thread.is_alive()


def test_it_begins_anew_after_a_stop_and_when_the_wait_fails() -> None:
    bitten = threading.Event()
    watchdog = Watchdog(0.2, bitten.set)
    with pytest.raises(ZeroDivisionError), watchdog:
        raise ZeroDivisionError
    time.sleep(0.5)
    assert not bitten.is_set(), "a wait that failed is over"
    watchdog.stop()
    with watchdog:
        assert bitten.wait(5.0)
    watchdog.stop()
