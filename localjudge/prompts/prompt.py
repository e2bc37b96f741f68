"""The prompt that an engine completes, as token ids, or as text where only a server has the tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: token ids, and the tag and the seed of its row.

    `text` is set instead of the token ids for an engine without a tokenizer: the row's own turn.
    """

    tag: int
    tokens: list[int]
    seed: int
    text: str = ""


class StopSubmitting(Exception):  # noqa: N818 (not an error)
    """Raised by an iterator of prompts: submit no more prompts; finish those in flight."""


def until_stopped(prompts: Iterable[Prompt | None]) -> Iterator[Prompt | None]:
    """Yield prompts until they end or raise `StopSubmitting`.

    For engines whose answers do not depend on how prompts are batched.
    """
    with suppress(StopSubmitting):
        yield from prompts
