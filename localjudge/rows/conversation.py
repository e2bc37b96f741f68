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
from localjudge.rows.columns import (
    CONVERSATION,
    CONVERSATIONS,
    IN_FULL,
    MESSAGES,
    PAIR,
    SYSTEM_PROMPT,
    WITH_REASONING,
    judges_conversation,
)
from localjudge.rows.messages import Block, Message, as_chat, read_messages, role_of, roles_of
from localjudge.rows.record import RecordError, said_of

NO_CONVERSATION = (
    "has no {$conversation}: the judge reads only the last turn of a conversation, and the last turn of the "
    "user before it as the instruction"
)
"""What a rubric without a conversation shows of one."""
# No content has an empty line.
_GAP = "\n\n"
_RESULT = re.compile(r"(Tool, (?:result|error) of call \d+:\n)> (.*)", re.DOTALL)
# Whatever a reader may take for the end of a line.
_LINE_END = re.compile("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")
_QUOTED_END = re.compile(f"{_LINE_END.pattern}> ")


def read_conversation(fields: dict[str, Any], taken: dict[str, str], used: Sequence[str]) -> None:
    """Put the fields of a record that are only in its messages into their places.

    The last turn is the candidate if no other column has it. The turns before it are the conversation, and the
    last one of the user among them is the instruction. If the whole conversation is the candidate, everything
    that the user says is the instruction, so that conversations with the same user turns belong together.
    An instruction or a response that is a list of messages is a part of the conversation, and the prompt of a
    system is its first turn. A template without a conversation shows such an instruction as a whole.

    Args:
        fields: the values of fields by their names.
        taken: the column of each field.
        used: the fields that the rubric's template uses.

    Raises:
        RecordError: the messages are not a conversation that can be judged.
    """
    if fields.get(MESSAGES, ()) is None:
        del fields[MESSAGES], taken[MESSAGES]
    # First, all turns of the record become its messages, in whichever columns they stand.
    shown, is_prompt = CONVERSATIONS.intersection(used), as_chat(fields.get("instruction")) is not None
    _gather(fields, taken)
    if judges_conversation(used) and fields.keys() & {CONVERSATION, MESSAGES, "candidate"} == {CONVERSATION}:
        fields["candidate"], taken["candidate"] = fields.pop(CONVERSATION), taken[CONVERSATION]  # text already
        return
    if MESSAGES not in fields and not shown:
        return
    # Then, what is judged, and which fields are missing.
    is_long = roles_of(fields.get(MESSAGES)).count("user") > 1
    whole = judges_conversation(used) or (IN_FULL in used and is_long and not shown)
    missing = {"candidate", *used} & {"candidate", "instruction", *CONVERSATIONS} - fields.keys()
    if whole or is_prompt or missing & CONVERSATIONS:
        _begin(fields, taken, is_answered=whole and taken.get("candidate") not in (None, "candidate"))
    answer, last = fields.get("candidate"), roles_of(fields.get(MESSAGES))[-1:]
    is_null = whole and "candidate" in fields and answer is None and last == ["user"]
    if MESSAGES not in fields or not (whole or missing) or is_null or not isinstance(answer, str | None):
        return
    # The missing fields are read from the messages, and from the answer if it has a column of its own.
    given, messages = taken[MESSAGES], fields.pop(MESSAGES)
    is_prompt &= not shown
    with said_of(f"{given!r}, the conversation:"):
        found = _fields(messages, answer, whole=whole, reasoning=WITH_REASONING in used, is_prompt=is_prompt)
    wanted = {*missing, "instruction"} - fields.keys() | ({"candidate"} if whole else set())
    for field in filter(wanted.__contains__, found):
        fields[field], taken[field] = found[field], taken.get(field, given)
    if not is_prompt:
        taken[CONVERSATION] = given


