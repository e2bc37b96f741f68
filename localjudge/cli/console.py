"""The console: colours and the live line, with text from outside made printable. It loads Rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import rich.console
from rich.segment import Segment
from rich.text import Text

from localjudge.system.terminal import open_null, printable, unfiltered


class Console(rich.console.Console):
    """A console on stdout or stderr. Text from outside stays in its cell and cannot add control codes."""

    def __init__(self, *, stderr: bool = False, width: int | None = None, soft_wrap: bool = False) -> None:
        super().__init__(
            file=unfiltered(sys.stderr if stderr else sys.stdout),
            stderr=stderr,
            width=width,
            soft_wrap=soft_wrap,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor as it is, because a program that is killed cannot show it again."""
        return False

    def on_broken_pipe(self) -> None:
        """Go on without messages if this is stderr, as the filter does."""
        if not self.stderr:
            raise
        self.quiet = True
        open_null(self.file.fileno())

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        return super().render(_safe(renderable) if isinstance(renderable, Text) else renderable, options)


def _safe(text: Text) -> Text:
    """Return the text with printable characters only, and its styles in place."""
    if (shown := printable(text.plain)) == text.plain:
        return text
    places = [0, *accumulate(len(printable(character)) for character in text.plain)]
    safe = text.copy()
    safe.plain = shown
    safe.spans = [span._replace(start=places[span.start], end=places[span.end]) for span in text.spans]
    return safe
