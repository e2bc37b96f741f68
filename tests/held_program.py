"""Run `localjudge` with an engine that gets only some prompts until the test allows more.

    python held_program.py PROMPTS ARGUMENTS…

A run reads all rows before it starts, so the rows cannot be delayed. Instead the engine is delayed: after
PROMPTS prompts, those that are judged again included, it waits until standard input is closed. So the test that
holds the other end knows that the run is not finished.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from localjudge.cli import main
from localjudge.prompts.task import Prompt, TaskFeed


def hold_after(count: int) -> None:
    every, given = TaskFeed.__iter__, itertools.count()

    def held(feed: TaskFeed) -> Iterator[Prompt | None]:
        for prompt in every(feed):
            if next(given) == count:
                sys.stdin.buffer.read()
            yield prompt

    TaskFeed.__iter__ = held  # type: ignore[method-assign]


if __name__ == "__main__":
    hold_after(int(sys.argv.pop(1)))
    main()
