"""Where chunks are kept while a cluster works on them: one worker answers each, whoever goes or comes."""

from __future__ import annotations

import asyncio

import pytest

from localjudge.engines.ray.work_queue import PATIENCE, SILENCE, WorkerEvent, WorkQueue

ABOUT = {"description": {}, "headline": ""}
SETTINGS = {"engine": "transformers", "dtype": "float32"}


class Driver:
    """An exchange in this process, asked step by step."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.seconds = 0.0
        self.exchange = WorkQueue(clock=lambda: self.seconds)
        self.stream = self.ask(self.exchange.open_stream())

    def ask(self, question):  # type: ignore[no-untyped-def]
        return self._loop.run_until_complete(asyncio.wait_for(question, 1))

    def put(self, *numbers: int, answered: tuple[int, ...] = ()) -> None:
        self.ask(self.exchange.put(dict.fromkeys(numbers, b"chunk"), list(answered)))

    def take(self) -> int | None:
        try:
            taken = self.ask(asyncio.wait_for(self.exchange.take(self.stream), 0.001))
        except TimeoutError:
            return None
        return taken and taken[0]

    def start(self, worker: str, slot: str | None = None) -> None:
        self.ask(self.exchange.starting(worker, slot or worker, None, "node"))

    def claim(self, worker: str, number: int) -> bool:
        return self.ask(self.exchange.claim(worker, number))

    def news(self) -> list[tuple[str, str]]:
        told: list[WorkerEvent] = self.ask(self.exchange.news())
        return [(each.worker, each.what) for each in told]

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def driver():  # type: ignore[no-untyped-def]
    driver = Driver()
    yield driver
    driver.close()


def test_chunks_leave_in_their_order_and_once(driver: Driver) -> None:
    driver.put(1, 2)
    assert [driver.take() for _ in range(3)] == [1, 2, None]


def test_a_chunk_has_one_worker(driver: Driver) -> None:
    driver.start("a")
    driver.start("b")
    driver.put(1)
    driver.take()
    assert [driver.claim("a", 1), driver.claim("b", 1), driver.claim("a", 1)] == [True, False, False]


def test_what_is_answered_is_nobodys(driver: Driver) -> None:
    driver.start("a")
    driver.put(1)
    driver.take()
    driver.put(answered=(1,))
    assert not driver.claim("a", 1)


def test_what_a_worker_had_goes_out_again_when_its_process_is_replaced(driver: Driver) -> None:
    driver.start("a", "slot")
    driver.put(1, 2)
    assert [driver.take(), driver.take(), driver.claim("a", 1)] == [1, 2, True]
    driver.start("b", "slot")
    assert [driver.take(), driver.take()] == [1, None]
    assert [driver.claim("b", 1), driver.claim("b", 2)] == [True, True]
    assert driver.news() == [("a", "starting"), ("a", "lost"), ("b", "starting")]


def test_what_a_broken_worker_had_goes_out_again(driver: Driver) -> None:
    driver.start("a")
    driver.put(1)
    assert driver.take() == 1
    driver.claim("a", 1)
    driver.ask(driver.exchange.ended("a", "broke", "no memory", "EngineError"))
    assert driver.take() == 1
    assert driver.news() == [("a", "starting"), ("a", "broke")]


def test_a_worker_that_falls_silent_is_lost_and_one_that_comes_back_is_not(driver: Driver) -> None:
    driver.start("a")
    driver.put(1)
    driver.take()
    driver.claim("a", 1)
    driver.seconds = SILENCE
    assert driver.news() == [("a", "starting")]
    driver.seconds = 1.1 * SILENCE
    assert driver.news() == [("a", "lost")]
    assert driver.news() == []
    assert driver.take() == 1
    assert driver.claim("a", 1)
    driver.seconds = 2 * SILENCE
    assert driver.news() == []


def test_a_chunk_that_nobody_claims_goes_out_again_and_ever_more_rarely(driver: Driver) -> None:
    driver.start("a")
    driver.put(1)
    assert driver.take() == 1
    taken = []
    for second in range(1, round(8 * PATIENCE)):
        driver.seconds = second
        driver.ask(driver.exchange.beat("a"))
        driver.news()
        if driver.take():
            taken.append(driver.seconds)
    assert taken == [PATIENCE + 1, 3 * PATIENCE + 2, 7 * PATIENCE + 3]


def test_a_new_stream_gets_all_that_is_not_answered_and_the_old_one_ends(driver: Driver) -> None:
    driver.start("a")
    driver.put(1, 2, 3)
    driver.take()
    driver.claim("a", 1)
    driver.put(answered=(2,))
    old = driver.stream
    driver.stream = driver.ask(driver.exchange.open_stream())
    assert driver.ask(driver.exchange.take(old)) is None
    assert [driver.take() for _ in range(3)] == [1, 3, None]


def test_a_worker_that_would_judge_otherwise_is_turned_away(driver: Driver) -> None:
    driver.start("a")
    driver.start("b")
    assert driver.ask(driver.exchange.ready("a", ABOUT, SETTINGS)) is None
    refusal = driver.ask(driver.exchange.ready("b", ABOUT, SETTINGS | {"dtype": "bfloat16"}))
    assert refusal == "dtype: bfloat16, and float32 elsewhere"
