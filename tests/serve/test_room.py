"""Room for large pictures: never more pixels at a time than allowed, each in its turn, nothing kept by who left."""

from __future__ import annotations

import asyncio
import base64
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from serving import Served, picture
from vitscope.serve.room import SMALL_PIXELS, Room, Work

LARGE = 3 * SMALL_PIXELS
CLUMSY = """
import sys
from vitscope.serve.answers import Answers
prepare = Answers.prepare
def clumsy(self, upload):
    if upload.name == "1":
        raise KeyError("nobody thought of this")
    if upload.name == "2":
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    return prepare(self, upload)
Answers.prepare = clumsy
from vitscope.cli.main import main
sys.exit(main())
"""
COUNTING = """
import sys, time
from vitscope.serve import answers
decode, draw, here = answers.Answers.picture, answers.draw_overlay, []
def picture(self, upload):
    here.append(1)
    sys.stderr.write(f"decoded {len(here)}\\n")
    return decode(self, upload)
def slow(*given):
    time.sleep(0.05)
    try:
        return draw(*given)
    finally:
        here.pop()
answers.Answers.picture, answers.draw_overlay = picture, slow
from vitscope.cli.main import main
sys.exit(main())
"""


def test_large_pictures_are_decoded_as_far_as_there_is_room() -> None:
    lock, here, most = threading.Lock(), 0, 0

    def decode(pixels: int) -> int:
        nonlocal here, most
        with lock:
            here += pixels
            most = max(most, here)
        threading.Event().wait(0.01)
        with lock:
            here -= pixels
        return pixels

    async def all_of_them() -> list[int]:
        room = Room(2 * LARGE)
        with ThreadPoolExecutor(8) as pool:
            sizes = [LARGE, 2 * LARGE, LARGE + 1, LARGE - 1] * 5
            found = await asyncio.gather(*(room.run(pool, Work(lambda n=n: n, lambda n=n: decode(n))) for n in sizes))
            await asyncio.sleep(0)
            assert room.taken == 0
            return found if found == sizes else []

    assert asyncio.run(all_of_them())
    assert LARGE < most <= 2 * LARGE


def test_a_small_one_passes_and_who_left_keeps_the_room_until_the_thread_has_ended() -> None:
    async def story() -> list[str]:
        room, told = Room(LARGE), []
        begun, go = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            assert go.wait(60)

        with ThreadPoolExecutor(3) as pool:
            first = asyncio.ensure_future(room.run(pool, Work(lambda: LARGE, hold)))
            assert await asyncio.to_thread(begun.wait, 60)
            second = asyncio.ensure_future(room.run(pool, Work(lambda: LARGE, lambda: told.append("never"))))
            third = asyncio.ensure_future(room.run(pool, Work(lambda: LARGE, lambda: told.append("large"))))
            await room.run(pool, Work(lambda: 100, lambda: told.append("small")))
            first.cancel()
            second.cancel()
            await asyncio.wait([first, second])
            assert room.taken == LARGE
            told.append("left")
            go.set()
            await third
            return told

    assert asyncio.run(story()) == ["small", "left", "large"]


def test_one_picture_the_server_fails_on_does_not_take_the_others(small_model: Path) -> None:
    with Served(small_model, program=CLUMSY) as server:
        answer = server.post("/predict", *(picture(number) for number in range(4)))
        assert answer.status == 200
        assert [row.get("status") for row in answer.json()["predictions"]] == [None, 500, 503, None]
        assert "nobody thought of this" in server.log()
        assert "nobody" not in answer.body.decode()
        body, kind = b'{"images": [{"name": "2", "data": "%s"}]}', {"content-type": "application/json"}
        alone = server.ask("POST", "/predict", body % base64.b64encode(picture(0)), kind)
        assert (alone.status, alone.headers["retry-after"]) == (503, "1")


def test_pictures_wait_to_be_drawn_as_they_were_sent(small_model: Path) -> None:
    with Served(small_model, program=COUNTING) as server, ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(server.post, "/explain", picture(number)) for number in range(12)]
        assert [one.result().status for one in as_completed(asked)] == [200] * 12
        counts = [int(line.split()[1]) for line in server.log().splitlines() if line.startswith("decoded")]
        assert (len(counts), max(counts) <= 3) == (12, True), counts
