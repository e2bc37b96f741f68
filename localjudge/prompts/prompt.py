"""What an engine completes: a prompt as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an engine completes: token ids, and a tag and a seed that are the row's own."""

    tag: int
    tokens: list[int]
    seed: int


class StopSubmitting(Exception):  # noqa: N818 (no error)
    """Raised by an iterator of prompts: nothing more is to be begun, and what is begun is to be finished."""


def until_stopped(prompts: Iterable[Prompt]) -> Iterator[Prompt]:
    """The prompts, with a halt as their end: for engines whose answers do not hang on what comes together."""
    try:
        yield from prompts
    except StopSubmitting:
        return
