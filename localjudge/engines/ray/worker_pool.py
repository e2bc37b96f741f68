"""The workers of a cluster and their chunks of prompts, as the driver tracks them.

Only the driver knows which worker has which chunk. A chunk waits here or belongs to one worker. If a worker is
lost, its chunks are sent again before all others. This module does not use Ray.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localjudge.engines.protocol import EngineInfo
from localjudge.errors import EngineError, LocalJudgeError, ModelError, UsageError
from localjudge.prompts.task import Prompt

SILENCE, OPENING_SILENCE = 15.0, 60.0
"""Seconds without a heartbeat after which a worker is lost: once it is ready, and while it opens its engine.
Opening imports libraries, which can stop a process's other threads for many seconds on a slow disk. Ray itself
needs about a minute to notice that a host no longer answers."""

MOST_DEATHS = 3
"""Deaths per worker, without any answer between them, after which the engine gives up."""

_log = logging.getLogger("localjudge.ray")


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The report of a worker whose engine is ready.

    Attributes:
        engine: its engine.
        localjudge: the version of localjudge on its node.
    """

    engine: EngineInfo
    localjudge: str

    @property
    def shared_settings(self) -> dict[str, str]:
        """The settings that all workers of a run must share."""
        return {"engine": self.engine.name, "dtype": self.engine.dtype, "localjudge": self.localjudge}


@dataclass(slots=True, eq=False)
class PooledWorker:
    """One worker, from its start to its end. A replacement is a new `PooledWorker`.

    Attributes:
        actor: its Ray handle.
        where: its node and process; empty until the cluster has placed it.
        seen: the time of its last heartbeat.
        report: what it reported when its engine was ready; None until then.
        chunks: the numbers of its chunks.
        calls: the number of its calls in progress: its chunks, and abandoned chunks that it still computes.
    """

    actor: Any
    where: str = ""
    seen: float = 0.0
    report: WorkerReport | None = None
    chunks: set[int] = field(default_factory=set)
    calls: int = 0


class WorkerPool:
    """Assigns chunks to workers, tracks ready and lost workers, decides when to give up, and writes the log.

    Args:
        wanted: once this many workers have been ready, a worker that cannot start is replaced instead of
            ending the run.
        log: the path of the log, for messages.
        clock: returns seconds from any origin.

    Attributes:
        workers: the workers that are not lost.
        report: the report of the first ready worker; None until then.
        lost: the number of workers that were ready and are lost.
    """

    def __init__(self, wanted: int, log: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.workers: list[PooledWorker] = []
        self.report: WorkerReport | None = None
        self.lost = 0
        self._wanted = wanted
        self._log = log
        self._clock = clock
        self._chunks: dict[int, list[Prompt]] = {}
        self._waiting: deque[int] = deque()
        self._number = 0
        self._ever_ready = self._most_placed = self._deaths = 0
        self._reason = "the memory is often too small"

    @property
    def ready(self) -> list[PooledWorker]:
        return [worker for worker in self.workers if worker.report is not None]

    @property
    def placed(self) -> list[PooledWorker]:
        """Workers that the cluster has placed."""
        return [worker for worker in self.workers if worker.where]

    # Chunks

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Return whether every chunk is answered."""
        return not self._chunks

    def put(self, chunk: list[Prompt]) -> None:
        """Add a chunk to be answered."""
        self._number += 1
        self._chunks[self._number] = chunk
        self._waiting.append(self._number)

    def free_worker(self, capacity: int) -> PooledWorker | None:
        """Return the ready worker with the fewest calls, if it has fewer than `capacity`."""
        worker = min(self.ready, key=lambda each: each.calls, default=None)
        return worker if worker and worker.calls < capacity else None

    def take(self, worker: PooledWorker) -> tuple[int, list[Prompt]]:
        """Assign the next chunk to this worker; return its number and its prompts."""
        number = self._waiting.popleft()
        worker.chunks.add(number)
        worker.calls += 1
        return number, self._chunks[number]

    def answered(self, worker: PooledWorker, number: int) -> bool:
        """Remove a chunk from its worker. Return whether its answers are wanted: it was not abandoned."""
        worker.calls -= 1
        self._deaths = 0
        if number not in worker.chunks:
            return False
        worker.chunks.remove(number)
        del self._chunks[number]
        return True

    def abandon_chunks(self) -> None:
        """Forget all chunks; later answers to chunks in flight are ignored."""
        self._chunks.clear()
        self._waiting.clear()
        for worker in self.workers:
            worker.chunks.clear()

    # Workers

    def add(self, actor: Any) -> PooledWorker:
        self.workers.append(worker := PooledWorker(actor))
        return worker

    def heard(self, worker: PooledWorker, where: str) -> None:
        """Record a heartbeat; the first one means that the worker is placed."""
        worker.seen = self._clock()
        if not worker.where:
            worker.where = where
            self._most_placed = max(self._most_placed, len(self.placed))
            _log.info("worker on %s: starting", where)

    def silent(self) -> list[PooledWorker]:
        """Return the workers without a heartbeat for too long."""
        now = self._clock()
        return [
            worker
            for worker in self.placed
            if now - worker.seen > (SILENCE if worker.report else OPENING_SILENCE)
        ]

    def started(self, worker: PooledWorker, report: WorkerReport) -> None:
        """Record that a worker's engine is ready.

        Raises:
            EngineError: it would judge differently from the first worker: its `shared_settings` differ.
        """
        found, expected = report.shared_settings, (self.report or report).shared_settings
        if different := [name for name, value in expected.items() if found[name] != value]:
            raise EngineError(
                "; ".join(f"{name}: {found[name]}, but {expected[name]} elsewhere" for name in different)
            )
        self.report = self.report or report
        worker.report = report
        self._ever_ready += 1
        _log.info("worker on %s: ready", worker.where)

    def lose(self, worker: PooledWorker, what: str, error: LocalJudgeError | str) -> None:
        """Remove a worker; its chunks are sent again before all others.

        Args:
            worker: the worker.
            what: `failed` (to start), `broke` (its engine), or `lost` (its process ended, or it is silent).
            error: the reason.

        Raises:
            EngineError: workers keep dying; or one cannot start before `wanted` workers were ready.
            UsageError: `error` is a UsageError: the worker cannot start with the given options.
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
            died = f"workers ended {self._deaths} times without finishing a row"
            raise EngineError(f"{died}: {self._reason}{see}")