def _gather(fields: dict[str, Any], taken: dict[str, str]) -> None:
    """Move an instruction and a candidate that are lists of messages into the conversation."""
    for name in ("instruction", *CONVERSATIONS):
        chat = as_chat(fields.get(name))
        is_question = name == "instruction" and roles_of(fields.get(MESSAGES, chat))[-1:] == ["user"]
        if chat and ("candidate" in fields or not is_question):
            fields.setdefault(MESSAGES, chat)
            taken.setdefault(MESSAGES, taken.pop(name))
            del fields[name]
    if as_chat(answer := fields.get("candidate")) is not None:
        said = [taken[name] for name in (MESSAGES, "instruction", "candidate") if name in fields]
        fields[MESSAGES], taken[MESSAGES] = _continued(fields.get(MESSAGES), fields, answer), " + ".join(said)
        del fields["candidate"], taken["candidate"]


def _begin(fields: dict[str, Any], taken: dict[str, str], *, is_answered: bool) -> None:
    """Begin the conversation with the prompt of a system; a question and its answer are a conversation, too."""
    asked, prompt = fields.get("instruction"), fields.get(SYSTEM_PROMPT)
    if MESSAGES not in fields and asked and isinstance(asked, str) and (prompt or is_answered):
        fields[MESSAGES] = [{"role": "user", "content": asked}]
        taken[MESSAGES] = taken["instruction"] + (f" + {taken['candidate']}" if is_answered else "")
    elif MESSAGES not in fields and is_answered:
        said = taken["candidate"]
        raise RecordError(f"{said!r} has no question before it; name the turns with --column messages=COLUMN")
    if prompt and (turns := as_chat(fields.get(MESSAGES))):
        del fields[SYSTEM_PROMPT]
        has_one = role_of(turns[0]) in ("system", "developer")
        fields[MESSAGES] = turns if has_one else [{"role": "system", "content": prompt}, *turns]


def _continued(before: Any, fields: Mapping[str, Any], answer: Any) -> list[Any]:
    """Return a conversation that ends with an answer: a text, or messages, which may repeat what is before."""
    turns = as_chat(answer) or [{"role": "assistant", "content": answer}]
    if "user" in roles_of(turns):
        return turns
    asked = fields.get("instruction")
    begin = [{"role": "user", "content": asked}] if isinstance(asked, str) else []
    return [*(as_chat(before) or begin), *turns]


def read_pair(fields: dict[str, Any], taken: dict[str, str], used: Sequence[str]) -> None:
    """Read two conversations: what both share is the instruction, and how each ends a response.

    If they share only what the user says, the instruction is that, and each response the whole conversation.
    """
    both = [fields.get(name) for name in PAIR]
    before = as_chat(fields.get("instruction", fields.get(MESSAGES)))
    if None in both or all(as_chat(each) is None for each in (before, *both)):
        return
    said = taken.get("instruction") or taken.get(MESSAGES) or taken[PAIR[0]]
    talks = list[list[Message]]()
    for name, each in zip(PAIR, both, strict=True):
        with said_of(f"{taken[name]!r}, the conversation:"):
            talks.append(read_messages(_continued(before, fields, each)))
        if (last := talks[-1][-1].role) != "assistant":
            raise RecordError(f"{taken[name]!r}: the last turn is the {last}'s; it must be the assistant's")
    asked, other = map(_asked, talks)
    if asked != other:
        raise RecordError("its two conversations have different turns of the user; they cannot be compared")
    if "instruction" not in taken:
        fields.pop(MESSAGES, None)
    fields["instruction"], taken["instruction"] = "\n\n".join(asked), said
    shared, last_turns = talks[0][:-1], [talk[-1] for talk in talks]
    if shared != talks[1][:-1] or any(block.call for turn in last_turns for block in turn.blocks):
        fields |= {name: written(talk, reasoning=False) for name, talk in zip(PAIR, talks, strict=True)}
        return
    if CONVERSATION in used and CONVERSATION not in fields:
        fields[CONVERSATION], taken[CONVERSATION] = written(shared, reasoning=False), said
        fields["instruction"] = "".join(asked[-1:])
    elif len(shared) > 1:
        fields["instruction"] = written(shared, reasoning=False)
    fields |= {name: "\n".join(turn.texts()) for name, turn in zip(PAIR, last_turns, strict=True)}


