"""Gathering requests into batches: full ones go at once, lone ones do not wait, nobody is exchanged or lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from vitscope.serve.batcher import Batcher
from vitscope.serve.refusal import Refusal

FOREVER_S = 60.0


class Model:
    """Answers with the double, remembers its batches, and can be made to wait."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Semaphore(0)

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.entered.release()
        assert self.go.wait(FOREVER_S)
        self.batches.append(list(items))
        if 13 in items:
            raise RuntimeError("unlucky")
        return [2 * item for item in items]


def run(
    work: Callable[[Batcher[int, int], Model], Coroutine[Any, Any, None]],
    *,
    max_batch: int = 4,
    max_delay_s: float = FOREVER_S,
    model: Model | None = None,
) -> Model:
    model = model or Model()

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            batcher: Batcher[int, int] = Batcher(model, pool, max_batch=max_batch, max_delay_s=max_delay_s)
            batcher.start()
            try:
                await asyncio.wait_for(work(batcher, model), FOREVER_S / 2)
            finally:
                model.go.set()
                await batcher.stop()

    asyncio.run(main())
    return model


def test_a_lone_item_does_not_wait() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        with batcher.expecting() as here:
            waiting = batcher.put(1)
            here()
            assert await waiting == 2

    assert run(work).batches == [[1]]


def test_items_wait_for_those_that_are_expected() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        with batcher.expecting() as first, batcher.expecting() as second:
            one = batcher.put(1)
            first()
            await asyncio.sleep(0.05)
            assert model.batches == []
            two = batcher.put(2)
            second()
            assert [await one, await two] == [2, 4]

    assert run(work).batches == [[1, 2]]


def test_somebody_expected_who_brings_nothing_holds_nobody_up() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        with batcher.expecting() as here:
            waiting = batcher.put(1)
            here()
            here()
        try:
            with batcher.expecting():
                raise ValueError
        except ValueError:
            pass
        assert await waiting == 2

    run(work)


def test_a_full_batch_does_not_wait_and_none_is_larger() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        with batcher.expecting():
            waiting = [batcher.put(number) for number in range(8)]
            assert await asyncio.gather(*waiting) == [2 * number for number in range(8)]

    assert run(work).batches == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_after_the_delay_a_part_of_a_batch_goes() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        with batcher.expecting():
            assert await asyncio.gather(batcher.put(1), batcher.put(2)) == [2, 4]

    assert run(work, max_delay_s=0.05).batches == [[1, 2]]


def test_what_arrives_while_the_model_is_busy_gathers() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        first = batcher.put(0)
        await asyncio.get_running_loop().run_in_executor(None, model.entered.acquire)
        rest = [batcher.put(number) for number in range(1, 7)]
        assert batcher.waiting == 6
        model.go.set()
        assert await asyncio.gather(first, *rest) == [2 * number for number in range(7)]

    model = Model()
    model.go.clear()
    assert run(work, model=model).batches == [[0], [1, 2, 3, 4], [5, 6]]


def test_who_gives_up_is_left_out_and_the_others_are_answered() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        first = batcher.put(0)
        await asyncio.get_running_loop().run_in_executor(None, model.entered.acquire)
        rest = [batcher.put(number) for number in range(1, 5)]
        first.cancel()  # under way already
        rest[1].cancel()  # still waiting
        model.go.set()
        assert [await rest[0], await rest[2], await rest[3]] == [2, 6, 8]

    model = Model()
    model.go.clear()
    assert run(work, model=model).batches == [[0], [1, 3, 4]]


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_raises_fails_its_batch_only(caplog: pytest.LogCaptureFixture) -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        waiting = [batcher.put(number) for number in (1, 2, 13, 4, 5, 6)]
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [end.status if isinstance(end, Refusal) else end for end in ends] == [500] * 4 + [10, 12]

    run(work)
    assert "unlucky" in caplog.text


def test_a_model_that_answers_too_little_fails_instead_of_exchanging() -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            batcher: Batcher[int, int] = Batcher(lambda items: items[1:], pool, max_batch=4, max_delay_s=0)
            batcher.start()
            ends = await asyncio.gather(*(batcher.put(number) for number in range(3)), return_exceptions=True)
            assert [end.status for end in ends if isinstance(end, Refusal)] == [500] * 3
            await batcher.stop()

    asyncio.run(main())


def test_stopping_tells_those_who_wait() -> None:
    async def work(batcher: Batcher[int, int], model: Model) -> None:
        with batcher.expecting():
            waiting = batcher.put(1)
            await batcher.stop()
            assert waiting.cancelled()

    assert run(work).batches == []


def test_each_batch_is_told_of() -> None:
    told: list[int] = []

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            batcher: Batcher[int, int] = Batcher(
                Model(), pool, max_batch=2, max_delay_s=0, ran=lambda count, seconds: told.append(count)
            )
            batcher.start()
            await asyncio.gather(*(batcher.put(number) for number in (1, 2, 3)))
            await batcher.stop()

    asyncio.run(main())
    assert told == [2, 1]
