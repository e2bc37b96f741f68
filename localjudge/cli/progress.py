"""Progress of a command on stderr: a live line on a terminal or in a notebook, lines in a log, or JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rich.text import Text

from localjudge.cli.messages import Form, Messages
from localjudge.errors import LocalJudgeError
from localjudge.runs.run_observer import RunObserver
from localjudge.system.durable import scratch_folder
from localjudge.system.quantities import duration, file_size
from localjudge.system.steps import Report

if TYPE_CHECKING:
    from localjudge.records import Outcome

INTERVAL = 30.0
"""Seconds between two lines about a step if stderr is not a terminal; a shorter step has none."""

_SHORT = 0.5
"""Seconds after which a step is shown on a terminal."""
Clock = Callable[[], float]


class Progress(Messages, RunObserver):
    """The messages and the steps of a command. A step within another is shown in its place.

    Args:
        form: as for `Messages`.
        interval: seconds between two lines about a step if stderr is not a terminal.
        clock: returns the time in seconds.
    """

    def __init__(
        self, form: Form | None = None, interval: float = INTERVAL, clock: Clock = time.monotonic
    ) -> None:
        super().__init__(form)
        self._interval = interval
        self._clock = clock
        self._steps: list[StepProgress] = []
        self._answer_tokens: Callable[[], int] = int

    @contextmanager
    def step(self, text: str, unit: str = "rows", /) -> Iterator[Report]:
        """Show a step, its progress, its elapsed and its remaining time until the block ends.

        It goes to the terminal or the log even while the output of the engine's libraries goes to another file.
        """
        step = StepProgress(text, unit, self._clock)
        with self._shown(step):
            yield step.report
            if step.was_told and self.form == "text":
                self.say(step.text())

    @contextmanager
    def counting(self, total: int) -> Iterator[None]:
        """Show the progress of `total` rows until the block ends."""
        judging = JudgingProgress(
            "judging", "rows", self._clock, total=total, answer_tokens=self._answer_tokens
        )
        try:
            with self._shown(judging, redirect=True):
                yield
        finally:
            if judging.done and self.form == "text":
                self.say(judging.text())

    def watch(self, answer_tokens: Callable[[], int]) -> None:
        """Show the tokens of unfinished answers as well."""
        self._answer_tokens = answer_tokens

    def add(self, outcomes: Iterable[Outcome], rows: int) -> None:
        """Count outcomes that were written, and the rows that received them.

        Duplicate rows share one outcome, so `rows` may exceed the number of outcomes.
        """
        for step in self._steps:
            if isinstance(step, JudgingProgress):
                step.add(outcomes, rows)

    @contextmanager
    def _shown(self, step: StepProgress, *, redirect: bool = False) -> Iterator[None]:
        """Show a step until the block ends.

        Args:
            step: the step.
            redirect: print what Python code prints meanwhile above the live line; otherwise it goes to the
                engine's log, if it is redirected there.
        """
        self.event("begin", step=step.name)
        self._steps.append(step)
        try:
            if len(self._steps) > 1:
                yield
            else:
                with self._to_stderr(), self._display(redirect):
                    yield
            self.event("finish", **step.numbers())
        finally:
            self._steps.remove(step)

    @contextmanager
    def _to_stderr(self) -> Iterator[None]:
        """Let messages reach stderr while the output of the engine's libraries goes to its log."""
        console = self.console
        stderr = console.file
        try:
            copy = os.dup(stderr.fileno())
        except (OSError, ValueError):  # a stream that is not a file
            yield
            return
        encoding = getattr(stderr, "encoding", "utf-8")
        with open(copy, "w", encoding=encoding, errors="localjudge") as console.file:
            try:
                yield
            finally:
                console.file = stderr

    @contextmanager
    def _display(self, redirect: bool) -> Iterator[None]:
        """Show the innermost step: live on a terminal, and every `interval` seconds elsewhere."""
        from rich.live import Live

        console = self.console
        can_be_live = console.is_jupyter or (console.file.isatty() and not console.is_dumb_terminal)
        if self.form == "quiet":
            yield
        elif self.form == "text" and can_be_live:
            with Live(
                get_renderable=self._line,
                console=console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=redirect,
                redirect_stderr=redirect,
            ):
                yield
        else:
            ended = Event()
            thread = Thread(target=self._repeat, args=(ended,), name="localjudge-progress", daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()

    def _line(self) -> Text:
        """Return the live line; a step that has just begun has none, so that short ones do not flicker."""
        steps = list(self._steps)  # the command may end one meanwhile
        line = ""
        if steps and steps[-1].elapsed > _SHORT:
            line = steps[-1].text()
        return Text(line, no_wrap=True, overflow="ellipsis")

    def _repeat(self, ended: Event) -> None:
        """Print a line about the innermost step every `interval` seconds, until the display has ended."""
        while not ended.wait(self._interval):
            with suppress(IndexError, OSError, ValueError):  # between two steps; stderr was closed
                step = self._steps[-1]
                step.was_told = True
                if self.form == "json":
                    self.event("progress", **step.numbers())
                else:
                    self.say(step.text())


@contextmanager
def one_run(runs: Sequence[Path]) -> Iterator[Path]:
    """Yield the folder of a run; shards are merged into a folder that exists until the block ends.

    The message of an error within the block names the shards in place of that folder.

    Raises:
        RunMismatchError, UsageError: several folders are not all shards of one run.
    """
    if len(runs) == 1:
        yield runs[0]
        return
    from localjudge.runs.merge import merge

    with scratch_folder(Path(gettempdir(), "localjudge-shards")) as scratch:
        whole = scratch / "merged-shards"
        with Progress().step("merging shards") as report:
            merge(runs, whole, report)
        try:
            yield whole
        except LocalJudgeError as error:
            shards = ", ".join(str(run) for run in runs)
            error.args = (str(error).replace(str(whole), shards),)
            raise


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
        self.done = done
        self.total = total

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
        if self.total is None or not 0 < self.done < self.total:
            return None
        return (self.total - self.done) / self.rate

    def text(self) -> str:
        """Return the progress as one line."""
        return " · ".join(self._parts())

    def numbers(self) -> dict[str, Any]:
        """Return the progress as the fields of an event; times are in seconds."""
        remaining = self.remaining
        return {
            "step": self.name,
            "unit": self.unit,
            "done": self.done,
            "total": self.total,
            "per_second": round(self.rate, 3),
            "elapsed_seconds": round(self.elapsed, 3),
            "remaining_seconds": None if remaining is None else round(remaining, 3),
        }

    def _parts(self) -> list[str]:
        """Return the parts of the line; a narrow terminal cuts the last ones."""
        parts = [self.name]
        if self.done:
            parts.append(self._amount())
        parts.extend(self._times())
        if self.done:
            parts.append(f"{self._shown(self.rate)}/s")
        return parts

    def _times(self) -> list[str]:
        """Return the elapsed time, and the remaining time if it is known."""
        times = [f"elapsed {duration(self.elapsed)}"]
        remaining = self.remaining
        if remaining is not None:
            times.append(f"remaining {duration(remaining)}")
        return times

    def _amount(self) -> str:
        """Return how much is done, and of how much, if that is known."""
        if self.total is None:
            return self._shown(self.done)
        done = file_size(self.done) if self.unit == "bytes" else f"{self.done:,}"
        return f"{done} of {self._shown(self.total)}"

    def _shown(self, count: float) -> str:
        """Return an amount with its unit; one decimal of a rate."""
        if self.unit == "bytes":
            return file_size(count)
        number = f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"
        return f"{number} {self.unit}"


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
        if self.last is not None and self.done == self.total:
            end = self.last
        else:
            end = self.clock()
        return max(end - self.begin, 1e-9)

    def numbers(self) -> dict[str, Any]:
        return StepProgress.numbers(self) | {"failed": self.failed, "output_tokens": self.tokens}

    def _parts(self) -> list[str]:
        tokens = self.tokens
        parts = [self._amount()]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if tokens and not self.done:
            parts.append(f"{tokens:,} tokens")
        parts.append(f"{self._shown(self.rate)}/s")
        parts.append(f"{tokens / self.elapsed:,.0f} tokens/s")
        parts.extend(self._times())
        return parts
