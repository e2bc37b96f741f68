"""A cluster as an engine: prompts go to workers through Ray Data, and completions come back as they finish.

Each worker has an engine of its own, any that there is. The driver alone reads rows and writes the run; it has
as many prompts out as the workers can hold, and an answer makes room for the next. Each prompt is answered
exactly once: a worker or node that is gone leaves its prompts to the others, and a second answer is dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import Empty
from typing import Any

import ray
from ray.exceptions import RayError

from localjudge.engines.batches import batches, longest_prompt
from localjudge.engines.cluster import Cluster
from localjudge.engines.output import output_to
from localjudge.engines.protocol import Completion, Decoding
from localjudge.engines.ray.dataset import CALLS, Stream, StreamEndedError
from localjudge.engines.ray.placement import WorkerPlacement, connect
from localjudge.engines.ray.work_queue import WorkQueue
from localjudge.engines.ray.worker import RayWorkerSettings, pack_chunk
from localjudge.engines.ray.worker_pool import MOST_DEATHS, WorkerPool
from localjudge.errors import EngineError, UsageError
from localjudge.models.model import Model, model_path
from localjudge.prompts.prompt import Prompt, until_stopped

_PLACEMENT_SECONDS = 600.0
"""How long a cluster may take to find room for the first worker."""

_CLOSING_SECONDS = 10.0

_FORWARDED = ("DO_NOT_TRACK", "HF_HOME", "HF_HUB_", "LOCALJUDGE_", "OMP_WAIT_POLICY", "TRANSFORMERS_", "VLLM_")
"""How the variables begin that workers get where their node does not set them."""

_log = logging.getLogger("localjudge.ray")
_LOGGERS = ("ray", "ray.data", _log.name)


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
        self._roster = WorkerPool(self._place.workers[0], log)
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        self._exchange = ray.remote(WorkQueue).options(num_cpus=0, label_selector=here).remote()
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
        self._sent: dict[int, list[Prompt]] = {}
        self._answered: list[int] = []
        self._counted: dict[str, Mapping[str, Any]] = {}
        self._number = self._ends = 0
        self._looked = 0.0
        self._stream: Stream | None = None
        atexit.register(self.close)
        try:
            self._about = self._await_worker()
        except BaseException:
            self.close()
            raise

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
        return {**total, "workers_lost": self._roster.lost}

    def complete(self, prompts: Iterable[Prompt]) -> Iterator[list[Completion]]:
        chunks = self._chunks(prompts)
        try:
            while self._fill(chunks):
                yield self._receive()
        finally:  # whoever asked may have heard enough: what is out must not come back in the next run
            for number in list(self._sent):
                self._forget(number)

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

    @property
    def _most_out(self) -> int:
        """Chunks that may be out: two batches more than an engine computes, or twice what it works on."""
        each = 3 if "batch_size" in self._about["description"] else CALLS
        return each * max(1, len(self._roster.ready))

    def _fill(self, chunks: Iterator[list[Prompt]]) -> bool:
        """Send as much as there is room for; whether anything is out."""
        new: dict[int, bytes] = {}
        while len(self._sent) < self._most_out and (chunk := next(chunks, None)):
            self._number += 1
            self._sent[self._number] = chunk
            new[self._number] = pack_chunk(chunk)
        if new or self._answered:
            self._ask(self._exchange.put.remote(new, self._answered))
            self._answered = []
        return bool(self._sent)

    def _forget(self, number: int) -> list[Prompt]:
        self._answered.append(number)
        return self._sent.pop(number)

    def _receive(self) -> list[Completion]:
        """The answers to a chunk.

        Raises:
            EngineError: there will be none.
        """
        while True:
            if time.monotonic() - self._looked > 1:
                self._roster.hear(self._ask(self._exchange.news.remote()))
                self._looked = time.monotonic()
            stream = self._running_stream()
            with suppress(Empty):
                answers = stream.answers.get(timeout=1)
                if isinstance(answers, StreamEndedError):
                    self._end(answers)
                elif answers.number in self._sent:
                    self._ends = 0
                    self._roster.answered()
                    self._counted[answers.worker] = answers.statistics
                    return [
                        Completion(prompt.tag, tokens, probabilities, error)
                        for prompt, (tokens, probabilities, error) in zip(
                            self._forget(answers.number), answers.completions, strict=True
                        )
                    ]

    def _running_stream(self) -> Stream:
        if self._stream is None:
            number = self._ask(self._exchange.open_stream.remote())
            place = self._place
            self._stream = Stream(self._exchange, number, self._settings, place.workers, place.cpus, place.gpus)
        return self._stream

    def _end(self, end: StreamEndedError) -> None:
        """Ray Data has given up. Another stream gets all that is not answered."""
        _log.warning("Ray Data gave up: %s", end)
        self._stream = None
        self._ends += 1
        if self._ends >= MOST_DEATHS:
            raise EngineError(f"Ray Data gave up {self._ends} times with no row finished: {end}")

    def _await_worker(self) -> Mapping[str, Any]:
        """What the first worker says of its engine."""
        begin = time.monotonic()
        while True:
            stream = self._running_stream()
            self._roster.hear(self._ask(self._exchange.news.remote()))
            if self._roster.about is not None:
                return self._roster.about
            with suppress(Empty):
                ended = stream.answers.get(timeout=0.1)
                assert isinstance(ended, StreamEndedError), "nothing was asked yet"
                self._end(ended)
            if not self._roster.actors and time.monotonic() - begin > _PLACEMENT_SECONDS:
                raise EngineError(
                    f"the Ray cluster {self._address} found no room for a worker of {self._place} "
                    f"in {_PLACEMENT_SECONDS / 60:.0f} minutes"
                )

    def _ask(self, reference: ray.ObjectRef[Any]) -> Any:
        try:
            return ray.get(reference)
        except RayError as error:
            said = (str(error).strip() or repr(error)).splitlines()[0]
            raise EngineError(f"the Ray cluster {self._address} is gone: {said}") from None

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
        with suppress(RayError):
            if self._stream is not None:
                self._stream.stop(_CLOSING_SECONDS)
            for actor in self._roster.actors.values():
                ray.kill(actor)  # none is started again …
            ray.get(self._exchange.dismiss.remote(), timeout=_CLOSING_SECONDS)  # … and all end at once
            ray.kill(self._exchange)
        self._leave()

    def _leave(self) -> None:
        if not self._was_connected:
            ray.shutdown()
