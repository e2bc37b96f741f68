"""How far a step is: its amount, its rate, its times, as one line or as the numbers of an event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from localjudge.system.quantities import duration, file_size

if TYPE_CHECKING:
    from localjudge.records import Outcome

Clock = Callable[[], float]


@dataclass(slots=True)
class StepProgress:
    """How far a step is.

    Attributes:
        name: its name; the judging of rows, which has none, is known by its rows.
        unit: the unit of `done`: `rows`, `bytes` or another plural.
        clock: returns the time in seconds.
        done: number of units that are done.
        total: number of all units; None if it is unknown.
        was_told: whether a log has a line about it.
    """

    name: str
    unit: str = "rows"
    clock: Clock = time.monotonic
    done: int = 0
    total: int | None = None
    was_told: bool = False
    begin: float = field(init=False)

    def __post_init__(self) -> None:
        self.begin = self.clock()

    def report(self, done: int, total: int | None = None, /) -> None:
        """Take note of the progress, as a `localjudge.system.steps.Report`."""
        self.done, self.total = done, total

    @property
    def elapsed(self) -> float:
        """Seconds since the step began."""
        return max(self.clock() - self.begin, 1e-9)

    @property
    def rate(self) -> float:
        """Units per second, over the whole step."""
        return self.done / self.elapsed

    @property
    def remaining(self) -> float | None:
        """Seconds until the step ends at its mean rate; None if that is unknown, or it is done."""
        return (self.total - self.done) / self.rate if self.total and 0 < self.done < self.total else None

    def text(self, width: int | None = None) -> str:
        """Return the progress as one line.

        Args:
            width: largest number of columns; parts of the line are left out until it fits.
        """
        parts = self._parts()
        while width and len(parts) > 1 and cell_len(_joined(parts)) > width:
            parts.remove(max(parts))
        return _joined(parts)

    def numbers(self) -> dict[str, Any]:
        """Return the progress as the fields of an event; times are in seconds."""
        left = self.remaining
        return {
            "step": self.name,
            "unit": self.unit,
            "done": self.done,
            "total": self.total,
            "per_second": round(self.rate, 3),
            "elapsed_seconds": round(self.elapsed, 3),
            "remaining_seconds": None if left is None else round(left, 3),
        }

    def _parts(self) -> list[tuple[int, str]]:
        """Return the parts of the line in their order, each with a number: the largest is left out first."""
        if not self.done:
            return [(0, self.name), *self._times()]
        return [
            (0, self.name),
            (2, self._amount()),
            *self._times(),
            (4, f"{self._shown(self.rate)}/s"),
        ]

    def _times(self) -> list[tuple[int, str]]:
        left = self.remaining
        return [
            (3, f"elapsed {duration(self.elapsed)}"),
            *([] if left is None else [(1, f"remaining {duration(left)}")]),
        ]

    def _amount(self) -> str:
        if self.total is None:
            return self._shown(self.done)
        done = file_size(self.done) if self.unit == "bytes" else f"{self.done:,}"
        return f"{done} of {self._shown(self.total)}"

    def _shown(self, count: float) -> str:
        if self.unit == "bytes":
            return file_size(count)
        return f"{count:,} {self.unit}" if isinstance(count, int) else f"{count:,.1f} {self.unit}"


@dataclass(slots=True)
class JudgingProgress(StepProgress):
    """How far the judging of rows is.

    Attributes:
        failed: number of failures; duplicate rows share one.
        finished_tokens: number of tokens of the judgements.
        answer_tokens: returns the number of tokens of answers so far, unfinished ones included; 0 if unknown.
        last: the time of the last outcome; afterwards, the lines are put in order.
    """

    failed: int = 0
    finished_tokens: int = 0
    answer_tokens: Callable[[], int] = int
    last: float | None = None

    def add(self, outcomes: Iterable[Outcome], rows: int) -> None:
        """Count outcomes, and the rows that received them."""
        self.done += rows
        for outcome in outcomes:
            if outcome.status == "judged":
                self.finished_tokens += outcome.output_tokens
            else:
                self.failed += 1
        self.last = self.clock()

    @property
    def tokens(self) -> int:
        """Number of tokens of the answers so far."""
        return max(self.finished_tokens, self.answer_tokens())

    @property
    def elapsed(self) -> float:
        """Seconds since the judging began; until the last row, if all are done."""
        end = self.last if self.last is not None and self.done == self.total else self.clock()
        return max(end - self.begin, 1e-9)

    def numbers(self) -> dict[str, Any]:
        return {**StepProgress.numbers(self), "failed": self.failed, "output_tokens": self.tokens}

    def _parts(self) -> list[tuple[int, str]]:
        tokens = self.tokens
        return [
            (0, self._amount()),
            *([(2, f"{self.failed:,} failed")] if self.failed else []),
            *([(3, f"{tokens:,} tokens")] if tokens and not self.done else []),
            (4, f"{self._shown(self.rate)}/s"),
            (5, f"{tokens / self.elapsed:,.0f} tokens/s"),
            *self._times(),
        ]


def _joined(parts: Iterable[tuple[int, str]]) -> str:
    return " · ".join(text for _, text in parts)
