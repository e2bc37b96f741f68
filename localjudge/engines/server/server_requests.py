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
from localjudge.engines.server.request_window import RequestWindow
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

LOG = logging.getLogger("localjudge.server")
"""What a person must know of a server while it is used."""


class ServerRequests(Generic[Answered]):
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
        self._in_flight = self._open = 0
        self._answered_at = time.monotonic()  # or when a request is sent and no other waits for its answer
        self._is_reported = False
        self._running_trial: asyncio.Task[bool] | None = None
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
        self._answered_at = time.monotonic()
        while True:
            try:
                found = await start()
            except RetryableRequestError as met:
                if met.reason not in (RetryReason.NOT_READY, RetryReason.BUSY):
                    raise
                self.repeated[met.reason.value] += 1
                if self._is_silent:
                    raise self._gone(met) from None
                self._report(met, at_once=True)
                tries += 1
                await self._pause(met, tries, self._answered_at)
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
        if not self._open:
            self._answered_at = time.monotonic()
        self._open += 1
        try:
            return await self._post_until_answered(path, body)
        finally:
            self._open -= 1

    async def _post_until_answered(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
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
            await self._pause(met, tries, failing_since)

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
        except RequestRefusedError:
            self._answered()
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

    async def _pause(self, met: RetryableRequestError, tries: int, since: float) -> None:
        """Wait before the next try, longer after each, or as long as the server says; not beyond the patience.

        Args:
            met: the reason why there is no answer.
            tries: number of tries so far.
            since: the time of the first.
        """
        longest = min(_LONGEST_WAIT, self._options.retry_wait * 2 ** min(tries - 1, 20))
        wait, left = longest * random.uniform(0.5, 1.0), since + self._options.patience - time.monotonic()
        await asyncio.sleep(min(max(met.wait, wait), left) if left > 0 else wait)

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
