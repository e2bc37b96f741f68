"""One worker of a cluster: an engine of its own, kept full by chunks of prompts that come as others finish."""

from __future__ import annotations

import os
import pickle
import re
import signal
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import ray

from localjudge.engines.protocol import Completion, Decoding, Engine
from localjudge.engines.selection import open_engine
from localjudge.errors import EngineError, LocalJudgeError, ModelError
from localjudge.models.model import Model
from localjudge.prompts.prompt import Prompt

BEAT = 2.0
"""Seconds between two signs of life."""

_PAUSE = 10.0
"""Seconds before a worker that could not start ends and is replaced."""


@dataclass(frozen=True, slots=True)
class RayWorkerSettings:
    """What a worker is told.

    Attributes:
        engine: the engine's name, its `options` and its `context`, as for `open_engine`.
        model: what `Model.find` is to find on the worker's node, and the `digest` that it must have there.
        environment: variables of the driver's, for where the node does not set them.
    """

    engine: str
    options: Mapping[str, str]
    context: int | None
    model: str
    digest: str
    decoding: Decoding
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChunkAnswers:
    """The answers to a chunk, in the order of its prompts, and what the worker's engine has counted so far."""

    number: int
    completions: list[tuple[tuple[int, ...], Any, str | None]]
    worker: str
    statistics: Mapping[str, Any]


def pack_chunk(prompts: list[Prompt]) -> bytes:
    return pickle.dumps([(np.asarray(prompt.tokens, np.int32), prompt.seed) for prompt in prompts], protocol=5)


@dataclass(slots=True)
class _Chunk:
    """A chunk in the engine: its answers so far, by place."""

    left: int
    answers: list[Any]
    done: threading.Event = field(default_factory=threading.Event)


class Worker:
    """What Ray Data's pool holds of each actor. A call answers one chunk; calls run side by side.

    A worker that cannot start, or whose engine breaks, tells the exchange why and ends its process; Ray
    starts another in its place.
    """

    def __init__(self, exchange: Any, settings: ray.ObjectRef[Any]) -> None:
        context = ray.get_runtime_context()
        self._exchange = exchange
        self._name = uuid.uuid4().hex
        self._statistics_lock = threading.Lock()
        where = f"node {ray.util.get_node_ip_address()}, process {os.getpid()}"
        actor = (context.get_actor_id(), context.current_actor)
        ray.get(exchange.starting.remote(self._name, *actor, where))
        threading.Thread(target=self._beat, daemon=True, name="localjudge-beat").start()
        try:
            self._engine = self._open(ray.get(settings))
        except BaseException as error:
            self._give_up("failed", error)
        self._inbox: SimpleQueue[list[Prompt]] = SimpleQueue()
        self._places: dict[int, tuple[_Chunk, int]] = {}
        self._tag = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._work, daemon=True, name="localjudge-engine").start()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """A chunk's answers; none where the chunk is somebody else's. One row in, at most one row out."""
        answers = []
        for number, packed in zip(batch["number"].to_pylist(), batch["chunk"].to_pylist(), strict=True):
            if ray.get(self._exchange.claim.remote(self._name, number)):
                answers.append(pickle.dumps(self._answer(number, packed), protocol=5))
        return pa.table({"answers": pa.array(answers, pa.binary())})

    def _answer(self, number: int, packed: bytes) -> ChunkAnswers:
        prompts = pickle.loads(packed)
        chunk = _Chunk(len(prompts), [None] * len(prompts))
        tagged = []
        with self._lock:
            for place, (tokens, seed) in enumerate(prompts):
                self._tag += 1
                self._places[self._tag] = (chunk, place)
                tagged.append(Prompt(self._tag, tokens.tolist(), seed))
        self._inbox.put(tagged)
        chunk.done.wait()
        return ChunkAnswers(number, chunk.answers, self._name, dict(self._engine.statistics()))

    def _work(self) -> None:
        try:
            while True:
                for completions in self._engine.complete(_Inflow(self._inbox)):
                    for completion in completions:
                        self._hand_out(completion)
        except BaseException as error:
            self._give_up("broke", error)

    def _hand_out(self, completion: Completion) -> None:
        with self._lock:
            chunk, place = self._places.pop(completion.tag)
        chunk.answers[place] = (completion.tokens, completion.probabilities, completion.error)
        chunk.left -= 1
        if not chunk.left:
            chunk.done.set()

    def _open(self, settings: RayWorkerSettings) -> Engine:
        for name, value in settings.environment.items():
            os.environ.setdefault(name, value)
        model = Model.find(settings.model)
        if model.digest != settings.digest:
            raise ModelError(
                f"model {model.name}: another one than where the run was started: its digest is "
                f"{model.digest[:12]} at {model.path}, and {settings.digest[:12]} there"
            )
        engine = open_engine(
            settings.engine, model, settings.decoding, settings.options, context=settings.context
        )
        about = dict(engine.describe())
        decisive = {"engine": about["name"], "dtype": about["dtype"], "localjudge": version("localjudge")}
        about = {"description": about, "headline": engine.headline()}
        if reason := ray.get(self._exchange.ready.remote(self._name, about, decisive)):
            raise EngineError(reason)
        return engine

    def _beat(self) -> None:
        dismissal = self._exchange.dismissal.remote()
        while not ray.wait([dismissal], timeout=BEAT)[0]:
            self._exchange.beat.remote(self._name)
        _end()  # dismissed, or the exchange is no more: either way there is no run

    def _give_up(self, what: str, error: BaseException) -> NoReturn:
        reason = str(error).strip() if isinstance(error, LocalJudgeError) else _in_a_line(error)
        if (logged := _last_error_logged()) and logged not in reason:
            reason += f" ({logged})"
        traceback.print_exception(error)
        ray.get(self._exchange.ended.remote(self._name, what, reason, type(error).__name__))
        time.sleep(_PAUSE if what == "failed" else 0)
        _end()


class _Inflow:
    """The prompts that are there. It ends when there are none, and goes on when there are again.

    An engine that asks again as it works (vLLM's does, at every step) is kept full across chunks; one that
    takes the end for the end comes to it, finishes what it has, and starts anew. Only the very first prompt is
    waited for.
    """

    def __init__(self, inbox: SimpleQueue[list[Prompt]]) -> None:
        self._inbox = inbox
        self._prompts = deque(inbox.get())

    def __iter__(self) -> Iterator[Prompt]:
        return self

    def __next__(self) -> Prompt:
        while not self._prompts:
            try:
                self._prompts.extend(self._inbox.get_nowait())
            except Empty:
                raise StopIteration from None
        return self._prompts.popleft()


def _end() -> NoReturn:
    """End this process and those that its engine has started: Ray gives each worker a process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _in_a_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _last_error_logged() -> str | None:
    """The last error that this process, or one that it started, has printed into the log that Ray gave it."""
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
