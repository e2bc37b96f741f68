"""Where a run's chunks of prompts are kept while a cluster works on them: one small actor beside the driver.

The driver puts chunks in, Ray Data's source takes them out, and a worker claims a chunk before it works on it.
So one place knows which chunks are not answered and who has them. When a worker is gone (it was started anew,
said that its engine is broken, or was silent for too long), what it had goes out again, to any worker; and who
comes with a chunk that somebody else has, or that is answered, is turned away. Ray's own retries may thus send
a chunk as often as they like.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SILENCE = 15.0
"""Seconds without a sign of life after which a worker is taken to be gone."""

PATIENCE = 30.0
"""Seconds after which a chunk that nobody has claimed goes out once more; doubled each time. A node that dies
may keep what was on the way to it."""


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """What happened to a worker.

    Attributes:
        what: `starting`, `ready`, `failed` (to start), `broke` (its engine), or `lost` (silent, or replaced).
        worker: one life of a worker; it has another name when it is started again.
        slot: its actor; that has the same name when it is started again.
        actor: the actor's handle.
        where: its node and process, for a person.
        about: its engine's description, or the `reason` and the `kind` of its end.
    """

    what: str
    worker: str
    slot: str
    actor: Any
    where: str
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _WorkerRecord:
    slot: str
    actor: Any
    where: str
    seen: float
    gone: bool = False


@dataclass(slots=True)
class _Sent:
    chunk: bytes
    holder: str | None = None
    waiting: bool = True
    since: float = 0.0
    repeats: int = 0


class WorkQueue:
    """The actor. Its methods take turns; each runs to its end, or to where it waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._unanswered: dict[int, _Sent] = {}
        self._outgoing: deque[int] = deque()
        self._arrival = asyncio.Event()
        self._dismissed = asyncio.Event()
        self._stream = 0
        self._lives: dict[str, _WorkerRecord] = {}
        self._current: dict[str, str] = {}
        self._news: list[WorkerEvent] = []
        self._settings: Mapping[str, Any] | None = None

    async def open_stream(self) -> int:
        """The number of a new stream of Ray Data's. Every chunk that is not answered goes out in it."""
        self._stream += 1
        self._outgoing.clear()
        for number in sorted(self._unanswered):
            self._send(number)
        self._arrival.set()
        return self._stream

    async def put(self, chunks: Mapping[int, bytes], answered: list[int]) -> None:
        """Chunks to be answered, by their numbers, and the numbers of those that are."""
        for number in answered:
            self._unanswered.pop(number, None)
        for number, chunk in chunks.items():
            self._unanswered[number] = _Sent(chunk)
            self._send(number)

    async def take(self, stream: int) -> tuple[int, bytes] | None:
        """The next chunk for the source of a stream, when there is one; None when another stream was opened."""
        while stream == self._stream:
            while self._outgoing:
                number = self._outgoing.popleft()
                sent = self._unanswered.get(number)
                if sent and sent.holder is None:
                    sent.waiting, sent.since = False, self._clock()
                    return number, sent.chunk
            self._arrival.clear()
            await self._arrival.wait()
        return None

    async def claim(self, worker: str, number: int) -> bool:
        """Whether this worker is to answer this chunk."""
        await self.beat(worker)
        sent = self._unanswered.get(number)
        if sent is None or sent.holder is not None:
            return False
        sent.holder = worker
        return True

    async def starting(self, worker: str, slot: str, actor: Any, where: str) -> None:
        if before := self._current.get(slot):
            self._lose(before, "its process ended")
        self._current[slot] = worker
        self._lives[worker] = _WorkerRecord(slot, actor, where, self._clock())
        self._tell("starting", worker)

    async def ready(self, worker: str, about: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
        """None, or why this worker will not do: what decides its answers is not as with the first one."""
        if self._settings is None:
            self._settings = settings
        if different := [name for name, was in self._settings.items() if settings[name] != was]:
            return "; ".join(
                f"{name}: {settings[name]}, and {self._settings[name]} elsewhere" for name in different
            )
        self._tell("ready", worker, about)
        return None

    async def ended(self, worker: str, what: str, reason: str, kind: str) -> None:
        """It could not start (`failed`), or its engine broke (`broke`)."""
        self._tell(what, worker, {"reason": reason, "kind": kind})
        self._release(worker)

    async def beat(self, worker: str) -> None:
        """A sign of life, also from one who was taken to be gone."""
        life = self._lives[worker]
        life.seen, life.gone = self._clock(), False

    async def dismissal(self) -> None:
        """Waits until workers are not wanted any more."""
        await self._dismissed.wait()

    async def dismiss(self) -> None:
        """All workers are to end."""
        self._dismissed.set()

    async def news(self) -> list[WorkerEvent]:
        """What happened since this was last asked. Chunks that are stuck go out again on the occasion."""
        now = self._clock()
        for worker, life in self._lives.items():
            if not life.gone and now - life.seen > SILENCE:
                self._lose(worker, "it fell silent")
        if not all(life.gone for life in self._lives.values()):
            for number, sent in self._unanswered.items():
                patience = PATIENCE * 2**sent.repeats
                if sent.holder is None and not sent.waiting and now - sent.since > patience:
                    sent.repeats += 1
                    self._send(number)
        news, self._news = self._news, []
        return news

    def _lose(self, worker: str, reason: str) -> None:
        if not self._lives[worker].gone:
            self._tell("lost", worker, {"reason": reason})
            self._release(worker)

    def _release(self, worker: str) -> None:
        self._lives[worker].gone = True
        for number, sent in self._unanswered.items():
            if sent.holder == worker:
                self._send(number)

    def _send(self, number: int) -> None:
        sent = self._unanswered[number]
        sent.holder, sent.waiting = None, True
        self._outgoing.append(number)
        self._arrival.set()

    def _tell(self, what: str, worker: str, about: Mapping[str, Any] | None = None) -> None:
        life = self._lives[worker]
        self._news.append(WorkerEvent(what, worker, life.slot, life.actor, life.where, about or {}))
