"""The batches into which engines divide prompts that they do not take one at a time.

A chunk has prompts in input order; a batch has prompts of similar length, so that it costs little padding.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

from localjudge.prompts.task import Prompt, StopSubmitting

# The upper ends of the intervals of lengths. They grow by 2^(1/8): a full batch has at most 9 % padding.
_INTERVALS = [int(32 * 2 ** (step / 8)) for step in range(120)]
# Prompts that fill no batch of one interval share batches. This bounds the longest of a batch relative to its
# shortest. A larger bound makes fewer batches with more padding: in runs of 16 rows, 15 % at 1.5 and 21 % at 2.
_SPREAD = 1.5
# With these rotary embeddings, the rotation of a token depends on the longest row of its batch.
_BATCH_ROPE_TYPES = {"dynamic", "longrope"}


def chunks(prompts: Iterable[Prompt | None], size: int) -> Iterator[list[Prompt]]:
    """Yield lists of prompts in input order, and the rest at the end, at None or at `StopSubmitting`.

    A list has `size` prompts, and those that follow with the same instruction, at most twice as many, so that
    one worker computes what they share.
    """
    chunk: list[Prompt] = []
    with suppress(StopSubmitting):
        for prompt in prompts:
            if prompt is None:
                break
            if len(chunk) == 2 * size or (len(chunk) >= size and not _has_same_instruction(chunk[-1], prompt)):
                yield chunk
                chunk = []
            chunk.append(prompt)
    if chunk:
        yield chunk


def _has_same_instruction(last: Prompt, prompt: Prompt) -> bool:
    """Return whether a prompt begins as the last one of a chunk, up to the end of its instruction."""
    if len(prompt.beginnings) < 2:
        return False
    end = prompt.beginnings[1]
    return last.tokens[:end] == prompt.tokens[:end]


def batches(prompts: Iterable[Prompt | None], size: int, *, mixed: bool) -> Iterator[list[Prompt]]:
    """Yield batches of up to `size` prompts of similar length.

    A batch of `size` prompts of one interval of lengths comes as soon as it is complete. The prompts that are
    left at the end are sorted by length, longest first, and divided into batches. `StopSubmitting` ends the
    batches without them.

    The content of a batch does not change if other batches are removed from the input, so a run that is
    continued computes the same batches. This holds because the rest of an interval comes after its full
    batches, and a batch of the rest ends when it is full or when the next prompt, and so each later one, is too
    short for it.

    Args:
        prompts: the prompts, in a fixed order.
        size: the most prompts of a batch.
        mixed: whether the prompts left at the end may share a batch with prompts of other intervals.
    """
    waiting: dict[int, list[Prompt]] = defaultdict(list)
    try:
        for prompt in prompts:
            if prompt is None:
                break
            similar = waiting[_interval(prompt)]
            similar.append(prompt)
            if len(similar) == size:
                yield waiting.pop(_interval(prompt))
    except StopSubmitting:
        return
    left = list(chain.from_iterable(waiting.values()))
    left.sort(key=lambda prompt: len(prompt.tokens), reverse=True)
    batch: list[Prompt] = []
    for prompt in left:
        if batch and (len(batch) == size or not _similar(batch[0], prompt, mixed=mixed)):
            yield batch
            batch = []
        batch.append(prompt)
    if batch:
        yield batch


def rotates_by_batch(config: Any) -> bool:
    """Return whether the result of a row depends on the longest row of its batch.

    Prompts of different intervals must not share a batch then (`batches`). The rotation of such a model changes
    at a length that is usually a power of two, and each power of two ends an interval.

    Args:
        config: the transformers configuration of a language model.
    """
    rope = getattr(config, "rope_parameters", None)
    if not rope:
        return False
    rope_types = {rope.get("rope_type")}
    for parameters in rope.values():  # a model can have parameters for each type of its layers
        if isinstance(parameters, dict):
            rope_types.add(parameters.get("rope_type"))
    return not rope_types.isdisjoint(_BATCH_ROPE_TYPES)


def _interval(prompt: Prompt) -> int:
    """Return the number of the interval of lengths of a prompt."""
    return bisect.bisect_left(_INTERVALS, len(prompt.tokens))


def _similar(longest: Prompt, prompt: Prompt, *, mixed: bool) -> bool:
    """Return whether a prompt may share a batch with the longest one of it."""
    if _interval(longest) == _interval(prompt):
        return True
    return mixed and len(longest.tokens) <= _SPREAD * len(prompt.tokens)