def _asked(turns: Iterable[Message]) -> list[str]:
    """Return what the user says, a text for each turn."""
    return [text for turn in turns if turn.role == "user" for text in turn.texts()]


def _fields(
    messages: Any, answer: str | None, *, whole: bool, reasoning: bool, is_prompt: bool
) -> dict[str, str]:
    """Return the fields in messages and in the answer to them, if that has a column.

    Args:
        messages: the messages.
        answer: the answer; None if it is the last message.
        whole: whether the whole conversation is the candidate.
        reasoning: whether the assistant's reasoning is shown.
        is_prompt: whether all turns before the answer are the instruction.
    """
    turns = read_messages(messages)
    turns += [] if answer is None else [Message("assistant", [Block("text", answer)])]
    # A conversation of texts alone is written as it stands.
    if reasoning or any(block.call for turn in turns for block in turn.blocks):
        turns = [turn.with_thoughts_apart() for turn in turns]
    if all(turn.role != "assistant" for turn in turns):
        raise RecordError("no turn is the assistant's, which is judged; give the response in another column")
    if whole:
        return {"candidate": written(turns, reasoning=reasoning), "instruction": "\n\n".join(_asked(turns))}
    *before, last = turns
    if last.role != "assistant":
        raise RecordError(f"the last turn is the {last.role}'s; it must be the assistant's, which is judged")
    if any(block.call for block in last.blocks):
        raise RecordError("the last turn calls a tool; judge the whole conversation, with `rubric` agent")
    thoughts = Message("assistant", [block for block in last.blocks if block.kind == "reasoning"])
    text = written([*before, thoughts], reasoning=reasoning)
    found = {"candidate": "\n".join(last.texts()), CONVERSATION: text, WITH_REASONING: text}
    asked = _asked(before)
    if is_prompt and text not in [f"User:\n{_quoted(each)}" for each in asked]:
        asked = [text]
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


def cut_results(row: Row, used: Sequence[str], kept: Callable[[str], tuple[str, str, int]]) -> tuple[Row, int]:
    """Cut the results of tools in the conversation of a row; where a part is left out, a mark says so.

    Args:
        row: the row.
        used: the fields that the rubric's template uses, a conversation among them.
        kept: takes the content of a result; returns the beginning and the end to keep, and the number of tokens
            between them. A result that would not become shorter stays whole.

    Returns:
        the row, and the number of characters that are left out.
    """
    whole, left_out = judges_conversation(used), 0
    name = next(iter(CONVERSATIONS.intersection(used)))
    blocks = (row.candidate if whole else row.fields[name]).split(_GAP)
    for place, block in enumerate(blocks):
        if found := _RESULT.fullmatch(block):
            content = _QUOTED_END.sub(r"\1", found[2])
            begin, end, tokens = kept(content)
            mark = f"[{tokens} tokens of this result are not shown]"
            lines = [_quoted(begin)] * bool(begin) + [mark] + [_quoted(end)] * bool(end)
            shorter = found[1] + "\n".join(lines)
            if tokens and len(shorter) < len(block):
                blocks[place] = shorter
                left_out += len(content) - len(begin) - len(end)
    text = _GAP.join(blocks)
    cut = row.with_candidate(text) if whole else replace(row, fields={**row.fields, name: text})
    return cut, left_out


def _quoted(text: str) -> str:
    return "> " + _LINE_END.sub(r"\1> ", text)


def _heading(role: str, block: Block) -> str:
    if block.kind in ("result", "error"):
        return f"Tool, {block.kind} of call {block.call}"
    said = {"text": "", "reasoning": ", reasoning", "call": f", call {block.call}"}
    return role.capitalize() + said[block.kind]
