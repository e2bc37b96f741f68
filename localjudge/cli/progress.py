"""Progress of a command on stderr: a live line on a terminal or in a notebook, lines in a log, or JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from localjudge.cli.messages import Messages
from localjudge.cli.step_progress import Clock, JudgingProgress, StepProgress
from localjudge.runs.run_observer import RunObserver
from localjudge.system.steps import Report

if TYPE_CHECKING:
    from localjudge.records import Outcome

INTERVAL = 30.0
"""Seconds between two lines about a step if stderr is not a terminal; a shorter step has none."""

_SHORT = 0.5
"""Seconds after which a step is shown on a terminal."""


class Progress(RunObserver):
    """The messages and the steps of a command. A step within another is shown in its place.

    Args:
        messages: the messages; None for the form that the command line asks for.
        interval: seconds between two lines about a step if stderr is not a terminal.
        clock: returns the time in seconds.
    """

    def __init__(
        self, messages: Messages | None = None, interval: float = INTERVAL, clock: Clock = time.monotonic
    ) -> None:
        self._messages = messages or Messages.here()
        self._interval, self._clock = interval, clock
        self._steps: list[StepProgress] = []
        self._answer_tokens: Callable[[], int] = int

    def say(self, text: str, *, always: bool = False) -> None:
        self._messages.say(text, always=always)

    def warn(self, text: str, *, always: bool = False) -> None:
        self._messages.warn(text, always=always)

    def notices(self, found: Iterable[str], *, in_table: bool = False) -> None:
        self._messages.notices(found, in_table=in_table)

    @contextmanager
    def step(self, text: str, unit: str = "rows", /) -> Iterator[Report]:
        """Show a step, its progress, its elapsed and its remaining time until the block ends.

        It goes to the terminal or the log even while the output of the engine's libraries goes to another file.
        """
        step = StepProgress(text, unit, self._clock)
        with self._shown(step):
            yield step.report
            if step.was_told and self._messages.form == "text":
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
            if judging.done and self._messages.form == "text":
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
        self._messages.event("begin", step=step.name)
        self._steps.append(step)
        try:
            if len(self._steps) > 1:
                yield
            else:
                with self._to_stderr(), self._display(redirect):
                    yield
            self._messages.event("finish", **step.numbers())
        finally:
            self._steps.remove(step)

    @contextmanager
    def _to_stderr(self) -> Iterator[None]:
        """Let messages reach stderr while the output of the engine's libraries goes to its log."""
        console, stderr = self._messages.console, self._messages.console.file
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
        console = self._messages.console
        if self._messages.form == "quiet":
            yield
        elif self._messages.form == "text" and (
            console.is_jupyter or (console.file.isatty() and not console.is_dumb_terminal)
        ):
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
            thread = Thread(target=self._tell, args=(ended,), name="localjudge-progress", daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()

    def _line(self) -> Text:
        """Return the live line; a step that has just begun has none, so that short ones do not flicker."""
        step = self._steps[-1] if self._steps else None
        shown = step.text(self._messages.console.width) if step and step.elapsed > _SHORT else ""
        return Text(shown, no_wrap=True, overflow="ellipsis")

    def _tell(self, ended: Event) -> None:
        while not ended.wait(self._interval):
            with suppress(IndexError, OSError, ValueError):  # between two steps; stderr was closed
                step = self._steps[-1]
                step.was_told = True
                if self._messages.form == "json":
                    self._messages.event("progress", **step.numbers())
                else:
                    self._messages.say(step.text())
