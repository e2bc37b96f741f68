"""A conversation in the form of the OpenAI API: a list of turns, each with a role and a content.

The text of a conversation is written so that no content can pass for a turn: a line names the role, and each
line of the content begins with `> `.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast, get_args

from localjudge.records import Role, Turn
from localjudge.rows.pair_columns import compares_responses
from localjudge.rows.record import RecordError

MESSAGES, CONVERSATION = "messages", "conversation"
"""The column with the turns, and the field of a template with their text."""
_ROLES = get_args(Role)
# Whatever a reader may take for the end of a line.
_LINE_END = re.compile("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")


def judges_conversation(used: Iterable[str]) -> bool:
    """Return whether a template with these fields judges a whole conversation, which then is the candidate."""
    used = set(used)
    return CONVERSATION in used and "candidate" not in used


def with_conversation(
    record: Mapping[str, Any], names: Callable[[str], Sequence[str]], used: Sequence[str]
) -> Mapping[str, Any]:
    """Return a record with the fields that it has only in its messages, instead of them.

    The last turn is the candidate if no other column has it. The turns before it are the conversation, and the
    last one of the user among them is the instruction. If the whole conversation is the candidate, everything
    that the user says is the instruction, so that conversations with the same user turns belong together.
    A template that compares two responses uses no messages.

    Args:
        record: columns by name.
        names: returns the possible columns of a field, the usual one first.
        used: the fields that the rubric's template uses.

    Raises:
        RecordError: the messages are not a conversation that can be judged.
    """
    if compares_responses(used):
        return record
    fields = (MESSAGES, "candidate", "instruction", CONVERSATION)
    own = {field: name for field in fields for name in reversed(names(field)) if name in record}
    values = {field: record[name] for field, name in own.items()}
    whole, answer = judges_conversation(used), values.get("candidate")
    missing = {"candidate", *used} & set(fields) - own.keys()
    if values.get(MESSAGES) is not None and (whole or missing) and isinstance(answer, str | None):
        given = own[MESSAGES]
        try:
            found = _fields(values[MESSAGES], answer, whole=whole)
        except RecordError as error:
            raise RecordError(f"{given!r}, the conversation: {error}") from None
        wanted = missing | ({"instruction"} - own.keys()) | ({"candidate"} if whole else set())
        found = {field: text for field, text in found.items() if field in wanted}
    elif whole and CONVERSATION in own and "candidate" not in own:
        given, found = own[CONVERSATION], {"candidate": values[CONVERSATION]}  # it is text already
    else:
        return record
    rest = {name: value for name, value in record.items() if name != given}
    return rest | {own.get(field, names(field)[0]): text for field, text in found.items()}


def _fields(messages: Any, answer: str | None, *, whole: bool) -> dict[str, str]:
    """Return the fields in messages and in the answer to them, if that has a column."""
    turns = _turns(messages)
    turns += [] if answer is None else [Turn("assistant", answer)]
    if whole:
        asked = [turn.text for turn in turns if turn.role == "user"]
        return {"candidate": _written(turns), "instruction": "\n\n".join(asked)}
    *before, last = turns
    if last.role != "assistant":
        raise RecordError(f"the last turn is the {last.role}'s; it must be the assistant's, which is judged")
    asked = [turn.text for turn in before if turn.role == "user"]
    found = {"candidate": last.text, CONVERSATION: _written(before)}
    return found | ({"instruction": asked[-1]} if asked else {})


def _written(turns: Iterable[Turn]) -> str:
    return "\n\n".join(f"{turn.role.capitalize()}:\n> " + _LINE_END.sub(r"\1> ", turn.text) for turn in turns)


def _turns(messages: Any) -> list[Turn]:
    """Return the turns in a list of messages, or in its JSON text."""
    if isinstance(messages, str):
        try:
            messages = json.loads(messages)
        except (ValueError, RecursionError):
            raise RecordError("not JSON; give a list of turns, each with role and content") from None
    messages = _as_list(messages)
    if not messages:
        raise RecordError("no turns; give a list of turns, each with role and content")
    return [_turn(message, f"turn {number}") for number, message in enumerate(messages, 1)]


def _as_list(value: Any) -> list[Any] | None:
    """Return a list, a tuple or an array of numpy as a list."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, list | tuple) else None


def _turn(message: Any, place: str) -> Turn:
    if not isinstance(message, Mapping):
        raise RecordError(f"{place} is of type {type(message).__name__}; give an object with role and content")
    role, content = cast(Role, message.get("role")), message.get("content")
    if called := [name for name in ("tool_calls", "function_call", "audio") if message.get(name)]:
        raise RecordError(f"{place} has {called[0]}, which is not supported; only turns of text are judged")
    if role is None:
        raise RecordError(f"{place} has no role; give role and content")
    if role not in _ROLES:
        known = ", ".join(_ROLES)
        raise RecordError(f"{place} has the role {str(role)[:40]!r}, which is not supported; use {known}")
    if isinstance(content, Mapping) and isinstance(content.get("answer"), str):
        content = content["answer"]  # as Arena-Hard writes the answer of a model
    parts = _as_list(content)
    if parts is not None:
        for part in parts:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            if kind != "text" or not isinstance(part.get("text"), str):
                said = f"has a part of type {str(kind)[:40]}, which is not supported; only text is judged"
                raise RecordError(f"{place} {said}")
        content = "\n".join(part["text"] for part in parts)
    if not isinstance(content, str):
        said = f"has content of type {type(content).__name__}; it must be text or a list of text parts"
        raise RecordError(f"{place} {said}")
    return Turn(role, content)
