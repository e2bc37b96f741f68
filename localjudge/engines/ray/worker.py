"""One worker of a cluster: an engine that new chunks of prompts keep full."""

from __future__ import annotations

import os
import re
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ray

from localjudge import __version__
from localjudge.engines.protocol import Completion, Decoding, TableEngine
from localjudge.engines.ray.worker_pool import WorkerReport
from localjudge.engines.selection import engine_options, open_engine
from localjudge.errors import EngineError, LocalJudgeError, ModelError, SettingError, UsageError
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt


@dataclass(frozen=True, slots=True)
class RayWorkerSettings:
    """Settings that a worker receives.

    Attributes:
        engine: the engine's name and its `options`, as for `engine_options`.
        context: the most tokens of a prompt and its answer, if known.
        model: the path or id of the model on the worker's node, and the `digest` that it must have there.
        adapter: the path of its LoRA adapter on the worker's node, if any, and its `adapter_digest`.
        environment: variables of the driver, used if the node does not set them.
    """

    engine: str
    options: Mapping[str, str]
    context: int | None
    model: str
    digest: str
    adapter: str | None
    adapter_digest: str | None
    decoding: Decoding
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChunkAnswers:
    """The answers to a chunk, in the order they finished, and the engine's counts so far."""

    completions: list[Completion]
    statistics: Mapping[str, Any]


@dataclass(slots=True)
class _Chunk:
    """A chunk in the engine, and its answers so far."""

    prompts: list[Prompt]
    completions: list[Completion]
    answered: Future[None]


class Worker:
    """The Ray actor. Its calls run concurrently, each in a thread of its own.

    A failed call raises a `LocalJudgeError` of one line; the driver then replaces the worker.
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[list[Prompt]] = SimpleQueue()
        self._places: dict[int, tuple[_Chunk, int]] = {}
        self._tag = 0
        self._broken: EngineError | None = None
        self._lock = threading.Lock()

    def beat(self, seconds: float) -> str:
        """Wait, then return the node and process of this worker as a heartbeat."""
        time.sleep(seconds)
        return f"node {ray.util.get_node_ip_address()}, process {os.getpid()}"

    def open(self, settings: RayWorkerSettings) -> WorkerReport:
        """Open the engine.

        Raises:
            UsageError, ModelError, EngineError: the engine cannot be opened.
        """
        try:
            self._engine = self._open(settings)
            info = self._engine.info
            threading.Thread(
                target=self._work,
                args=(info.batch_size is not None,),
                daemon=True,
                name="localjudge-engine",
            ).start()
            return WorkerReport(info, __version__)
        except BaseException as error:
            raise _explained(error) from None

    def answer(self, prompts: list[Prompt]) -> ChunkAnswers:
        """Answer a chunk.

        Raises:
            EngineError: the engine failed.
        """
        chunk = _Chunk(prompts, [], Future())
        with self._lock:
            if self._broken:
                raise self._broken
            first = self._tag
            self._tag += len(prompts)
            tags = range(first, self._tag)
            self._places |= {tag: (chunk, place) for place, tag in enumerate(tags)}
        # The driver's tags restart with each run, and chunks of an abandoned run may still be here.
        self._inbox.put([replace(prompt, tag=tag) for prompt, tag in zip(prompts, tags, strict=True)])
        chunk.answered.result()
        return ChunkAnswers(chunk.completions, dict(self._engine.statistics()))

    def _open(self, settings: RayWorkerSettings) -> TableEngine:
        for name, value in settings.environment.items():
            os.environ.setdefault(name, value)
        adapts = settings.adapter is not None
        options = engine_options(settings.engine, settings.options, model=settings.model, adapts=adapts)
        model = Model.find(settings.model, adapter=settings.adapter)
        if model.digest != settings.digest:
            raise ModelError(
                f"model {model.name}: differs from the model where the run was started: its digest is "
                f"{model.digest[:12]} at {model.path}, and {settings.digest[:12]} there"
            )
        if model.adapter and model.adapter.digest != settings.adapter_digest:
            raise ModelError(
                f"adapter {settings.adapter}: differs from the adapter where the run was started; copy it here"
            )
        return open_engine(options, model, settings.decoding, context=settings.context)

    def _work(self, in_batches: bool) -> None:
        """Keep the engine busy. An engine that computes batches gets one chunk at a time: each chunk is a batch
        and must not be mixed with another."""
        try:
            while True:
                prompts = self._inbox.get()
                for completions in self._engine.complete(prompts if in_batches else self._arriving(prompts)):
                    for completion in completions:
                        self._hand_out(completion)
        except BaseException as error:
            broken = _explained(error)
            with self._lock:
                self._broken = broken if isinstance(broken, EngineError) else EngineError(str(broken))
                chunks = {id(chunk): chunk for chunk, _ in self._places.values()}
            for chunk in chunks.values():
                chunk.answered.set_exception(self._broken)

    def _arriving(self, prompts: list[Prompt]) -> Iterator[Prompt | None]:
        """Yield these prompts and those that arrive later, and None whenever there are none, so that an engine
        that asks at every step, such as vLLM, stays full across chunks."""
        while True:
            yield from prompts
            try:
                prompts = self._inbox.get_nowait()
            except Empty:
                prompts = []
                yield None

    def _hand_out(self, completion: Completion) -> None:
        with self._lock:
            chunk, place = self._places.pop(completion.tag)
        chunk.completions.append(replace(completion, tag=chunk.prompts[place].tag))
        if len(chunk.completions) == len(chunk.prompts):
            chunk.answered.set_result(None)


def _explained(error: BaseException) -> LocalJudgeError:
    """Return the error as a `LocalJudgeError`, with the last error in this process's log."""
    traceback.print_exception(error)
    if isinstance(error, LocalJudgeError):
        kind, reason = UsageError if isinstance(error, SettingError) else type(error), str(error).strip()
    else:
        lines = str(error).strip().splitlines()
        kind, reason = EngineError, f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    if (logged := _last_error_logged()) and logged not in reason:
        reason += f" ({logged})"
    return kind(reason)


def _last_error_logged() -> str | None:
    """Return the last error that this process or a child printed to its Ray log."""
    found = None
    for stream in (1, 2):
        try:
            log = Path(os.readlink(f"/proc/self/fd/{stream}"))
            tail = log.read_bytes()[-65536:].decode(errors="replace") if log.is_file() else ""
        except OSError:
            continue
        for match in re.finditer(r"\b(?:\w+\.)*\w*(?:Error|Exception): .+", tail):
            found = match[0]
    return found
