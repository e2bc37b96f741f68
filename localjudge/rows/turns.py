"""The turns of a conversation in other values than messages: pairs, marked texts, events, lists of roles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from localjudge.errors import RowProblem
from localjudge.rows.messages import as_turns, event_messages
from localjudge.rows.paths import is_missing
from localjudge.rows.record import RecordError

_SPEAKER = re.compile(r"(?:^|\s)(USER|ASSISTANT|SYSTEM|FUNCTION RESPONSE):")
_CALL = re.compile(r'<functioncall>\s*\{"name":\s*"([^"]+)"(?:,\s*"arguments":\s*(.*?))?\}', re.DOTALL)


def turns_of(role: str, value: Any) -> list[Any]:
    """Return the turns of a part of a conversation.

    Args:
        role: the role of a turn, or what the value holds: `messages`, `history` (messages alone), `pairs`,
            `marked` or `events`.
        value: the value.

    Raises:
        RecordError: the value does not hold such turns.
    """
    if role == "history":
        return _messages(value)
    if role == "messages" and isinstance(value, str):
        return [{"role": "user", "content": value}]
    if role == "messages":
        return _messages(value)
    if role == "pairs":
        return _turns_of_pairs(value)
    if role == "marked":
        return list(_turns_of_marked_text(value))
    if role == "events":
        return list(event_messages(value))
    return [{"role": role, "content": value}]


def _messages(value: Any) -> list[Any]:
    """Return the messages of a list, which may be empty."""
    turns = as_turns(value)
    if turns is None and value != []:
        raise RecordError("its turns are not a list of messages", RowProblem.CONVERSATION)
    return turns or []


def alternating_turns(values: Mapping[str, Any]) -> list[Any]:
    """Return the turns in a list of each role, one after the other; none without one of the lists.

    Args:
        values: a list of texts or messages for each role, or a single one.

    Raises:
        RecordError: the lists have different lengths.
    """
    if any(is_missing(value) for value in values.values()):
        return []
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    if len({len(texts) for texts in lists}) > 1:
        lengths = f"has {len(lists[1])} of the {len(lists[0])} turns of its question"
        raise RecordError(lengths, RowProblem.CONVERSATION)
    turns = []
    for texts in zip(*lists, strict=True):
        for role, text in zip(values, texts, strict=True):
            content = text.get("content") if isinstance(text, Mapping) else text
            turns.append({"role": role, "content": content})
    return turns


def _turns_of_pairs(value: Any) -> list[Any]:
    """Return the turns of a list of pairs, each a text of the user and the answer; or of a list of messages."""
    pairs = value if isinstance(value, list) else [value]
    messages = as_turns(pairs)
    if messages is not None:
        return messages
    if not all(isinstance(pair, list) for pair in pairs):
        raise RecordError("its history is not a list of pairs or of messages", RowProblem.CONVERSATION)
    turns = []
    for pair in pairs:
        turns += alternating_turns({"user": pair[:1], "assistant": pair[1:]})
    return turns


def _turns_of_marked_text(text: Any) -> Iterator[Any]:
    """Yield the turns of a text in which a word in capitals stands before each, as Glaive writes it."""
    if not isinstance(text, str):
        raise RecordError("its marked turns are not a text", RowProblem.CONVERSATION)
    parts = _SPEAKER.split(text.replace("<|endoftext|>", ""))[1:]
    for word, part in zip(parts[::2], parts[1::2], strict=True):
        content = part.strip()
        call = _CALL.fullmatch(content)
        if word == "FUNCTION RESPONSE":
            yield {"role": "tool", "content": content}
        elif call:
            arguments = (call[2] or "").strip("'")
            yield {"role": "assistant", "tool_calls": [{"name": call[1], "arguments": arguments}]}
        else:
            yield {"role": word.lower(), "content": content}
