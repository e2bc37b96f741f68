"""Who watches a run: the receiver of its messages and its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from localjudge.system.steps import Report, no_progress

if TYPE_CHECKING:  # the command line watches also where the libraries behind these are broken
    from localjudge.records import Outcome


class RunObserver:
    """Receiver of the messages and the progress of a run; this one ignores them.

    `localjudge.cli.progress` prints them.
    """

    def say(self, text: str) -> None:
        """Receive a message about a step of the run."""

    def warn(self, text: str, *, always: bool = False) -> None:
        """Receive a warning that a person should read before the scores; `always`: also if quiet."""

    @contextmanager
    def step(self, text: str, unit: str = "rows", /) -> Iterator[Report]:
        """Enclose a step before or after the judging; yield the receiver of its progress.

        Args:
            text: the name of the step.
            unit: the unit of its progress: `rows` or `bytes`.
        """
        yield no_progress

    @contextmanager
    def counting(self, total: int) -> Iterator[None]:
        """Enclose the judging of `total` rows."""
        yield

    def watch(self, answer_tokens: Callable[[], int]) -> None:
        """Receive a function that returns the number of tokens of answers so far, unfinished ones included.

        An engine may finish many rows at once after a long time; their tokens show that it works. An engine
        that does not count them returns 0.
        """

    def add(self, outcomes: list[Outcome], rows: int) -> None:
        """Receive outcomes that were written, and the number of rows that they finished."""
