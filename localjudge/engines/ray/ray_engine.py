"""A Ray cluster as an engine: workers get chunks of prompts and return answers as they finish.

Each worker is a Ray actor with an engine of its own. Only the driver reads rows, writes the run, and knows
which worker has which chunk. It sends as many chunks as the workers can hold; each answered chunk makes room
for the next. Each prompt is answered exactly once: a chunk is sent again only if its worker is lost, and late
answers of a lost worker are dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from localjudge.engines.engine_log import LogFormatter, output_to
from localjudge.engines.engine_options import AUTO, LOCAL, Cluster
from localjudge.engines.prompt_batches import batches, chunks, rotates_by_batch
from localjudge.engines.protocol import Completion, Decoding, EngineInfo
from localjudge.engines.ray.worker import RayWorkerSettings, Worker, digests_of
from localjudge.engines.ray.worker_pool import PooledWorker, WorkerPlacement, WorkerPool
from localjudge.errors import EngineError, LocalJudgeError, SettingError, in_one_line
from localjudge.models.catalogue import model_path
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt
from localjudge.secret_options import is_secret_name
from localjudge.secret_texts import without_secrets

CHUNKS, BATCHES = 16, 3
"""Chunks that a worker may have at a time. A chunk is an eighth of the prompts that the engine has in flight,
so that it stays full while the last prompts of some chunks finish; or it is a whole batch, and then two wait
while the engine computes one."""

_PAUSE = 10.0
"""Seconds before a worker that could not start is replaced."""

_PLACEMENT_SECONDS = 600.0
"""Seconds that a cluster may take to place a worker while it has none."""

_FORWARDED = ("DO_NOT_TRACK", "HF_HOME", "HF_HUB_", "LOCALJUDGE_", "OMP_WAIT_POLICY", "TRANSFORMERS_", "VLLM_")
"""Prefixes of environment variables that workers get if their node does not set them."""

_QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
# Of a Ray that is started here: prompts and answers are small. The invalid port makes it run without its API
# server, which logs one error line. Without a dashboard, that server only collects usage statistics. Even when
# they are switched off, it sends requests to the metadata services of clouds, which no setting prevents
# (`get_cloud_from_metadata_requests`).
_OWN = {"include_dashboard": False, "dashboard_port": -1, "object_store_memory": 200 * 2**20}
_REACH_SECONDS = 10.0

_WITNESS = """
import sys
if not sys.stdin.buffer.read(1):
    print("localjudge: ended by Ray, one of whose processes died, or from outside; the same command continues",
          file=sys.stderr)
