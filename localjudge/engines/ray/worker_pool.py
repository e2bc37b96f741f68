"""The workers of a cluster: how many it can hold, and their chunks of prompts, as the driver tracks them.

Only the driver knows which worker has which chunk. A chunk waits here or belongs to one worker. If a worker is
lost, its chunks are sent again before all others. This module does not use Ray.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localjudge.engines.engine_options import LOCAL, Cluster
from localjudge.engines.protocol import EngineInfo, types_in_words
from localjudge.errors import EngineError, LocalJudgeError, ModelError, SettingError, UsageError
from localjudge.prompts.task import Prompt

MOST_DEATHS = 3
"""Deaths per worker, without any answer between them, after which the engine gives up."""

_log = logging.getLogger("localjudge.ray")


class WorkerPlacement:
    """The number and the size of workers.

    Args:
        cluster: the requested cluster and workers.
        options: the engine's options; `tensor_parallel_size` is the number of GPUs that it uses.
        address: the address of the joined cluster.
        nodes: the resources of its nodes, by Ray's names.

    Attributes:
        workers: minimum and maximum.
        gpus: GPUs per worker.
        cpus: CPUs per worker. Workers without GPUs share all CPUs evenly; none has more than one node has.

    Raises:
        SettingError: this machine cannot hold the workers. (Another cluster may grow.)
    """

    def __init__(
        self,
        cluster: Cluster,
        options: Mapping[str, str],
        address: str,
        nodes: Sequence[Mapping[str, float]],
    ) -> None:
        gpus = [node.get("GPU", 0.0) for node in nodes]
        cpus = [node["CPU"] for node in nodes if node.get("CPU", 0.0) >= 1] or [1.0]
        parallel = options.get("tensor_parallel_size", "1")
        usual_gpus = float(parallel) if any(gpus) and parallel.isdigit() else 0.0
        self.gpus = usual_gpus if cluster.gpus_per_worker is None else cluster.gpus_per_worker
        if self.gpus:
            self.cpus = 1.0
            usual = room = sum(int(each // self.gpus) for each in gpus)
        else:
            usual = sum(max(1, int(each // 2)) for each in cpus)
            most = cluster.workers[1] if cluster.workers else usual
            self.cpus = float(max(1, min(sum(cpus) // most, *cpus)))
            room = sum(int(each // self.cpus) for each in cpus)
        fewest, most = cluster.workers or (max(1, usual), max(1, usual))
        if address == LOCAL and fewest > room:
            has = f"{sum(cpus):g} CPUs, {sum(gpus):g} GPUs"
            advice = f"this machine has room for {room} worker(s) of {self} ({has}); give fewer"
            raise SettingError("num_workers", fewest, advice)
        self.workers = (fewest, min(most, room) if address == LOCAL else most)

    def __str__(self) -> str:
        return f"{self.gpus:g} GPU" if self.gpus else f"{self.cpus:g} CPU"


@dataclass(slots=True, eq=False)
class PooledWorker:
    """One worker, from its start to its end. A replacement is a new `PooledWorker`.

    Attributes:
        actor: its Ray handle.
        where: its node and process; empty until the cluster has placed it.
        engine: the description of its engine; None until it is ready.
        chunks: the numbers of its chunks.
        calls: the number of its calls in progress: its chunks, and abandoned chunks that it still computes.
    """

    actor: Any
    where: str = ""
    engine: EngineInfo | None = None
    chunks: set[int] = field(default_factory=set)
    calls: int = 0


class WorkerPool:
    """Assigns chunks to workers, tracks ready and lost workers, decides when to give up, and writes the log.

    Args:
        log: the path of the log, for messages.

    Attributes:
        wanted: once this many workers have been ready, a worker that cannot start is replaced instead of
            ending the run.
        workers: the workers that are not lost.
        engine: the engine of the first ready worker; None until then.
        lost: the number of workers that were ready and are lost.
    """

    def __init__(self, log: Path | None) -> None:
        self.wanted = 1
        self.workers: list[PooledWorker] = []
        self.engine: EngineInfo | None = None
        self.lost = 0
        self._log = log
        self._chunks: dict[int, list[Prompt]] = {}
        self._waiting: deque[int] = deque()
        self._number = self._ever_ready = self._most_placed = self._deaths = 0
        self._reason = "the memory is often too small"

    @property
    def placed(self) -> list[PooledWorker]:
        """Workers that the cluster has placed."""
        return [worker for worker in self.workers if worker.where]

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
        ready = [worker for worker in self.workers if worker.engine and worker.calls < capacity]
        return min(ready, key=lambda each: each.calls, default=None)

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

    def add(self, actor: Any) -> PooledWorker:
        self.workers.append(worker := PooledWorker(actor))
        return worker

    def place(self, worker: PooledWorker, where: str) -> None:
        """Record that the cluster has placed a worker."""
        worker.where = where
        self._most_placed = max(self._most_placed, len(self.placed))
        _log.info("worker on %s: starting", where)

    def started(self, worker: PooledWorker, engine: EngineInfo) -> None:
        """Record that a worker's engine is ready.

        Raises:
            EngineError: it would judge differently from the first worker.
        """
        self.engine = self.engine or engine
        if engine.settings != self.engine.settings:
            here = _in_words(engine)
            elsewhere = _in_words(self.engine)
            raise EngineError(f"its engine is {here}, but {elsewhere} elsewhere")
        worker.engine = engine
        self._ever_ready += 1
        _log.info("worker on %s: ready", worker.where)

    def lose(self, worker: PooledWorker, what: str, error: LocalJudgeError | str) -> None:
        """Remove a worker; its chunks are sent again before all others.

        Args:
            worker: the worker.
            what: `failed` (to start), `broke` (its engine), or `lost` (its process ended).
            error: the reason.

        Raises:
            EngineError: workers keep dying; or one cannot start before `wanted` workers were ready.
            UsageError: `error` is a UsageError: the worker cannot start with the given options.
        """
        self.workers.remove(worker)
        self._waiting.extendleft(sorted(worker.chunks, reverse=True))
        self.lost += worker.engine is not None
        self._deaths += 1
        where = f"worker on {worker.where}" if worker.where else "a new worker"
        _log.info("%s: %s: %s", where, what, error)
        if isinstance(error, LocalJudgeError):
            self._reason = f"{where}: {error}"
        if what == "failed" and self._ever_ready < self.wanted:
            kind = next((kind for kind in (ModelError, UsageError) if isinstance(error, kind)), EngineError)
            raise kind(f"{where} cannot start: {error}")
        if self._deaths >= MOST_DEATHS * max(1, self._most_placed):
            see = f"; see {self._log}" if self._log else ""
            died = f"workers ended {self._deaths} times without finishing a row"
            raise EngineError(f"{died}: {self._reason}{see}")


def _in_words(engine: EngineInfo) -> str:
    """Return the settings of an engine that decide a judgement, for people."""
    return f"{engine.name} in {types_in_words(engine.dtype, engine.head_dtype)}"
