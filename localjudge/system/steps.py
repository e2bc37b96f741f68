"""Steps of a long operation: a function reports its progress here, without knowing how it is shown.

A function of one step takes a `Report`; a function of several takes a `Step` and opens each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Report(Protocol):
    """Receiver of the progress of one step; called often, so it only takes note."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Receive how many units (rows, bytes …) are done, and how many there are; None if that is unknown."""


class Step(Protocol):
    """Receiver of steps."""

    def __call__(self, text: str, unit: str = "rows", /) -> AbstractContextManager[Report]:
        """Enclose a step; the context yields the receiver of its progress.

        Args:
            text: the name of the step.
            unit: the unit of its progress: `rows`, `bytes` or another plural.
        """


def no_progress(done: int, total: int | None = None, /) -> None:
    """Ignore the progress of a step."""


@contextmanager
def no_steps(text: str, unit: str = "rows", /) -> Iterator[Report]:
    """Enclose a step that nobody watches."""
    yield no_progress


def with_progress(items: Iterable[Item], report: Report, total: int | None = None) -> Iterator[Item]:
    """Yield the items, and report after each how many there were so far."""
    for number, item in enumerate(items, 1):
        yield item
        report(number, total)
