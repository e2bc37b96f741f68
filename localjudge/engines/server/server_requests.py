"""Many requests in flight, each repeated until the server answers it or is given up."""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from localjudge.engines.engine_options import ConnectionOptions
from localjudge.engines.server.connection import (
    Connection,
    RequestRefusedError,
    RetryableRequestError,
    RetryReason,
)
from localjudge.errors import EngineError
from localjudge.prompts.task import Prompt, until_stopped

Answered = TypeVar("Answered")
Found = TypeVar("Found")

_MOST_LOST = 5
"""Times that a request may be lost before it is its row that fails, if the server answers others."""
_LONGEST_WAIT = 30.0
_REPORTED_AFTER = 5.0
"""Seconds without an answer after which this is logged."""
_AHEAD = 4
"""Prompts that wait while the window is full, so that the server never waits for a prompt."""

_log = logging.getLogger("localjudge.server")


class RequestWindow:
    """A bound on the requests in flight, which follows what the server answers.

    It doubles with each round of answers up to a threshold and grows by one a round above it. A server that is
    busy halves it; a request that is lost, by a time-out or with its connection, sets it to one, and the
    threshold to half of what it was (RFC 5681, sections 3.1 and 3.2). Requests that were in flight together
    count as one event. It does not grow while answers take longer than `patience_seconds`.

    Args:
        largest: the largest number of requests in flight.
        patience_seconds: if an answer takes longer than this, the server counts as fully loaded.
    """

    FIRST = 8

    def __init__(self, largest: int, patience_seconds: float) -> None:
        self._largest, self._patience = largest, patience_seconds
        self._size = float(min(self.FIRST, largest))
        self._threshold = float(largest)
        self._sent = self._counts_from = 0

    @property
    def size(self) -> int:
        """The number of requests that may be in flight, at least 1."""
        return int(self._size)

    def send(self) -> int:
        """Count a request that is sent; return its number."""
        self._sent += 1
        return self._sent

    def answered(self, seconds: float) -> None:
        """Count an answer, and the time that it took."""
        if seconds <= self._patience:
            self._size += 1.0 if self._size < self._threshold else 1.0 / self._size
            self._size = min(self._size, float(self._largest))

    def busy(self, number: int) -> None:
        """Count a request that the server was too busy for."""
        if number > self._counts_from:
            self._threshold = self._size = max(1.0, self._size / 2)
            self._counts_from = self._sent

    def lost(self, number: int) -> None:
        """Count a request that got no answer."""
        if number > self._counts_from:
            self._threshold, self._size = max(1.0, self._size / 2), 1.0
            self._counts_from = self._sent


