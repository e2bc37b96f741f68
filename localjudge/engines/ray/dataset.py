"""The dataset: chunks flow from the exchange to a pool of workers, and answers flow back as they come.

One read task beside the driver takes chunks from the exchange for as long as the stream lasts; each becomes a
block of one row, so that Ray Data hands it on at once. `map_batches` spreads the blocks over its pool of
workers, the least busy first, and starts and ends workers within their bounds.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, ClassVar

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, Datasource, ReadTask, read_datasource
from ray.data._internal.execution.execution_callback import ExecutionCallback
from ray.data.block import BlockMetadata

from localjudge.engines.ray.worker import ChunkAnswers, Worker

CALLS = 16
"""Chunks that a worker may have in hand at a time."""


class StreamEndedError(Exception):
    """Ray Data has given up."""


class Stream:
    """One execution of the dataset, in a thread of its own.

    Args:
        exchange: the actor that has the chunks.
        number: the number that it has given this stream.
        settings: a reference to the workers' settings.
        workers: the fewest and the most.
        cpus: CPUs of a worker.
        gpus: GPUs of a worker.
    """

    def __init__(
        self,
        exchange: Any,
        number: int,
        settings: ray.ObjectRef[Any],
        workers: tuple[int, int],
        cpus: float,
        gpus: float,
    ) -> None:
        self.answers: SimpleQueue[ChunkAnswers | StreamEndedError] = SimpleQueue()
        self._name = uuid.uuid4().hex
        with DataContext.current(_context(self._name)):
            source = read_datasource(_Source(exchange, number), override_num_blocks=1, num_cpus=0)
            self._dataset = source.map_batches(
                Worker,
                fn_constructor_args=(exchange, settings),
                batch_size=None,
                batch_format="pyarrow",
                num_cpus=cpus,
                num_gpus=gpus or None,
                compute=ActorPoolStrategy(
                    min_size=workers[0],
                    max_size=workers[1],
                    max_tasks_in_flight_per_actor=CALLS,
                    max_concurrent_calls_per_actor=CALLS,
                    enable_true_multi_threading=True,
                ),
            )
        self._thread = threading.Thread(target=self._run, daemon=True, name="localjudge-stream")
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End it, whatever it is at, and wait for so long until it has ended."""
        _StopCallback.asked.add(self._name)
        self._thread.join(seconds)

    def _run(self) -> None:
        reason = "its dataset came to an end"
        try:
            for batch in self._dataset.iter_batches(
                batch_size=None, batch_format="pyarrow", prefetch_batches=0
            ):
                for packed in batch["answers"].to_pylist():
                    self.answers.put(pickle.loads(packed))
        except BaseException as error:  # whatever Ray gives up with
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        self.answers.put(StreamEndedError(reason))


class _Source(Datasource):  # type: ignore[misc]
    """The chunks of the exchange, as they come, read on the driver's node."""

    supports_distributed_reads = False

    def __init__(self, exchange: Any, stream: int) -> None:
        super().__init__()
        self._exchange = exchange
        self._stream = stream

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        exchange, stream = self._exchange, self._stream

        def read() -> Iterator[pa.Table]:
            while (sent := ray.get(exchange.take.remote(stream))) is not None:
                yield pa.table({"number": [sent[0]], "chunk": pa.array([sent[1]], pa.binary())})

        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
        return [ReadTask(read, unknown)]


class _StopCallback(ExecutionCallback):  # type: ignore[misc]
    """Ends streams that were asked to stop. Ray Data has no other way to end one from outside."""

    asked: ClassVar[set[str]] = set()

    def on_execution_step(self, executor: Any) -> None:
        if executor._data_context.get_config("localjudge.stream", "") in self.asked:
            raise StreamEndedError("it was stopped")


def _context(stream: str) -> DataContext:
    context = DataContext.get_current().copy()
    context.set_config("localjudge.stream", stream)
    context.custom_execution_callback_classes = [*context.custom_execution_callback_classes, _StopCallback]
    context.target_max_block_size = 1  # each row is a block, and leaves at once
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1  # a model may take its time to load
    # Another worker starts while all have more than two chunks in hand; the last ones go as chunks run out.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 2 / CALLS
    context.autoscaling_config.actor_pool_util_downscaling_threshold = 0.5 / CALLS
    return context
