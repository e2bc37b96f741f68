"""What a person sees: progress on stderr, and a judgement that can be read in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import fill, indent
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text as Styled

from localjudge.records import Failure, Judgement, Outcome
from localjudge.runs.scoring import RunObserver
from localjudge.runs.summary import bars
from localjudge.system.terminal import Console, printable

if TYPE_CHECKING:
    from localjudge.runs.row_texts import Text

_PLAIN_EVERY = 10.0
"""Seconds between two lines where stderr is no terminal."""
_LONGEST = 4000
"""Characters of a text that are printed."""


class Progress(RunObserver):
    """Rows, rows/s and tokens/s on stderr: a live line on a terminal, a plain line now and then elsewhere."""

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
    def counting(self, total: int) -> Iterator[None]:
        """Count the outcomes that are added, of this many."""
        self._total = total
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
        """Outcomes that were written, and how many rows they were given to."""
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
        parts += [f"{rate:.1f} rows/s", f"{self._tokens / seconds:.0f} tokens/s", f"elapsed {_clock(seconds)}"]
        if 0 < self._rows < self._total:
            parts.append(f"remaining {_clock((self._total - self._rows) / rate)}")
        return Styled(" · ".join(parts))


def judgement_text(outcome: Outcome, text: Text | None = None) -> str:
    """Return an outcome as text for a terminal.

    Args:
        text: the row's texts, where they were found again.
    """
    system = f" · {outcome.system}" if outcome.system else ""
    parts = [f"{outcome.id}{system} · {outcome.source}"]
    if text:
        parts.append(_passage("instruction", text.instruction))
        if text.reference is not None:
            parts.append(_passage("reference", text.reference))
        parts.append(_passage("candidate", text.candidate))
    if isinstance(outcome, Failure):
        return "\n".join([*parts, f"failed: {outcome.error}", ""])
    cut = " [cut at its limit]" if outcome.rationale_cut else ""
    parts.append(_passage("rationale", outcome.rationale + cut))
    for aspect, score in outcome.scores.items():
        row = f"  {aspect:<14} {score:>3}"
        if outcome.expected and outcome.probabilities:
            row += f"   expected {outcome.expected[aspect]:.2f}   {bars(outcome.probabilities[aspect])}"
        parts.append(row)
    return "\n".join([*parts, ""])


def _passage(heading: str, said: str) -> str:
    """A heading, and below it a text wrapped to the terminal; of a very long one, the beginning."""
    width = min(100, get_terminal_size().columns) - 2
    more = f" … {len(said) - _LONGEST:,} more characters" if len(said) > _LONGEST else ""
    lines = printable(said[:_LONGEST] + more).splitlines() or ["(empty)"]
    wrapped = [fill(line, width=width, break_on_hyphens=False) for line in lines]
    return indent("\n".join(wrapped), "  ").join([f"{heading}\n", "\n"])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
