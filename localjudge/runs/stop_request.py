"""The request to stop a run: by a signal, or never."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Self

GRACE = 20.0
"""Grace period for prompts in flight, in seconds. Slurm kills a job 30 s after it sends SIGTERM."""


class StoppedBySignal(KeyboardInterrupt):
    """Raised when the grace period is over, or at a second signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class StopRequest(AbstractContextManager["StopRequest"]):
    """A context in which a stop can be requested; this one never requests it."""

    def __exit__(self, *exception: object) -> None:
        """Do nothing."""

    def asked(self) -> bool:
        """Return whether a stop was requested: submit no more prompts."""
        return False


NEVER = StopRequest()


class StopSignal(StopRequest):
    """A context in which SIGINT and SIGTERM request a stop; only for the main thread.

    After the first signal, no more prompts are submitted, and those in flight have a grace period.

    A second signal, or the end of the grace period, raises `StoppedBySignal` at the current statement.

    Args:
        say: receives a message when a signal arrives.
        grace: grace period in seconds.

    Attributes:
        signal: the first signal that arrived; None if there was none.
    """

    def __init__(self, say: Callable[[str], None], grace: float = GRACE) -> None:
        self.signal: signal.Signals | None = None
        self._say = say
        self._grace = grace

    def __enter__(self) -> Self:
        handlers = {signal.SIGINT: self._ask, signal.SIGTERM: self._ask, signal.SIGALRM: self._end}
        self._earlier_handlers: dict[signal.Signals, Any] = {
            number: signal.signal(number, handler) for number, handler in handlers.items()
        }
        return self

    def __exit__(self, *exception: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._earlier_handlers.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """Exit code of the process: 130 after SIGINT, 143 after SIGTERM."""
        first = signal.SIGINT if self.signal is None else self.signal
        return 128 + first

    def asked(self) -> bool:
        return self.signal is not None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self._end(number, frame)
        self.signal = signal.Signals(number)
        signal.setitimer(signal.ITIMER_REAL, self._grace)
        self._say(
            f"stopping: finishing what is in flight, for up to {self._grace:.0f} s; press Ctrl-C again to stop "
            "now"
        )

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise StoppedBySignal(self.exit_code)
