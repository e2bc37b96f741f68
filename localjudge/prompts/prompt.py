"""The prompt that an engine completes, as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: token ids, and the tag and the seed of its row."""

    tag: int
    tokens: list[int]
    seed: int


class StopSubmitting(Exception):  # noqa: N818 (not an error)
    """Raised by an iterator of prompts: submit no more prompts; finish those in flight."""


class until_stopped:  # noqa: N801 (a function of iterators, like those of itertools)
    """Iterate over prompts until they end or raise `StopSubmitting`.

    For engines whose answers do not depend on how prompts are batched. An iterator that ends and later
    continues does so here, too.
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
