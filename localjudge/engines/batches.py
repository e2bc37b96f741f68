"""Batches of prompts: chunks in input order, and batches that are padded to one length."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator

from localjudge.prompts.prompt import Prompt, StopSubmitting, until_stopped

# Prompts are padded to the next of these lengths, which grow by 2^(1/4): at most 19 % padding.
_LENGTHS = [int(32 * 2 ** (step / 4)) for step in range(60)]


def longest_prompt(context: int | None, max_tokens: int) -> int:
    """Return the number of tokens of the longest prompt that leaves room for an answer."""
    return (context or _LENGTHS[-1]) - max_tokens


def chunks(prompts: Iterable[Prompt | None], size: int) -> Iterator[list[Prompt]]:
    """Yield lists of `size` prompts in input order, and the rest at the end or at `StopSubmitting`."""
    chunk: list[Prompt] = []
    for prompt in until_stopped(prompts):
        if prompt is None:
            break
        chunk.append(prompt)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def batches(prompts: Iterable[Prompt | None], size: int, longest: int) -> Iterator[tuple[int, list[Prompt]]]:
    """Yield batches of `size` prompts of one padded length, in input order, with that length.

    Full batches come as soon as they are complete, the rest at the end; `StopSubmitting` ends the batches. The
    content of a batch does not change if complete batches are removed from the input.
    """
    waiting: dict[int, list[Prompt]] = defaultdict(list)
    try:
        for prompt in prompts:
            if prompt is None:
                break
            length = min(_LENGTHS[bisect.bisect_left(_LENGTHS, len(prompt.tokens))], longest)
            waiting[length].append(prompt)
            if len(waiting[length]) == size:
                yield length, waiting.pop(length)
    except StopSubmitting:
        return
    yield from sorted(waiting.items())
