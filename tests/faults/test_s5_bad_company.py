"""S5: a corrupt picture, a client that leaves and a model that raises take nothing from the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from serving import Served, encoded, form, picture
from vitscope.infer.predictor import Predictor

CORRUPT = picture(0)[:-40]
TOUCHY = """
import sys, time
from vitscope.infer.predictor import Predictor
probabilities = Predictor.probabilities
def careful(self, images):
    time.sleep(0.2)
    if (images.flatten(1).amin(1) == 1).any():
        raise RuntimeError("this model hates white")
    if (images.flatten(1).amax(1) == -1).any():
        return probabilities(self, images) * float("nan")
    return probabilities(self, images)
Predictor.probabilities = careful
from vitscope.cli.main import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def touchy(small_model: Path) -> Iterator[Served]:
    """A server whose model takes its time, raises when a picture of its batch is all white, and gives no numbers where
    one is all black."""
    with Served(small_model, ["--max-batch", "1", "--queue", "16"], TOUCHY) as started:
        yield started


def labels(server: Served, files: list[bytes]) -> list[str | None]:
    return [row.get("label") for row in server.post("/predict", *files).json()["predictions"]]


def test_one_corrupt_among_16_requests(server: Served, small_model: Path) -> None:
    files = [picture(number) for number in range(16)]
    wanted = [told.label for told in Predictor.load(small_model, device="cpu").classify(files)]
    files[5] = CORRUPT
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda content: server.post("/predict", content), files))
    assert [answer.status for answer in answers] == [400 if number == 5 else 200 for number in range(16)]
    for number, answer in enumerate(answers):
        if number != 5:
            assert answer.json()["predictions"][0]["label"] == wanted[number]


def test_one_corrupt_among_16_of_one_request(server: Served) -> None:
    files = [picture(number) for number in range(16)]
    wanted = labels(server, files)
    files[5] = CORRUPT
    answer = server.post("/predict", *files)
    assert answer.status == 200
    rows = answer.json()["predictions"]
    assert rows[5]["status"] == 400
    assert rows[5]["error"]
    assert [row.get("label") for row in rows if row is not rows[5]] == wanted[:5] + wanted[6:]
    assert server.post("/predict", CORRUPT, CORRUPT).status == 400


def test_clients_that_leave_take_nobody_along(touchy: Served) -> None:
    """They leave while they upload, while they wait and while the model works."""
    body, kind = form([("a", picture(1))])
    for share in (0.5, 1.0, 1.0, 1.0):
        connection = touchy.connect()
        connection.putrequest("POST", "/predict")
        connection.putheader("Content-Type", kind["content-type"])
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[: int(share * len(body))])
        time.sleep(0.05)
        connection.close()
    assert touchy.post("/predict", picture(2)).status == 200
    end = time.monotonic() + 20
    while touchy.counted("vitscope_clients_left_total") < 4 and time.monotonic() < end:
        time.sleep(0.05)
    assert touchy.counted("vitscope_clients_left_total") == 4
    assert touchy.counted("vitscope_pictures_in_work") == 0
    assert touchy.counted("vitscope_batch_pictures_sum") <= 3, "the model looked at pictures nobody waited for"


def test_a_model_that_raises_is_a_500_for_its_batch(touchy: Served) -> None:
    white = encoded(Image.new("RGB", (32, 32), "white"))
    with ThreadPoolExecutor(3) as clients:
        answers = list(clients.map(lambda content: touchy.post("/predict", content), [picture(1), white, picture(2)]))
    assert [answer.status for answer in answers] == [200, 500, 200]
    assert "hates white" not in answers[1].body.decode(), "what a model says inside is for the log"
    assert "hates white" in touchy.log()
    rows = touchy.post("/predict", picture(1), white, picture(2)).json()["predictions"]
    assert [row.get("status", 200) for row in rows] == [200, 500, 200]
    assert touchy.get("/readyz").status == 200


def test_an_answer_without_numbers_is_a_500(touchy: Served) -> None:
    black = encoded(Image.new("RGB", (32, 32), "black"))
    answer = touchy.post("/predict", black)
    assert (answer.status, answer.json()["error"]) == (500, "the model's answer is not a number")
    assert touchy.post("/predict", picture(1)).status == 200
