"""What a person sees: progress on stderr, and a judgement that can be read in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from localjudge.records import Judgement, Outcome
from localjudge.summary import printable

_PLAIN_EVERY = 10.0
"""Seconds between two lines where stderr is no terminal."""


class Progress:
    """Rows, rows/s and tokens/s on stderr: a live line on a terminal, a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
        self._live: Live | None = None
        self._total = self._rows = self._failed = self._tokens = 0
        self._begin = self._last_line = time.monotonic()

    def say(self, text: str) -> None:
        self._console.print(Text(printable(text)))

    def warn(self, text: str) -> None:
        self._console.print(Text(printable(text), style="yellow"))

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

    def _line(self) -> Text:
        seconds = max(time.monotonic() - self._begin, 1e-9)
        rate = self._rows / seconds
        parts = [f"{self._rows} of {self._total} rows"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        parts += [f"{rate:.1f} rows/s", f"{self._tokens / seconds:.0f} tokens/s", f"{_clock(seconds)} gone"]
        if 0 < self._rows < self._total:
            parts.append(f"{_clock((self._total - self._rows) / rate)} left")
        return Text(" · ".join(parts))


def judgement_text(line: Mapping[str, Any], aspects: Iterable[str]) -> str:
    """One line of a run, for a terminal."""
    system = f" · {line['system']}" if line["system"] else ""
    parts = [printable(f"{line['id']}{system} · {line['source']}")]
    if line["status"] == "failed":
        return "\n".join([*parts, f"failed: {printable(line['error'])}", ""])
    parts += [
        fill(
            printable(line["rationale"]), width=min(100, get_terminal_size().columns), replace_whitespace=False
        )
    ]
    if line["rationale_cut"]:
        parts[-1] += " [cut at its limit]"
    for aspect in aspects:
        probabilities = line[f"{aspect}_probabilities"]
        row = f"  {aspect:<14} {line[aspect]:>3}"
        if probabilities:
            row += f"   expected {line[f'{aspect}_expected']:.2f}   {_bars(probabilities)}"
        parts.append(row)
    return "\n".join([*parts, ""])


def _bars(probabilities: Iterable[float]) -> str:
    """A small bar for each probability, lowest score first."""
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(p * 8))] for p in probabilities)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
