"""S6: told to stop while it serves, a server answers those it has taken in, takes no more, and leaves with 0."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from serving import LIMIT_S, Answer, Served, picture, read

SLOW = """
import sys, time
from vitscope.infer.predictor import Predictor
probabilities = Predictor.probabilities
Predictor.probabilities = lambda self, images: time.sleep(0.5) or probabilities(self, images)
from vitscope.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_those_under_way_are_answered(small_model: Path, how: signal.Signals, code: int) -> None:
    with Served(small_model, ["--max-batch", "2"], SLOW, cold=how == signal.SIGTERM) as server:
        answers: list[Answer] = []
        lock = threading.Lock()

        def ask(number: int) -> None:
            answer = server.post("/predict", picture(number))
            with lock:
                answers.append(answer)

        idle = server.connect()  # a connection that is kept and not used must not hold the server up
        idle.request("GET", "/healthz")
        assert read(idle).status == 200
        asking = [threading.Thread(target=ask, args=[number]) for number in range(6)]
        for each in asking:
            each.start()
        end = time.monotonic() + LIMIT_S
        while server.counted("vitscope_pictures_in_work") < 6 and time.monotonic() < end:
            time.sleep(0.02)
        left = server.stop(how)
        for each in asking:
            each.join()
        idle.close()
    assert left == (code, "")
    assert [answer.status for answer in answers] == [200] * 6
    assert len({answer.body for answer in answers}) > 1


def test_an_idle_server_leaves_at_once_and_quietly(small_model: Path) -> None:
    with Served(small_model) as server:
        assert server.stop() == (0, "")
        with pytest.raises(ConnectionError):
            server.get("/healthz")
