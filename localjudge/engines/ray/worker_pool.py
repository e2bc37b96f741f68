"""The workers of a cluster and the chunks of prompts that they have, as the driver knows them.

The driver alone knows which worker has which chunk. A chunk waits here, or one worker has it; when a worker is
lost, its chunks go out again before all others. Nothing here touches Ray.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localjudge.errors import EngineError, LocalJudgeError, ModelError, UsageError
from localjudge.prompts.prompt import Prompt

SILENCE = 15.0
"""Seconds without a sign of life after which a worker is lost. Ray itself needs about a minute to notice that a
host no longer answers."""

MOST_DEATHS = 3
"""Deaths for each worker, with no answer from any between them, after which the engine is given up."""

_log = logging.getLogger("localjudge.ray")


@dataclass(slots=True, eq=False)
class PooledWorker:
    """One worker, from its start to its end. Another one replaces it.

    Attributes:
        actor: its handle.
        where: its node and process; empty until the cluster has room for it.
        seen: the time of its last sign of life.
        report: what it says of its engine; None until that is ready.
        chunks: the numbers of the chunks that it has.
        calls: how many of its calls are under way: those chunks, and abandoned ones that it still computes.
    """

    actor: Any
    where: str = ""
    seen: float = 0.0
    report: Mapping[str, Any] | None = None
    chunks: set[int] = field(default_factory=set)
    calls: int = 0


class WorkerPool:
    """Says which worker gets which chunk, who is ready, who is lost, and when to give up; writes it to the log.

    Args:
        wanted: the number of workers that must have been ready before one that cannot start is replaced
            instead of ending the run.
        log: the path of the log, for messages.
        clock: seconds, from any start.

    Attributes:
        workers: those that are not lost.
        report: what the first ready worker said of its engine; None until one was ready.
        lost: how many were ready and are lost.
    """

    def __init__(self, wanted: int, log: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.workers: list[PooledWorker] = []
        self.report: Mapping[str, Any] | None = None
        self.lost = 0
        self._wanted = wanted
        self._log = log
        self._clock = clock
        self._chunks: dict[int, list[Prompt]] = {}
        self._waiting: deque[int] = deque()
        self._number = 0
        self._ever_ready = self._most_placed = self._deaths = 0
        self._reason = "often the memory is too small"

    @property
    def ready(self) -> list[PooledWorker]:
        return [worker for worker in self.workers if worker.report is not None]

    @property
    def placed(self) -> list[PooledWorker]:
        """Workers that the cluster has found room for."""
        return [worker for worker in self.workers if worker.where]

    # Chunks

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether every chunk is answered."""
        return not self._chunks

    def put(self, chunk: list[Prompt]) -> None:
        """Add a chunk to be answered."""
        self._number += 1
        self._chunks[self._number] = chunk
        self._waiting.append(self._number)

    def free_worker(self, capacity: int) -> PooledWorker | None:
        """The ready worker with the fewest calls, if it has fewer than `capacity`."""
        worker = min(self.ready, key=lambda each: each.calls, default=None)
        return worker if worker and worker.calls < capacity else None

    def take(self, worker: PooledWorker) -> tuple[int, list[Prompt]]:
        """The next chunk, with its number; from now on this worker has it."""
        number = self._waiting.popleft()
        worker.chunks.add(number)
        worker.calls += 1
        return number, self._chunks[number]

    def answered(self, worker: PooledWorker, number: int) -> bool:
        """Whether the answers to this chunk are wanted: it was not abandoned."""
        worker.calls -= 1
        self._deaths = 0
        if number not in worker.chunks:
            return False
        worker.chunks.remove(number)
        del self._chunks[number]
        return True

    def abandon_chunks(self) -> None:
        """Forget all chunks; answers to those that are out are not wanted any more."""
        self._chunks.clear()
        self._waiting.clear()
        for worker in self.workers:
            worker.chunks.clear()

    # Workers

    def add(self, actor: Any) -> PooledWorker:
        self.workers.append(worker := PooledWorker(actor))
        return worker

    def heard(self, worker: PooledWorker, where: str) -> None:
        """Note a sign of life; the first one says that the worker has a place."""
        worker.seen = self._clock()
        if not worker.where:
            worker.where = where
            self._most_placed = max(self._most_placed, len(self.placed))
            _log.info("worker on %s: starting", where)

    def silent(self) -> list[PooledWorker]:
        """Workers without a sign of life for too long."""
        return [worker for worker in self.placed if self._clock() - worker.seen > SILENCE]

    def started(self, worker: PooledWorker, report: Mapping[str, Any]) -> None:
        """Its engine is ready.

        Raises:
            EngineError: it would judge otherwise than the first one: its `decisive` settings differ.
        """
        expected = (self.report or report)["decisive"]
        if different := [name for name, value in expected.items() if report["decisive"][name] != value]:
            raise EngineError(
                "; ".join(
                    f"{name}: {report['decisive'][name]}, and {expected[name]} elsewhere" for name in different
                )
            )
        self.report = self.report or report
        worker.report = report
        self._ever_ready += 1
        _log.info("worker on %s: ready", worker.where)

    def lose(self, worker: PooledWorker, what: str, error: LocalJudgeError | str) -> None:
        """Remove a worker; its chunks go out again, first.

        Args:
            worker: which one.
            what: `failed` (to start), `broke` (its engine), or `lost` (its process ended, or it is silent).
            error: why.

        Raises:
            EngineError: workers only die; or one cannot start, before as many were ready as are wanted.
            UsageError: as an error of that kind: it cannot start, as it was asked for what cannot be done.
        """
        self.workers.remove(worker)
        self._waiting.extendleft(sorted(worker.chunks, reverse=True))
        self.lost += worker.report is not None
        self._deaths += 1
        where = f"worker on {worker.where}" if worker.where else "a new worker"
        _log.info("%s: %s: %s", where, what, error)
        if isinstance(error, LocalJudgeError):
            self._reason = f"{where}: {error}"
        if what == "failed" and self._ever_ready < self._wanted:
            kind = next((kind for kind in (ModelError, UsageError) if isinstance(error, kind)), EngineError)
            raise kind(f"{where} cannot start: {error}")
        if self._deaths >= MOST_DEATHS * max(1, self._most_placed):
            see = f"; see {self._log}" if self._log else ""
            raise EngineError(f"workers ended {self._deaths} times with no row finished: {self._reason}{see}")
