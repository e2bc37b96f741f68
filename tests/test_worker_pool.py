"""Tests of the worker pool: the assignment of chunks to workers that start and end, and the end of the pool."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from localjudge.engines.protocol import EngineInfo
from localjudge.engines.ray.worker_pool import MOST_DEATHS, PooledWorker, WorkerPool
from localjudge.errors import EngineError, ModelError, UsageError
from localjudge.prompts.task import Prompt

ENGINE = EngineInfo(
    name="transformers",
    dtype="float32",
    device="cpu",
    versions={},
    applies_table=True,
    batch_size=4,
    headline="",
)
ROOM = 3


class Cluster:
    """A pool of workers that the test starts and ends."""

    def __init__(self) -> None:
        self.pool = WorkerPool(Path("engine.log"))

    def place(self) -> PooledWorker:
        worker = self.pool.add(actor=None)
        self.pool.place(worker, f"node {len(self.pool.workers)}")
        return worker

    def start(self) -> PooledWorker:
        self.pool.started(worker := self.place(), ENGINE)
        return worker

    def put(self, count: int) -> None:
        for tag in range(count):
            self.pool.put([Prompt(tag, [1, 2], seed=0)])

    def send(self) -> list[tuple[PooledWorker, int]]:
        """Assign chunks up to the workers' capacity; return the worker and the number of each."""
        sent = []
        while self.pool.has_waiting and (worker := self.pool.free_worker(ROOM)):
            sent.append((worker, self.pool.take(worker)[0]))
        return sent


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_chunks_leave_in_their_order_once_and_as_many_as_a_worker_may_have(cluster: Cluster) -> None:
    worker = cluster.start()
    cluster.put(ROOM + 1)
    assert cluster.send() == [(worker, 1), (worker, 2), (worker, 3)]
    assert cluster.send() == []
    assert cluster.pool.answered(worker, 2)
    assert cluster.send() == [(worker, 4)]


def test_a_chunk_goes_to_the_worker_with_the_fewest(cluster: Cluster) -> None:
    one, two = cluster.start(), cluster.start()
    cluster.put(4)
    assert cluster.send() == [(one, 1), (two, 2), (one, 3), (two, 4)]
    assert cluster.pool.answered(two, 2)
    cluster.put(1)
    assert cluster.send() == [(two, 5)]


def test_a_worker_gets_nothing_before_its_engine_is_ready(cluster: Cluster) -> None:
    cluster.place()
    cluster.put(1)
    assert cluster.send() == []


@pytest.mark.parametrize(
    ("what", "error"), [("lost", "its process ended"), ("broke", EngineError("no memory"))]
)
def test_what_a_worker_that_is_gone_had_goes_out_again_before_all_others(
    cluster: Cluster, what: str, error: EngineError | str
) -> None:
    one = cluster.start()
    cluster.put(ROOM + 1)
    cluster.send()
    assert cluster.pool.answered(one, 2)
    cluster.pool.lose(one, what, error)
    assert cluster.pool.lost == 1
    two = cluster.start()
    assert cluster.send() == [(two, 1), (two, 3), (two, 4)]
    assert not cluster.pool.is_idle
    assert all(cluster.pool.answered(two, number) for number in (1, 3, 4))
    assert cluster.pool.is_idle


def test_answers_to_abandoned_chunks_are_not_wanted_and_make_room_when_they_come(cluster: Cluster) -> None:
    worker = cluster.start()
    cluster.put(ROOM + 2)
    cluster.send()
    cluster.pool.abandon_chunks()
    assert cluster.pool.is_idle
    cluster.put(1)
    assert cluster.send() == []
    assert not cluster.pool.answered(worker, 1)
    assert cluster.send() == [(worker, ROOM + 3)]


def test_a_worker_that_would_judge_otherwise_is_turned_away(cluster: Cluster) -> None:
    cluster.start()
    other = ENGINE.model_copy(update={"dtype": "bfloat16"})
    said = r"^its engine is transformers in bfloat16, but transformers in float32 elsewhere$"
    with pytest.raises(EngineError, match=said):
        cluster.pool.started(cluster.place(), other)


@pytest.mark.parametrize("kind", [UsageError, ModelError, EngineError])
def test_a_worker_that_cannot_start_says_why_until_as_many_as_are_wanted_were_ready(
    kind: type[UsageError], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "localjudge.ray")
    cluster = Cluster()
    cluster.pool.wanted = 2
    cluster.start()
    with pytest.raises(kind, match="worker on node 2 cannot start: no weights") as caught:
        cluster.pool.lose(cluster.place(), "failed", kind("no weights"))
    assert caught.type is kind
    cluster.start()
    cluster.pool.lose(cluster.place(), "failed", kind("no weights"))
    assert "worker on node 3: failed: no weights" in caplog.text


def test_workers_that_only_die_end_the_run_with_the_reason(cluster: Cluster) -> None:
    for _ in range(MOST_DEATHS - 1):
        cluster.pool.lose(cluster.start(), "broke", EngineError("no memory"))
    with pytest.raises(EngineError) as caught:
        cluster.pool.lose(cluster.start(), "lost", "its process ended")
    said = "workers ended 3 times without finishing a row: worker on node 1: no memory; see engine.log"
    assert str(caught.value) == said


def test_a_worker_that_died_before_it_had_a_place_is_a_reason_too(cluster: Cluster) -> None:
    def lose() -> None:
        cluster.pool.lose(cluster.pool.add(actor=None), "lost", EngineError("no module named localjudge"))

    for _ in range(MOST_DEATHS - 1):
        lose()
    with pytest.raises(
        EngineError, match="without finishing a row: a new worker: no module named localjudge; see"
    ):
        lose()


def test_a_node_that_takes_all_its_workers_along_does_not_end_the_run(cluster: Cluster) -> None:
    for worker in [cluster.start() for _ in range(MOST_DEATHS + 1)]:
        cluster.pool.lose(worker, "lost", "its process ended")


def test_a_row_that_is_finished_between_deaths_is_hope(cluster: Cluster) -> None:
    for _ in range(2 * MOST_DEATHS):
        worker = cluster.start()
        cluster.put(1)
        ((_, number),) = cluster.send()
        cluster.pool.answered(worker, number)
        cluster.pool.lose(worker, "lost", "its process ended")
