"""A conversation, and the text in which a judge reads it.

The form of the text is fixed, and `written` has it: for each block a line that names it, and the content, of
which each line begins with `> `; an empty line between two blocks. No content has a line that begins
otherwise, so nothing that was said can pass for another turn, a call or a result, and the blocks can be read
back from the text:

    User:
    > Is it raining in Oslo?

    Assistant, call 1:
    > weather {"city": "Oslo"}

    Tool, result of call 1:
    > 4 °C, rain
    [812 tokens of this result are not shown]
    > until midnight

    Assistant:
    > Yes, until midnight.

`Tool, error of call 1:` has the result of a call that failed, and `Assistant, reasoning:` what the assistant
thought, which only `{$conversation_with_reasoning}` shows. The name of a tool with other characters than
letters, digits and `_.:/-` is written as JSON. The line in brackets stands where a result was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from localjudge.records import Row
from localjudge.rows.messages import Block, Message, read_messages
from localjudge.rows.pair_columns import compares_responses
from localjudge.rows.record import RecordError

MESSAGES, CONVERSATION = "messages", "conversation"
"""The column with the turns, and the field of a template with their text."""
WITH_REASONING = "conversation_with_reasoning"
"""The field of a template with their text and the assistant's reasoning."""
CONVERSATIONS = frozenset({CONVERSATION, WITH_REASONING})
# No content has an empty line.
_GAP = "\n\n"
_RESULT = re.compile(r"(Tool, (?:result|error) of call \d+:\n)> (.*)", re.DOTALL)
# Whatever a reader may take for the end of a line.
_LINE_END = re.compile("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")
_QUOTED_END = re.compile(f"{_LINE_END.pattern}> ")


def judges_conversation(used: Iterable[str]) -> bool:
    """Return whether a template with these fields judges a whole conversation, which then is the candidate."""
    used = set(used)
    return not CONVERSATIONS.isdisjoint(used) and "candidate" not in used


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
    fields = (MESSAGES, "candidate", "instruction", *CONVERSATIONS)
    own = {field: name for field in fields for name in reversed(names(field)) if name in record}
    values = {field: record[name] for field, name in own.items()}
    whole, answer = judges_conversation(used), values.get("candidate")
    missing = {"candidate", *used} & set(fields) - own.keys()
    if values.get(MESSAGES) is not None and (whole or missing) and isinstance(answer, str | None):
        given = own[MESSAGES]
        try:
            found = _fields(values[MESSAGES], answer, whole=whole, reasoning=WITH_REASONING in used)
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


def _fields(messages: Any, answer: str | None, *, whole: bool, reasoning: bool) -> dict[str, str]:
    """Return the fields in messages and in the answer to them, if that has a column."""
    turns = read_messages(messages)
    turns += [] if answer is None else [Message("assistant", [Block("text", answer)])]
    # A conversation of texts alone is written as it stands.
    if reasoning or any(block.call for turn in turns for block in turn.blocks):
        turns = [turn.with_thoughts_apart() for turn in turns]
    if whole:
        asked = [text for turn in turns if turn.role == "user" for text in turn.texts()]
        return {"candidate": written(turns, reasoning=reasoning), "instruction": "\n\n".join(asked)}
    *before, last = turns
    if last.role != "assistant":
        raise RecordError(f"the last turn is the {last.role}'s; it must be the assistant's, which is judged")
    if any(block.call for block in last.blocks):
        raise RecordError("the last turn calls a tool; judge the whole conversation, with `rubric` agent")
    asked = [text for turn in before if turn.role == "user" for text in turn.texts()]
    thoughts = Message("assistant", [block for block in last.blocks if block.kind == "reasoning"])
    text = written([*before, thoughts], reasoning=reasoning)
    found = {"candidate": "\n".join(last.texts()), CONVERSATION: text, WITH_REASONING: text}
    return found | ({"instruction": asked[-1]} if asked else {})


def written(turns: Iterable[Message], *, reasoning: bool) -> str:
    """Return the text of a conversation, in the form that this module describes.

    Args:
        turns: the turns.
        reasoning: whether the assistant's reasoning is shown.
    """
    return _GAP.join(
        f"{_heading(turn.role, block)}:\n{_quoted(block.text)}"
        for turn in turns
        for block in turn.blocks
        if reasoning or block.kind != "reasoning"
    )


def cut_results(
    row: Row, used: Sequence[str], kept: Callable[[int, str], tuple[str, str, int]]
) -> tuple[Row, int]:
    """Cut the results of tools in the conversation of a row; where a part is left out, a mark says so.

    Args:
        row: the row.
        used: the fields that the rubric's template uses, a conversation among them.
        kept: takes the number of a result, from 0, and its content; returns the beginning and the end to keep,
            and the number of tokens between them. A result that would not become shorter stays whole.

    Returns:
        the row, and the number of characters that are left out.
    """
    whole, left_out, number = judges_conversation(used), 0, 0
    name = next(iter(CONVERSATIONS.intersection(used)))
    blocks = (row.candidate if whole else row.fields[name]).split(_GAP)
    for place, block in enumerate(blocks):
        if found := _RESULT.fullmatch(block):
            content = _QUOTED_END.sub(r"\1", found[2])
            begin, end, tokens = kept(number, content)
            mark = f"[{tokens} tokens of this result are not shown]"
            lines = [_quoted(begin)] * bool(begin) + [mark] + [_quoted(end)] * bool(end)
            shorter = found[1] + "\n".join(lines)
            if tokens and len(shorter) < len(block):
                blocks[place] = shorter
                left_out += len(content) - len(begin) - len(end)
            number += 1
    text = _GAP.join(blocks)
    fields = row.fields if whole else {**row.fields, name: text}
    return replace(row.with_candidate(text) if whole else row, fields=fields), left_out


def _quoted(text: str) -> str:
    return "> " + _LINE_END.sub(r"\1> ", text)


def _heading(role: str, block: Block) -> str:
    if block.kind in ("result", "error"):
        return f"Tool, {block.kind} of call {block.call}"
    said = {"text": "", "reasoning": ", reasoning", "call": f", call {block.call}"}
    return role.capitalize() + said[block.kind]