"""
"""A program that says why this process is gone. Ray ends a process at once, without an exception, if the raylet
or the control service that it is connected to dies."""

_log = logging.getLogger("localjudge.ray")
_LOGGERS = (logging.getLogger("ray"), _log)


class RayEngine:
    """Completes prompts with a pool of workers on a Ray cluster.

    Args:
        name: the engine of each worker.
        model: the model; it must be at the same path, or under the same id, on each worker's node.
        decoding: how answers are decoded.
        options: the options of each worker's engine.
        cluster: the cluster and its workers.
        context: the most tokens of a prompt and its answer, if known.
        log: a file for events of workers and messages of Ray.
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
        self._handler: logging.Handler = logging.FileHandler(log) if log else logging.NullHandler()
        self._handler.setFormatter(LogFormatter())
        for logger in _LOGGERS:
            logger.handlers, logger.propagate = [self._handler], False
            logger.setLevel(logging.INFO if logger is _log else logging.WARNING)
        warnings.filterwarnings("ignore", module=r"ray\.")
        self._witness = subprocess.Popen(
            [sys.executable, "-I", "-c", _WITNESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )
        self._was_connected = ray.is_initialized()
        self._pool = WorkerPool(log)
        self._mixed = not rotates_by_batch(model.config)
        self._returns: SimpleQueue[tuple[PooledWorker, str, int, Future[Any]]] = SimpleQueue()
        self._counted: dict[PooledWorker, Mapping[str, Any]] = {}
        self._at_once: int | None = None
        self._last_placed = time.monotonic()
        self._due: deque[float] = deque()
        atexit.register(self.close)
        try:
            with output_to(log or Path(os.devnull)):
                self._address = _connect(cluster.address)
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._place = WorkerPlacement(cluster, options, self._address, nodes)
            self._actor = ray.remote(
                num_cpus=self._place.cpus,
                num_gpus=self._place.gpus or None,
                max_concurrency=CHUNKS + 2,  # chunks, and the opening of the engine
                scheduling_strategy="SPREAD",
            )(Worker)
            self._settings = ray.put(
                RayWorkerSettings(
                    engine=name,
                    options=dict(options),
                    context=context,
                    model=str(model.path) if model_path(model.name).exists() else model.name,
                    template_args=model.template_args,
                    given_template=model.given_template,
                    digests=digests_of(model),
                    decoding=decoding,
                    environment=forwarded_environment(),
                )
            )
            self._pool.wanted = self._place.workers[0]
            for _ in range(self._pool.wanted):
                self._start_worker()
            while self._pool.engine is None:
                self._next_answers()
        except BaseException:
            self.close()
            raise
        self.info = self._with_workers(self._pool.engine)

    def _with_workers(self, engine: EngineInfo) -> EngineInfo:
        """Return the info of a worker's engine, with the cluster and its workers."""
        fewest, most = self._place.workers
        bounds = str(most) if fewest == most else f"{fewest} to {most}"
        where = f"ray {ray.__version__} · {self._address} · {bounds} worker(s) of {self._place}"
        described = {
            "version": ray.__version__,
            "address": self._address,
            "workers": [fewest, most],
            "cpus_per_worker": self._place.cpus,
            "gpus_per_worker": self._place.gpus,
        }
        details = {**engine.details, "ray": described}
        return engine.model_copy(update={"details": details, "headline": f"{where} · {engine.headline}"})

    def statistics(self) -> Mapping[str, Any]:
        """Return the sum of the workers' counts; counts after the last answer of a lost worker are missing."""
        total: Counter[str] = Counter()
        for counted in self._counted.values():
            total.update({name: value for name, value in counted.items() if isinstance(value, int | float)})
        return {**total, "workers_lost": self._pool.lost}

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        waiting = self._chunks(prompts)
        try:
            while self._fill(waiting):
                if answers := self._next_answers():
                    yield answers
        finally:  # the caller may have stopped early: chunks in flight must not return in the next run
            self._pool.abandon_chunks()

    def reset(self, at_once: int | None = None) -> None:
        self._at_once = at_once
        ready = [worker for worker in self._pool.workers if worker.engine]
        calls = [worker.actor.reset.remote(at_once) for worker in ready]
        for call in calls:
            try:
                ray.get(call)
            except RayTaskError as error:
                raise EngineError(f"a worker's engine failed: {error.cause}") from None
            except RayError as error:  # a lost worker; another one, which begins like this, takes its place
                _log.info("%s", error)

    def _chunks(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Prompt] | None]:
        """Yield the prompts of each chunk, and None whenever no further prompt is ready, also at the end."""
        ready = iter(prompts)
        while True:
            found = None
            at_once = self._at_once or self.info.batch_size or self.info.max_num_seqs or 256
            if self.info.batch_size:
                made = batches(ready, at_once, mixed=self._mixed)
            else:
                made = chunks(ready, -(-at_once // 8))
            for found in made:
                yield found
            if found is None:
                yield None

    def _fill(self, waiting: Iterator[list[Prompt] | None]) -> bool:
        """Give the workers as many chunks as they can hold. Return whether any chunk is unanswered.

        If more chunks are left, start one more worker.
        """
        capacity = BATCHES if self.info.batch_size else CHUNKS
        while True:
            if not self._pool.has_waiting and (chunk := next(waiting)):
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
        self._call(self._pool.add(self._actor.remote()), "where")

    def _call(self, worker: PooledWorker, method: str, *arguments: Any, number: int = 0) -> None:
        """Call a method of the actor; its result arrives in `_returns`."""
        reference = getattr(worker.actor, method).remote(*arguments)
        reference.future().add_done_callback(
            lambda returned: self._returns.put((worker, method, number, returned))
        )

    def _next_answers(self) -> list[Completion] | None:
        """Wait up to one second for a result of a worker and process it. Return its answers, if any.

        Raises:
            EngineError: there will be no more answers.
            UsageError: a worker cannot start with the given options.
        """
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
                completions, self._counted[worker] = result
                return completions if self._pool.answered(worker, number) else None
            if method == "where":  # opened only now, so that an error in opening names the node
                self._pool.place(worker, result)
                self._call(worker, "open", self._settings, self._at_once)
            else:
                self._pool.started(worker, result)
        except RayTaskError as error:
            self._replace(worker, "failed" if method == "open" else "broke", error.cause)
        except EngineError as error:
            self._replace(worker, "failed", error)
        except RayError as error:
            _log.info("%s", error)
            said = without_secrets(str(error).strip() or repr(error))
            reason = EngineError(said.splitlines()[-1])
            self._replace(worker, "lost", "its process ended" if worker.where else reason)
        return None

    def _replace(self, worker: PooledWorker, what: str, error: LocalJudgeError | str) -> None:
        with suppress(RayError):
            ray.kill(worker.actor)
        now = time.monotonic()
        if worker.where:
            self._last_placed = now
        self._pool.lose(worker, what, error)
        if worker.engine is None:
            self._due.append(now + _PAUSE)
        else:
            self._start_worker()

    def _look_after_workers(self) -> None:
        """Replace, after a pause, workers that could not start.

        Raises:
            EngineError: the cluster has had no room for any worker for too long.
        """
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

    def close(self) -> None:
        """Leave the cluster, and stop it if it was started here. Workers end at once."""
        atexit.unregister(self.close)
        for logger in _LOGGERS:
            logger.handlers = [logging.NullHandler()]
        self._handler.close()
        if ray.is_initialized():
            for worker in self._pool.workers:
                with suppress(RayError):
                    ray.kill(worker.actor)
        if not self._was_connected:
            ray.shutdown()
        self._witness.communicate(b".")


def forwarded_environment() -> dict[str, str]:
    """Return the variables that workers get; keys and tokens stay here, because no worker needs them."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_FORWARDED) and not is_secret_name(name)
    }


def _connect(address: str) -> str:
    """Join a cluster, or start one on this machine. Return `local` or its address.

    Args:
        address: the `address` of a `Cluster`.

    Raises:
        SettingError: there is no cluster at the address.
    """
    if ray.is_initialized():
        return str(ray.get_runtime_context().gcs_address)
    named = os.environ.get("RAY_ADDRESS", "") if address == AUTO else address
    if ":" in named:
        _reach(named)
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        if address == LOCAL:
            ray.init(LOCAL, **_QUIET, **_OWN)
            return LOCAL
        if address == AUTO:
            with suppress(ValueError):  # a cluster is running already; it accepts no start options
                ray.init(**_QUIET, **_OWN)
                return LOCAL
        ray.init(address, **_QUIET)
        return str(ray.get_runtime_context().gcs_address)
    except Exception as error:  # Ray also raises plain exceptions if it cannot start
        raise SettingError("ray", address, in_one_line(error)) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_terminate)  # Ray installs its own signal handler


def _reach(address: str) -> None:
    """Fail early if nothing listens at the address; Ray itself would retry forever."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise SettingError("ray", address, f"there is no cluster at this address: {error}") from None
