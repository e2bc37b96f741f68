"""Run `localjudge` with an engine that gets only some prompts until the test allows more.

    python held_program.py PROMPTS ARGUMENTS…

A run reads all rows before it starts, so the rows cannot be delayed. Instead the engine is delayed: after
PROMPTS prompts it waits until standard input is closed. So the test that holds the other end knows that the run
is not finished.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

from localjudge.cli import main
from localjudge.prompts.task import Prompt, TaskFeed


def hold_after(count: int) -> None:
    every = TaskFeed.__iter__

    def held(feed: TaskFeed) -> Iterator[Prompt | None]:
        prompts = every(feed)
        yield from islice(prompts, count)
        sys.stdin.buffer.read()
        yield from prompts

    TaskFeed.__iter__ = held  # type: ignore[method-assign]


if __name__ == "__main__":
    hold_after(int(sys.argv.pop(1)))
    main()
