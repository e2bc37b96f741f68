"""A cluster as an engine: chunks of prompts go to workers, and their answers come back as they finish.

Each worker is a Ray actor with an engine of its own. The driver alone reads rows, writes the run, and knows
which worker has which chunk. It has as many chunks out as the workers can hold; an answer makes room for the
next. Each prompt is answered exactly once: a chunk goes out again only when its worker is lost, and what a lost
worker still returns is dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from localjudge.engines.batches import batches, longest_prompt
from localjudge.engines.cluster import Cluster
from localjudge.engines.output import output_to
from localjudge.engines.protocol import Completion, Decoding
from localjudge.engines.ray.placement import WorkerPlacement, connect
from localjudge.engines.ray.worker import RayWorkerSettings, Worker
from localjudge.engines.ray.worker_pool import PooledWorker, WorkerPool
from localjudge.errors import EngineError, LocalJudgeError, UsageError
from localjudge.models.model import Model, model_path
from localjudge.prompts.prompt import Prompt, until_stopped

CHUNKS, BATCHES = 16, 3
"""Chunks that a worker may have at a time. Each is an eighth of what the engine works on, so that it stays full
while the last prompts of some chunks are due; or a whole batch, and then two wait while it computes one."""

BEAT = 2.0
"""Seconds between two signs of life of a worker."""

_PAUSE = 10.0
"""Seconds before a worker that could not start is replaced."""

_PLACEMENT_SECONDS = 600.0
"""How long a cluster may take to find room for a worker while there is none."""

_FORWARDED = ("DO_NOT_TRACK", "HF_HOME", "HF_HUB_", "LOCALJUDGE_", "OMP_WAIT_POLICY", "TRANSFORMERS_", "VLLM_")
"""How the variables begin that workers get where their node does not set them."""

_log = logging.getLogger("localjudge.ray")
_LOGGERS = ("ray", _log.name)


class RayEngine:
    """Prompts through a pool of workers on a Ray cluster.

    Args:
        name: the engine of each worker.
        model: the model; it must be at the same path, or under the same id, on each worker's node.
        decoding: how answers are decoded.
        options: the options of each worker's engine.
        cluster: the cluster and its workers.
        context: the tokens that the longest prompt and its answer take, where that is known.
        log: a file for what happens to workers, and for what Ray has to say.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        decoding: Decoding,
        options: Mapping[str, str],
        cluster: Cluster,
        *,
        context: int | None = None,
        log: Path | None = None,
    ) -> None:
        self._log_to(log)
        self._was_connected = ray.is_initialized()
        with output_to(log or Path(os.devnull)):
            self._address = connect(cluster.address)
        try:
            self._place = WorkerPlacement(cluster, options, self._address)
        except UsageError:
            self._leave()
            raise
        self._pool = WorkerPool(self._place.workers[0], log)
        self._actor = ray.remote(
            num_cpus=self._place.cpus,
            num_gpus=self._place.gpus or None,
            max_concurrency=CHUNKS + 2,  # chunks, a beat, and the opening of the engine
            scheduling_strategy="SPREAD",
        )(Worker)
        self._settings = ray.put(
            RayWorkerSettings(
                engine=name,
                options=dict(options),
                context=context,
                model=str(model.path) if model_path(model.name).is_dir() else model.name,
                digest=model.digest,
                decoding=decoding,
                environment={key: value for key, value in os.environ.items() if key.startswith(_FORWARDED)},
            )
        )
        self._longest = longest_prompt(model.context, decoding.max_tokens)
        self._returns: SimpleQueue[tuple[PooledWorker, str, int, Future[Any]]] = SimpleQueue()
        self._counted: dict[PooledWorker, Mapping[str, Any]] = {}
        self._due: deque[float] = deque()
        self._last_placed = time.monotonic()
        atexit.register(self.close)
        try:
            for _ in range(self._place.workers[0]):
                self._start_worker()
            while self._pool.report is None:
                self._next_answers()
        except BaseException:
            self.close()
            raise
        self._about = self._pool.report

    def describe(self) -> Mapping[str, Any]:
        return {
            **self._about["description"],
            "ray": {
                "version": ray.__version__,
                "address": self._address,
                "workers": list(self._place.workers),
                "cpus_per_worker": self._place.cpus,
                "gpus_per_worker": self._place.gpus,
            },
        }

    def headline(self) -> str:
        fewest, most = self._place.workers
        bounds = str(most) if fewest == most else f"{fewest} to {most}"
        return (
            f"ray {ray.__version__} · {self._address} · {bounds} worker(s) of {self._place} · "
            f"{self._about['headline']}"
        )

    def statistics(self) -> Mapping[str, Any]:
        """The workers' counts, added up; what a worker counted after its last answer is lost with it."""
        total: Counter[str] = Counter()
        for counted in self._counted.values():
            total.update({name: value for name, value in counted.items() if isinstance(value, int | float)})
        return {**total, "workers_lost": self._pool.lost}

    def complete(self, prompts: Iterable[Prompt]) -> Iterator[list[Completion]]:
        chunks = self._chunks(prompts)
        try:
            while self._fill(chunks):
                if answers := self._next_answers():
                    yield answers
        finally:  # whoever asked may have heard enough: what is out must not come back in the next run
            self._pool.abandon_chunks()

    def _chunks(self, prompts: Iterable[Prompt]) -> Iterator[list[Prompt]]:
        """Prompts that go out together: batches as the workers' engine makes them, or else an eighth of what it
        works on at a time, so that it stays full while the last of some chunks are due."""
        about = self._about["description"]
        if size := about.get("batch_size"):
            for _, batch in batches(prompts, size, self._longest):
                yield batch
            return
        waiting = until_stopped(prompts)
        size = -(-about.get("max_num_seqs", 256) // 8)
        while chunk := list(islice(waiting, size)):
            yield chunk

    def _fill(self, chunks: Iterator[list[Prompt]]) -> bool:
        """Give the workers as many chunks as they can hold; whether any chunk is not answered.

        Where there are more chunks than that, one more worker starts.
        """
        capacity = BATCHES if "batch_size" in self._about["description"] else CHUNKS
        while True:
            if not self._pool.has_waiting and (chunk := next(chunks, None)):
                self._pool.put(chunk)
            if not self._pool.has_waiting:
                return not self._pool.is_idle
            if not (worker := self._pool.free_worker(capacity)):
                break
            number, chunk = self._pool.take(worker)
            self._call(worker, "answer", chunk, number=number)
        if not self._due and len(self._pool.placed) == len(self._pool.workers) < self._place.workers[1]:
            self._start_worker()
        return True

    def _start_worker(self) -> None:
        worker = self._pool.add(self._actor.remote())
        self._call(worker, "beat", 0.0)
        self._call(worker, "open", self._settings)

    def _call(self, worker: PooledWorker, method: str, *arguments: Any, number: int = 0) -> None:
        """Call a method of the actor; what it returns arrives in `_returns`."""
        reference = getattr(worker.actor, method).remote(*arguments)
        reference.future().add_done_callback(
            lambda returned: self._returns.put((worker, method, number, returned))
        )

    def _next_answers(self) -> list[Completion] | None:
        """Wait for what a worker returns, for a second at most, and act on it; the answers, if it is some.

        Raises:
            EngineError: there will be none.
            UsageError: a worker cannot start, as it was asked for what cannot be done.
        """
        if self._returns.empty():  # all that has arrived is heard
            self._look_after_workers()
        try:
            worker, method, number, returned = self._returns.get(timeout=1)
        except Empty:
            return None
        if worker not in self._pool.workers:
            return None
        try:
            result = returned.result()
            if method == "answer":
                self._counted[worker] = result.statistics
                return result.completions if self._pool.answered(worker, number) else None
            if method == "beat":
                self._pool.heard(worker, result)
                self._call(worker, "beat", BEAT)
            else:
                self._pool.started(worker, result)
        except RayTaskError as error:
            self._replace(worker, "failed" if method == "open" else "broke", error.cause)
        except EngineError as error:
            self._replace(worker, "failed", error)
        except RayError as error:
            _log.info("%s", error)
            reason = EngineError((str(error).strip() or repr(error)).splitlines()[-1])
            self._replace(worker, "lost", "its process ended" if worker.where else reason)
        return None

    def _replace(self, worker: PooledWorker, what: str, error: LocalJudgeError | str) -> None:
        with suppress(RayError):
            ray.kill(worker.actor)
        self._pool.lose(worker, what, error)
        if worker.report is None:
            self._due.append(time.monotonic() + _PAUSE)
        else:
            self._start_worker()

    def _look_after_workers(self) -> None:
        """Replace silent workers, and those that could not start when their time has come.

        Raises:
            EngineError: for too long the cluster has had no room for any worker.
        """
        for worker in self._pool.silent():
            self._replace(worker, "lost", "it fell silent")
        now = time.monotonic()
        while self._due and self._due[0] <= now:
            self._due.popleft()
            self._start_worker()
        if self._pool.placed:
            self._last_placed = now
        elif now - self._last_placed > _PLACEMENT_SECONDS:
            raise EngineError(
                f"the Ray cluster {self._address} found no room for a worker of {self._place} "
                f"in {_PLACEMENT_SECONDS / 60:.0f} minutes"
            )

    def _log_to(self, log: Path | None) -> None:
        self._handler: logging.Handler = logging.FileHandler(log) if log else logging.NullHandler()
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [self._handler], False
            logger.setLevel(logging.INFO if logger is _log else logging.WARNING)
        warnings.filterwarnings("ignore", module=r"ray\.")

    def close(self) -> None:
        """Leave the cluster, and end it where it was started here. Workers end at once."""
        atexit.unregister(self.close)
        for name in _LOGGERS:
            logging.getLogger(name).handlers = [logging.NullHandler()]
        self._handler.close()
        if not ray.is_initialized():
            return
        for worker in self._pool.workers:
            with suppress(RayError):
                ray.kill(worker.actor)
        self._leave()

    def _leave(self) -> None:
        if not self._was_connected:
            ray.shutdown()
