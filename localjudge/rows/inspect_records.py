"""Records of a log of Inspect, one for each sample, read by Inspect itself."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from localjudge.errors import RowError
from localjudge.rows.record import Record, too_large

SUFFIX = ".eval"
_MOST_EVENTS = 12
"""How many times as large as a row the file of a sample may be, with its events."""
_HEAD = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"status":')


def is_inspect_log(name: str) -> bool:
    """Return whether a file is a log of Inspect: by its suffix, or a `.json` by its first bytes."""
    if not name.endswith(".json") or not Path(name).is_file():
        return name.endswith(SUFFIX)
    with Path(name).open("rb") as stream:
        return _HEAD.match(stream.read(200)) is not None


def read_inspect(name: str, most_bytes: int) -> Iterator[Record]:
    """Yield the records of the samples of a log.

    A record has the metadata of its sample and `id`, `messages`, `reference` (the target), `system` (the model
    that was evaluated) and `epoch`. A sample that ended with an error is a failure.
    """
    from inspect_ai.log import read_eval_log

    is_json = not name.endswith(SUFFIX)
    log = read_eval_log(name, header_only=not is_json, resolve_attachments=True)
    # Of a `.json`, Inspect would search all samples for each one.
    for sample in (log.samples or []) if is_json else _samples(name, log, most_bytes):
        is_large = isinstance(sample, RowError)
        yield sample if is_large else _record(sample, log.eval.model, log.eval.config.epochs or 1, most_bytes)


def _samples(name: str, log: Any, most_bytes: int) -> Iterator[Any]:
    """Yield the samples that a packed log has, each read when it is asked for; a RowError for a large one.

    A sample has events that no row has. So its file may be larger than a row, but not without a limit: a few
    bytes can be packed so that they fill the memory.
    """
    from inspect_ai.log import read_eval_log_sample

    if log.eval.dataset.sample_ids is None:
        raise ValueError("the log does not name its samples; read and write it with Inspect, which adds them")
    with zipfile.ZipFile(name) as packed:
        sizes = {each.filename: each.file_size for each in packed.infolist()}
    for own, epoch in product(log.eval.dataset.sample_ids, range(1, (log.eval.config.epochs or 1) + 1)):
        if sizes.get(f"samples/{own}_epoch_{epoch}.json", 0) > _MOST_EVENTS * most_bytes:
            yield too_large(most_bytes)
            continue
        how: Any = {"exclude_fields": {"events", "store"}, "resolve_attachments": True}
        with suppress(IndexError):  # the log has no such sample
            yield read_eval_log_sample(name, id=own, epoch=epoch, **how)


def _record(sample: Any, model: str, epochs: int, most_bytes: int) -> Record:
    if sample.error is not None:
        return RowError(f"the sample ended with an error: {' '.join(sample.error.message.split())}")
    record = {
        **(sample.metadata or {}),
        "id": f"{sample.id}-{sample.epoch}" if epochs > 1 else str(sample.id),
        "messages": message_records(sample.messages, sample.output),
        **({"reference": sample.target} if sample.target else {}),
        "system": model,
        "epoch": sample.epoch,
        **({"scores": {name: score.value for name, score in sample.scores.items()}} if sample.scores else {}),
    }
    size = len(json.dumps(record, default=str))
    return too_large(most_bytes) if size > most_bytes else record


def message_records(messages: Iterable[Any], output: Any) -> list[dict[str, Any]]:
    """Return the messages of a sample, of a log or of a task that runs, with calls, results and reasoning.

    Args:
        messages: the messages, objects of Inspect.
        output: the sample's output. It is the last turn if no message is the assistant's: a solver that does
            not generate writes only the output.
    """
    turns = [message.model_dump(exclude_none=True) for message in messages]
    if output.choices and not any(turn["role"] == "assistant" for turn in turns):
        turns.append(output.message.model_dump(exclude_none=True))
    return turns
