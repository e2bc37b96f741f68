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


class until_stopped:  # noqa: N801 (a function of iterators, like those of itertools)
    """The prompts, with `StopSubmitting` as their end, for engines whose answers do not depend on which prompts
    come together.

    Prompts that end for the moment and go on later do so here, too.
    """

    def __init__(self, prompts: Iterable[Prompt]) -> None:
        self._prompts = iter(prompts)
        self._stopped = False

    def __iter__(self) -> Iterator[Prompt]:
        return self

    def __next__(self) -> Prompt:
        if self._stopped:
            raise StopIteration
        try:
            return next(self._prompts)
        except StopSubmitting:
            self._stopped = True
            raise StopIteration from None
