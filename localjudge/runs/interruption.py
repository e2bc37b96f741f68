"""Stopping a run from outside: what is in flight is finished within a grace, and nothing more is begun."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Self

GRACE = 20.0
"""Seconds for what is in flight. Slurm, for one, kills a job 30 s after it asked it to end."""


class StoppedBySignal(KeyboardInterrupt):
    """The grace is over, or a second signal came."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class StopSignal(AbstractContextManager["StopSignal"]):
    """SIGINT and SIGTERM ask for a stop, while this is entered. Only for the main thread.

    A second signal, or the end of the grace, raises `StoppedBySignal` wherever the program stands.

    Args:
        say: told what happens.
        grace: seconds.

    Attributes:
        signal: which signal asked for it, None while none has.
    """

    def __init__(self, say: Callable[[str], None], grace: float = GRACE) -> None:
        self.signal: signal.Signals | None = None
        self._say, self._grace = say, grace

    def __enter__(self) -> Self:
        handlers = {signal.SIGINT: self._ask, signal.SIGTERM: self._ask, signal.SIGALRM: self._end}
        self._before: dict[signal.Signals, Any] = {
            number: signal.signal(number, handler) for number, handler in handlers.items()
        }
        return self

    def __exit__(self, *exception: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def asked(self) -> bool:
        """Whether a signal has asked for a stop."""
        return self.signal is not None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self._end(number, frame)
        self.signal = signal.Signals(number)
        signal.setitimer(signal.ITIMER_REAL, self._grace)
        self._say(
            f"stopping: finishing what is in flight, for up to {self._grace:.0f} s; once more to stop now"
        )

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise StoppedBySignal(self.exit_code)
