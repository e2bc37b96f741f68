"""Progress of a run on stderr, and the text of one judgement for a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import fill, indent
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text as Styled

from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.pipeline import RunObserver
from localjudge.system.quantities import bars, duration
from localjudge.system.terminal import Console, printable

if TYPE_CHECKING:
    from localjudge.runs.reread_texts import Text

_PLAIN_EVERY = 10.0
"""Seconds between two progress lines if stderr is not a terminal."""
_LONGEST = 4000
"""Largest number of characters of a text that is printed."""


class Progress(RunObserver):
    """Rows, rows/s and tokens/s on stderr: a live line on a terminal, otherwise one line every ten seconds."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=not sys.stderr.isatty())
        self._live: Live | None = None
        self._total = self._rows = self._failed = self._tokens = 0
        self._begin = self._last_line = time.monotonic()

    def say(self, text: str) -> None:
        self._console.print(Styled(text))

    def warn(self, text: str) -> None:
        self._console.print(Styled(text, style="yellow"))

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[int], None]]:
        """Show a step, the rows that it reports and its elapsed time until the block ends.

        The line goes to the terminal even while the output of the engine's libraries goes to a log. Without a
        terminal nothing is shown.
        """
        rows, begin, stderr = 0, time.monotonic(), self._console.file

        def receive(count: int) -> None:
            nonlocal rows
            rows = count

        def line() -> Styled:
            counted = [f"{rows} rows"] if rows else []
            return Styled(" · ".join([text, *counted, f"elapsed {duration(time.monotonic() - begin)}"]))

        if not self._console.is_terminal:
            yield receive
            return
        terminal = os.dup(stderr.fileno())
        with open(terminal, "w", encoding=sys.stderr.encoding, errors="localjudge") as self._console.file:
            try:
                # Output of libraries is not redirected to the terminal: the engine's log gets it.
                with Live(
                    get_renderable=line,
                    console=self._console,
                    transient=True,
                    refresh_per_second=4,
                    redirect_stdout=False,
                    redirect_stderr=False,
                ):
                    yield receive
            finally:
                self._console.file = stderr

    @contextmanager
    def counting(self, total: int) -> Iterator[None]:
        """Show the progress of `total` rows until the block ends."""
        self._total, self._rows, self._failed, self._tokens = total, 0, 0, 0  # an audit counts several runs
        self._begin = self._last_line = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(self._line(), console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        try:
            yield
        finally:
            if self._live:
                self._live.stop()
            if self._rows:
                self.say(self._line().plain)

    def add(self, outcomes: Iterable[Outcome], rows: int) -> None:
        """Count outcomes that were written, and the rows that received them.

        Duplicate rows share one outcome, so `rows` may exceed the number of outcomes.
        """
        self._rows += rows
        for outcome in outcomes:
            if isinstance(outcome, Judgement):
                self._tokens += outcome.output_tokens
            else:
                self._failed += 1
        if self._live:
            self._live.update(self._line())
        elif time.monotonic() - self._last_line >= _PLAIN_EVERY:
            self._last_line = time.monotonic()
            print(self._line().plain, file=sys.stderr, flush=True)

    def _line(self) -> Styled:
        seconds = max(time.monotonic() - self._begin, 1e-9)
        rate = self._rows / seconds
        parts = [f"{self._rows} of {self._total} rows"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        parts += [
            f"{rate:.1f} rows/s",
            f"{self._tokens / seconds:.0f} tokens/s",
            f"elapsed {duration(seconds)}",
        ]
        if 0 < self._rows < self._total:
            parts.append(f"remaining {duration((self._total - self._rows) / rate)}")
        return Styled(" · ".join(parts))


def judgement_text(outcome: Outcome, aspects: Mapping[str, Aspect], text: Text | None = None) -> str:
    """Return an outcome as text for a terminal.

    Args:
        outcome: a judgement or a failure.
        aspects: the aspects of its rubric.
        text: the texts of the row, if they were found.
    """
    system = f" · {outcome.system}" if outcome.system else ""
    place = f" · {outcome.source}" if outcome.source != outcome.id else ""
    parts = [f"{outcome.id}{system}{place}"]
    if text:
        parts += [_passage(name, said) for name, said in text.fields.items()]
        if text.instruction or not text.fields:
            parts.append(_passage("instruction", text.instruction))
        if text.reference is not None:
            parts.append(_passage("reference", text.reference))
        parts.append(_passage("candidate", text.candidate))
    if isinstance(outcome, Failure):
        if outcome.failed_answer is not None:
            parts.append(_passage("failed answer", outcome.failed_answer))
        return "\n".join([*parts, f"failed: {outcome.error}", ""])
    parts += [_passage(name.replace("_", " "), said) for name, said in outcome.texts.items()]
    if outcome.rationale_cut:
        parts.append("[a rationale was cut at its limit]\n")
    widest = max(len(shown(score)) for score in outcome.scores.values())
    longest = max(14, *map(len, outcome.scores))
    for aspect, score in outcome.scores.items():
        row = f"  {aspect:<{longest}} {shown(score):>{max(3, widest)}}"
        probabilities = outcome.probabilities.get(aspect)
        if aspect in outcome.expected:
            row += f"   expected {outcome.expected[aspect]:.2f}"
        if probabilities and aspects[aspect].numbers is None:
            labels = map(shown, aspects[aspect].values.values())
            row += "   " + " · ".join(
                f"{label} {p:.2f}" for label, p in zip(labels, probabilities, strict=True)
            )
        elif probabilities:
            row += f"   {bars(probabilities)}"
        parts.append(row)
    return "\n".join([*parts, ""])


def _passage(heading: str, said: str) -> str:
    """Return a heading and a text wrapped to the terminal's width; a very long text is cut."""
    width = min(100, get_terminal_size().columns) - 2
    lines = printable(shortened(said)).splitlines() or ["(empty)"]
    wrapped = [fill(line, width=width, break_on_hyphens=False) for line in lines]
    return indent("\n".join(wrapped), "  ").join([f"{heading}\n", "\n"])


def shortened(said: str) -> str:
    """Return a text to print; a very long one is cut, and says so."""
    more = f" … {len(said) - _LONGEST:,} more characters" if len(said) > _LONGEST else ""
    return said[:_LONGEST] + more