class ServerRequests(Generic[Answered]):
    """Requests to a server, on an event loop in a thread of its own.

    A server that is away, or busy, does not fail any row: its requests are repeated, with growing waits, until
    nothing was answered for `patience` seconds. A request that is lost again and again (time-outs, broken
    connections, errors inside the server) while the server answers a test request becomes its row's failure.

    Args:
        options: the server and the limits of requests.
        trial: returns a path and a body without text of a row, to see whether the server answers at all.

    Attributes:
        connection: the connection to the server.
        repeated: number of requests that were repeated, by `RetryReason`.
        largest: the largest number of requests that were in flight.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        trial: Callable[[], tuple[str, dict[str, Any]]] = lambda: ("", {}),
    ) -> None:
        self.connection = Connection(options)
        self.repeated = {kind.value: 0 for kind in RetryReason}
        self.largest = 0
        self._options, self._trial = options, trial
        self._window = RequestWindow(options.max_num_seqs, options.request_timeout / 4)
        self._in_flight = 0
        self._away_since: float | None = None
        self._is_reported = False
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Condition()
        self._thread = threading.Thread(target=self._loop.run_forever, name="localjudge-server", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Found]) -> Found:
        """Run a coroutine on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def run_when_ready(self, start: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
        """Run a coroutine on the loop, again while the server is not ready or too busy; return its result.

        A server that cannot be reached is not waited for: its URL may be wrong.

        Args:
            start: returns the coroutine, which sends requests by `connection`.

        Raises:
            EngineError: the server is not ready within `patience` seconds.
        """
        return self.run(self._when_ready(start))

    async def _when_ready(self, start: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
        tries = 0
        while True:
            try:
                found = await start()
            except RetryableRequestError as met:
                if met.reason not in (RetryReason.NOT_READY, RetryReason.BUSY):
                    raise
                self.repeated[met.reason.value] += 1
                self._give_up_after(met, at_once=True)
                tries += 1
                await self._pause(met, tries)
            else:
                self._answered()
                return found

    def close(self) -> None:
        """Close the connection and end the thread."""
        if self._loop.is_closed():
            return
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        # As `asyncio.run` does: replies that were cut off, and sockets that close in a later step.
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    def complete(
        self, prompts: Iterable[Prompt | None], answer: Callable[[Prompt], Awaitable[Answered]]
    ) -> Iterator[list[Answered]]:
        """Answer all prompts, as `TableEngine.complete` says.

        Args:
            prompts: the prompts.
            answer: a coroutine function that answers one prompt by `post`.

        Raises:
            EngineError: the server answers nothing any more.
        """
        waiting = until_stopped(prompts)
        running: set[Future[None]] = set()
        finished: queue.SimpleQueue[Answered | BaseException] = queue.SimpleQueue()
        open_requests = 0
        try:
            while True:
                while open_requests < self._window.size + _AHEAD:
                    prompt = next(waiting, None)
                    if prompt is None:
                        break
                    future = asyncio.run_coroutine_threadsafe(_put(finished, answer(prompt)), self._loop)
                    running.add(future)
                    future.add_done_callback(running.discard)
                    open_requests += 1
                if not open_requests:
                    return
                answers = _take(finished)
                open_requests -= len(answers)
                yield answers
        finally:
            for future in list(running):
                future.cancel()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the server's reply to a request, however often it must be repeated.

        Raises:
            RequestRefusedError: this request gets no answer.
            EngineError: the server answers nothing any more.
        """
        lost = tries = 0
        while True:
            try:
                return await self._post_once(path, body)
            except RetryableRequestError as error:
                self.repeated[error.reason.value] += 1
                met = error
            tries += 1
            lost += met.reason is RetryReason.LOST
            if met.reason is RetryReason.LOST and lost >= _MOST_LOST and await self._answers_trial():
                raise RequestRefusedError(f"{met}, {lost} times, although the server answers a test request")
            if met.reason is not RetryReason.LOST or lost >= _MOST_LOST:
                self._give_up_after(met)
            await self._pause(met, tries)

    async def _post_once(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request as soon as the window has room for it."""
        async with self._room:
            await self._room.wait_for(lambda: self._in_flight < self._window.size)
            self._in_flight += 1
            self.largest = max(self.largest, self._in_flight)
        number, began = self._window.send(), time.monotonic()
        try:
            reply = await self.connection.post(path, body)
        except RetryableRequestError as met:
            if met.reason is RetryReason.BUSY:
                self._window.busy(number)
            else:
                self._window.lost(number)
            raise
        else:
            self._answered()
            self._window.answered(time.monotonic() - began)
            return reply
        finally:
            async with self._room:
                self._in_flight -= 1
                self._room.notify_all()

    async def _answers_trial(self) -> bool:
        """Return whether the server answers a request without a row's text."""
        try:
            await self.connection.post(*self._trial())
        except (RetryableRequestError, RequestRefusedError):
            return False
        self._answered()
        return True

    async def _pause(self, met: RetryableRequestError, tries: int) -> None:
        """Wait before the next try, longer after each, or as long as the server says."""
        longest = min(_LONGEST_WAIT, self._options.retry_wait * 2 ** min(tries - 1, 20))
        await asyncio.sleep(max(met.wait, longest * random.uniform(0.5, 1.0)))

    def _answered(self) -> None:
        """Count the server as present."""
        if self._is_reported:
            _log.warning("server %s: answers again", self._options.address)
        self._away_since, self._is_reported = None, False

    def _give_up_after(self, met: RetryableRequestError, *, at_once: bool = False) -> None:
        """Raise EngineError if the server has answered nothing for too long.

        Log once that the run waits for the server: immediately if `at_once`, otherwise when the wait is long.
        """
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        away, patience = now - self._away_since, self._options.patience
        if (at_once or away >= _REPORTED_AFTER) and away < patience and not self._is_reported:
            self._is_reported = True
            _log.warning("server %s: %s; waiting for it, up to %g s", self._options.address, met, patience)
        if away >= patience:
            raise EngineError(
                f"server {self._options.address}: no answer for {self._options.patience:g} s: {met}; when it "
                "is back, the same command continues"
            )

    async def _end(self) -> None:
        """Cancel what is left, and close the connection."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.connection.close()


async def _put(finished: queue.SimpleQueue[Answered | BaseException], answer: Awaitable[Answered]) -> None:
    try:
        finished.put(await answer)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # the caller's thread raises it
        finished.put(error)


def _take(finished: queue.SimpleQueue[Answered | BaseException]) -> list[Answered]:
    """Return all answers that are there; wait for the first. An error is raised when the others are written."""
    found: list[Answered] = []
    while not found or not finished.empty():
        one = finished.get()
        if isinstance(one, BaseException):
            if not found:
                raise one
            finished.put(one)
            break
        found.append(one)
    return found
