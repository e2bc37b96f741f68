"""Many requests in flight, each repeated until the server answers it or is given up."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from localjudge.engines.engine_options import ConnectionOptions
from localjudge.engines.server.connection import (
    Connection,
    RequestRefusedError,
    RetryableRequestError,
    RetryReason,
)
from localjudge.engines.server.replying_models import LOG
from localjudge.errors import EngineError
from localjudge.prompts.task import Prompt, until_stopped

Answered = TypeVar("Answered")
Found = TypeVar("Found")

_MOST_TRIES = 5
"""Times that a request is lost, or the least number of other tries, before its row fails."""
_LONGEST_WAIT = 30.0
_REPORTED_AFTER = 5.0
"""Seconds without an answer after which this is logged."""
_AHEAD = 4
"""Prompts that wait while the window is full, so that the server never waits for a prompt."""

_ANSWERS_TRIAL = "although the server answers a test request"


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
            grown = self._size + (1.0 if self._size < self._threshold else 1.0 / self._size)
            self._size = min(grown, float(self._largest))

    def unanswered(self, number: int, *, busy: bool) -> None:
        """Count a request that the server was too busy for, or that was lost."""
        if number > self._counts_from:
            self._threshold = max(1.0, self._size / 2)
            self._size = self._threshold if busy else 1.0
            self._counts_from = self._sent


class ServerRequests:
    """Requests to a server, on an event loop in a thread of its own.

    A server that is away, silent or busy does not fail any row: its requests are repeated, with growing waits,
    until nothing was answered for `patience` seconds, nor a test request then. While the server answers a test
    request, a request becomes its row's failure if it is lost again and again (time-outs, broken connections,
    errors inside the server), has no answer for `patience` seconds, or is refused as no other is.

    Args:
        options: the server and the limits of requests.
        trial: returns a path and a body without text of a row, to see whether the server answers at all.

    Attributes:
        connection: the connection to the server.
        run: runs an asynchronous function with these arguments on the loop, and returns its result.
        repeated: number of requests that were repeated, by `RetryReason`.
        largest: the largest number of requests that were in flight.
    """

    def __init__(
        self, options: ConnectionOptions, trial: Callable[[], tuple[str, dict[str, Any]]] = lambda: ("", {})
    ) -> None:
        self.connection = Connection(options)
        self.repeated = {kind.value: 0 for kind in RetryReason}
        self.largest = 0
        self._options, self._trial = options, trial
        self._window = RequestWindow(options.max_num_seqs, options.request_timeout / 4)
        self._in_flight = 0
        self._answered_at = time.monotonic()  # or when a request is sent and no other is in flight
        self._is_reported = False
        self._running_trial: asyncio.Task[bool] | None = None
        self._room = asyncio.Event()
        self._ending = ExitStack()
        self._portal = self._ending.enter_context(start_blocking_portal(name="localjudge-server"))
        self._ending.callback(self._portal.call, self._end)
        self.run = self._portal.call

    def run_when_ready(self, function: Callable[..., Awaitable[Found]], *arguments: Any) -> Found:
        """Do what `run` does, again while the server is not ready or too busy; return the result.

        A server that cannot be reached is not waited for: its URL may be wrong.

        Args:
            function: sends requests by `connection`.
            arguments: its arguments.

        Raises:
            EngineError: the server is not ready within `patience` seconds.
        """
        found: Found = self.run(self._when_ready, function, *arguments)
        return found

    async def _when_ready(self, function: Callable[..., Awaitable[Found]], *arguments: Any) -> Found:
        tries = 0
        self._answered_at = time.monotonic()
        while True:
            try:
                found = await function(*arguments)
            except RetryableRequestError as met:
                if met.reason not in (RetryReason.NOT_READY, RetryReason.BUSY):
                    raise
                self.repeated[met.reason.value] += 1
                if self._is_silent:
                    raise self._gone(met) from None
                self._report(met, at_once=True)
                tries += 1
                await self._pause(tries, self._answered_at)
            else:
                self._answered()
                return found

    def limit(self, at_once: int | None) -> None:
        """Have at most this many requests in flight from now on; None for as many as the options say.

        No request may be in flight.
        """
        most = self._options.max_num_seqs
        if at_once is not None:
            most = min(most, at_once)
        self._window = RequestWindow(most, self._options.request_timeout / 4)

    def close(self) -> None:
        """Cancel what is left, close the connection and end the thread."""
        self._ending.close()

    async def _end(self) -> None:
        await self.connection.close()
        await self._portal.stop(cancel_remaining=True)

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
        running: set[Future[Answered]] = set()
        finished: SimpleQueue[Future[Answered]] = SimpleQueue()
        try:
            while True:
                while len(running) < self._window.size + _AHEAD and (prompt := next(waiting, None)):
                    if not running:
                        self._answered_at = time.monotonic()
                    running.add(future := self._portal.start_task_soon(answer, prompt))
                    future.add_done_callback(finished.put)
                if not running:
                    return
                ended = [finished.get()]
                while not finished.empty():
                    ended.append(finished.get())
                running.difference_update(ended)
                if answers := [future.result() for future in ended if not future.exception()]:
                    yield answers
                for future in ended:  # an error is raised when the answers are written
                    future.result()
        finally:
            for future in running:
                future.cancel()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the server's reply to a request, however often it must be repeated.

        Raises:
            RequestRefusedError: this request gets no answer.
            EngineError: the server answers nothing any more.
        """
        lost = tries = 0
        failing_since: float | None = None
        while True:
            try:
                return await self._post_once(path, body)
            except RetryableRequestError as error:
                met = error
            except EngineError as refusal:
                if not await self._answers_trial():
                    raise
                said = str(refusal).removeprefix(f"server {self._options.address}: ")
                raise RequestRefusedError(f"{said}, {_ANSWERS_TRIAL}") from None
            self.repeated[met.reason.value] += 1
            tries += 1
            lost += met.reason is RetryReason.LOST
            failing_since = failing_since or time.monotonic()
            failing = time.monotonic() - failing_since
            if failing >= _REPORTED_AFTER or met.reason is RetryReason.LOST:  # a time-out has waited already
                self._report(met)
            is_late = self._is_silent or failing >= self._options.patience
            is_hopeless = lost >= _MOST_TRIES or (is_late and tries >= _MOST_TRIES)
            if is_hopeless or self._is_silent:
                if not await self._answers_trial():
                    if self._is_silent:  # other requests got no answer, either, while the trial ran
                        raise self._gone(met)
                elif is_hopeless:
                    times = f"{lost} times" if lost >= _MOST_TRIES else f"for {self._options.patience:g} s"
                    raise RequestRefusedError(f"{met}, {times}, {_ANSWERS_TRIAL}")
            await self._pause(tries, failing_since)

    async def _post_once(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request as soon as the window has room for it."""
        while self._in_flight >= self._window.size:
            self._room.clear()
            await self._room.wait()
        self._in_flight += 1
        self.largest = max(self.largest, self._in_flight)
        number, began = self._window.send(), time.monotonic()
        try:
            reply = await self.connection.post(path, body)
            self._window.answered(time.monotonic() - began)
        except RetryableRequestError as met:
            self._window.unanswered(number, busy=met.reason is RetryReason.BUSY)
            raise
        except RequestRefusedError:
            self._answered()
            raise
        else:
            self._answered()
            return reply
        finally:
            self._in_flight -= 1
            self._room.set()

    async def _answers_trial(self) -> bool:
        """Return whether the server answers a request without a row's text; one trial runs at a time."""
        if self._running_trial is None or self._running_trial.done():
            self._running_trial = asyncio.create_task(self._send_trial())
        return await asyncio.shield(self._running_trial)

    async def _send_trial(self) -> bool:
        try:
            await self.connection.post(*self._trial())
        except RetryableRequestError:
            return False
        except RequestRefusedError:  # which is an answer
            pass
        return True

    async def _pause(self, tries: int, since: float) -> None:
        """Wait before the next try, longer after each of `tries`; not beyond the patience from the first on."""
        longest = min(_LONGEST_WAIT, self._options.retry_wait * 2 ** min(tries - 1, 20))
        wait, left = longest * random.uniform(0.5, 1.0), since + self._options.patience - time.monotonic()
        await asyncio.sleep(min(wait, left) if left > 0 else wait)

    def _answered(self) -> None:
        """Count the server as present."""
        if self._is_reported:
            LOG.warning("server %s: answers again", self._options.address)
        self._answered_at, self._is_reported = time.monotonic(), False

    @property
    def _is_silent(self) -> bool:
        """Whether the server has answered no row for longer than the patience."""
        return time.monotonic() - self._answered_at >= self._options.patience

    def _report(self, met: RetryableRequestError, *, at_once: bool = False) -> None:
        """Log once that the run waits for the server: immediately if `at_once`, otherwise after a long wait."""
        if not self._is_reported and (at_once or time.monotonic() - self._answered_at >= _REPORTED_AFTER):
            self._is_reported = True
            patience = self._options.patience
            wait = "sending a test request" if self._is_silent else f"waiting for it, up to {patience:g} s"
            LOG.warning("server %s: %s; %s", self._options.address, met, wait)

    def _gone(self, met: RetryableRequestError) -> EngineError:
        """Return the error of a server that has answered nothing for too long."""
        return EngineError(
            f"server {self._options.address}: no answer for {self._options.patience:g} s: {met}; when it "
            "is back, the same command continues"
        )
