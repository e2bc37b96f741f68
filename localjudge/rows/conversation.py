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
from dataclasses import dataclass, replace
from typing import Any

from localjudge.errors import RowProblem
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
from localjudge.rows.messages import Block, Message, as_turns, read_messages, role_of, roles_of
from localjudge.rows.reading import Reading
from localjudge.rows.record import RecordError, error_context

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


def conversation_fields(values: Mapping[str, Any], reading: Reading, used: Sequence[str]) -> dict[str, Any]:
    """Return the values of the fields of a row with one response, with those that its conversation has.

    The last turn is the response if no column has it. The turns before it are the conversation, and the last
    one of the user among them is the instruction, unless the reading says that all of them are. If the whole
    conversation is the candidate, everything that the user says is the instruction, so that conversations with
    the same user turns belong together. The prompt of a system is the first turn.

    Args:
        values: the values of fields by their names.
        reading: the reading of the file.
        used: the fields that the rubric's template uses.

    Raises:
        RecordError: the messages are not a conversation that can be judged.
    """
    fields = {name: value for name, value in values.items() if name not in (MESSAGES, SYSTEM_PROMPT)}
    is_whole = judges_conversation(used)
    is_shown = not CONVERSATIONS.isdisjoint(used)
    if reading.candidate_is_transcript or not (is_whole or _has_turns(values)):
        return fields
    _check_question_is_there(values, reading)
    before = _turns_before(values)
    response = _response_turns(values, reading)
    if response is None and ("candidate" in reading.fields or MESSAGES not in values):
        return fields  # which lack the candidate
    if IN_FULL in used and not is_shown:
        is_whole = is_whole or roles_of(before).count("user") > 1
    turns = _all_turns(before, response, reading, is_whole=is_whole)
    turns = _with_system_prompt(turns, values.get(SYSTEM_PROMPT))
    with error_context(f"{_columns_of_turns(reading, values)!r}, the conversation:"):
        talk = _Talk.read(turns, reasoning=WITH_REASONING in used)
        if is_whole:
            return fields | {"candidate": talk.text(), "instruction": "\n\n".join(_asked(talk.turns))}
        return fields | _fields_of_last_turn(talk, fields, reading, is_shown=is_shown, used=used)


def _has_turns(values: Mapping[str, Any]) -> bool:
    """Return whether a field of a row is a list of messages, or a prompt of a system stands before them."""
    if MESSAGES in values or values.get(SYSTEM_PROMPT):
        return True
    return any(as_turns(values.get(name)) is not None for name in ("instruction", "candidate"))


def _check_question_is_there(values: Mapping[str, Any], reading: Reading) -> None:
    """Check that a row has the messages, or else the instruction, that its file has.

    Raises:
        RecordError: it lacks them.
    """
    messages = reading.fields.get(MESSAGES)
    if messages is not None and messages.texts and MESSAGES not in values:
        raise RecordError(f"no messages: no value at {reading.columns_of(MESSAGES)!r}", RowProblem.MISSING)
    if "instruction" in reading.fields and "instruction" not in values and MESSAGES not in values:
        column = reading.columns_of("instruction")
        raise RecordError(f"no instruction: no value at {column!r}", RowProblem.MISSING)


def _turns_before(values: Mapping[str, Any]) -> list[Any]:
    """Return the turns before a response in a column of its own, or all turns."""
    messages = as_turns(values.get(MESSAGES))
    if messages is not None:
        return messages
    if MESSAGES in values and not isinstance(values[MESSAGES], list):
        return []
    instruction = values.get("instruction")
    turns = as_turns(instruction)
    if turns is not None:
        return turns
    if isinstance(instruction, str) and instruction:
        return [{"role": "user", "content": instruction}]
    return []


def _response_turns(values: Mapping[str, Any], reading: Reading) -> list[Any] | None:
    """Return the turns of a response in a column of its own; None if the record has none.

    Raises:
        RecordError: the turns begin with the prompt, and those of the file do not, or the reverse.
    """
    response = values.get("candidate")
    if response is None:
        return None
    turns = as_turns(response)
    if turns is None:
        return [{"role": "assistant", "content": response}]
    holds_prompt = role_of(turns[0]) in ("user", "system", "developer")
    if holds_prompt != reading.responses_hold_prompt:
        begins = (
            "begins with a turn of the user or the system" if holds_prompt else "does not begin with the prompt"
        )
        reason = f"{reading.columns_of('candidate')!r} {begins}, unlike in most records of this file"
        raise RecordError(reason, RowProblem.CONVERSATION)
    return turns


def _all_turns(before: list[Any], response: list[Any] | None, reading: Reading, *, is_whole: bool) -> list[Any]:
    """Return the turns before a response and those of the response.

    Raises:
        RecordError: a whole conversation has no question, or the response follows another one.
    """
    if response is None:
        return before
    if reading.responses_hold_prompt:
        return response
    column = reading.columns_of("candidate")
    if is_whole and not before:
        reason = f"{column!r} has no question before it; name the turns with --column messages=COLUMN"
        raise RecordError(reason, RowProblem.CONVERSATION)
    _refuse_two_answers(before, response, column)
    return before + response


def _refuse_two_answers(before: Sequence[Any], response: Sequence[Any], column: str) -> None:
    """Refuse a response in a column of its own that follows another turn of the assistant.

    Raises:
        RecordError: it does.
    """
    if before and role_of(before[-1]) == role_of(response[0]) == "assistant":
        reason = f"{column!r} follows another turn of the assistant; two responses cannot be judged as one"
        raise RecordError(reason, RowProblem.CONVERSATION)


def _with_system_prompt(turns: list[Any], prompt: Any) -> list[Any]:
    """Return turns that begin with the prompt of a system, if there is one and they have none."""
    if not prompt or (turns and role_of(turns[0]) in ("system", "developer")):
        return turns
    return [{"role": "system", "content": prompt}, *turns]


def _columns_of_turns(reading: Reading, values: Mapping[str, Any]) -> str:
    """Return the columns that have the turns, in words."""
    names = [
        name for name in (MESSAGES, "instruction", "candidate") if name in reading.fields and name in values
    ]
    if MESSAGES in names and "instruction" in names:
        names.remove("instruction")
    return " + ".join(reading.columns_of(name) for name in names)


@dataclass(frozen=True, slots=True)
class _Talk:
    """A conversation.

    Attributes:
        turns: its turns.
        reasoning: whether the assistant's reasoning is shown.
    """

    turns: list[Message]
    reasoning: bool

    @classmethod
    def read(cls, messages: Any, *, reasoning: bool) -> _Talk:
        """Return the conversation in messages, of which the assistant must have said something."""
        turns = read_messages(messages)
        # A conversation of texts alone is written as it stands.
        if reasoning or any(block.call for turn in turns for block in turn.blocks):
            turns = [turn.with_thoughts_apart() for turn in turns]
        if all(turn.role != "assistant" for turn in turns):
            reason = "no turn is the assistant's, which is judged; give the response in another column"
            raise RecordError(reason, RowProblem.CONVERSATION)
        return cls(turns, reasoning)

    def text(self) -> str:
        return written(self.turns, reasoning=self.reasoning)


def _fields_of_last_turn(
    talk: _Talk, fields: Mapping[str, Any], reading: Reading, *, is_shown: bool, used: Sequence[str]
) -> dict[str, Any]:
    """Return the response, which is the last turn, and the fields that come from the turns before it."""
    last = talk.turns[-1]
    if last.role != "assistant":
        reason = f"the last turn is the {last.role}'s; it must be the assistant's, which is judged"
        raise RecordError(reason, RowProblem.CONVERSATION)
    if any(block.call for block in last.blocks):
        reason = "the last turn calls a tool; judge the whole conversation, with `rubric` agent"
        raise RecordError(reason, RowProblem.CONVERSATION)
    thoughts = Message("assistant", [block for block in last.blocks if block.kind == "reasoning"])
    before = talk.turns[:-1]
    text = written([*before, thoughts], reasoning=talk.reasoning)
    found: dict[str, Any] = {"candidate": "\n".join(last.texts())}
    for name in CONVERSATIONS.intersection(used):
        if not isinstance(fields.get(name), str):
            found[name] = text
    instruction = _instruction(before, text, fields, reading, is_shown=is_shown)
    if instruction is not None:
        found["instruction"] = instruction
    return found


def _instruction(
    before: Sequence[Message], text: str, fields: Mapping[str, Any], reading: Reading, *, is_shown: bool
) -> str | None:
    """Return the instruction in the turns before a response; None if there is none, or a column has it."""
    asked = _asked(before)
    shows_all = reading.turns_are_instruction and not is_shown
    if isinstance(fields.get("instruction"), str) and not shows_all:
        return None
    if shows_all and text not in [f"User:\n{_quoted(question)}" for question in asked]:
        return text
    return asked[-1] if asked else None


def pair_fields(values: Mapping[str, Any], reading: Reading, used: Sequence[str]) -> dict[str, Any]:
    """Return the values of the fields of a row with two responses, with those that its conversations have.

    What both conversations share is the instruction, and how each ends is a response. If they share only what
    the user says, the instruction is that, and each response the whole conversation.

    Args:
        values: the values of fields by their names.
        reading: the reading of the file.
        used: the fields that the rubric's template uses.

    Raises:
        RecordError: they are not two conversations that can be compared.
    """
    fields = {name: value for name, value in values.items() if name not in (MESSAGES, SYSTEM_PROMPT)}
    responses = [values.get(name) for name in PAIR]
    for name in ("instruction", MESSAGES):
        if name in reading.fields and name not in values and not reading.responses_hold_prompt:
            raise RecordError(f"no {name}: no value at {reading.columns_of(name)!r}", RowProblem.MISSING)
    prompt = values.get("instruction", values.get(MESSAGES))
    has_turns = any(as_turns(value) is not None for value in (prompt, *responses)) or values.get(SYSTEM_PROMPT)
    if None in responses or not has_turns:
        return fields
    talks = []
    for name, response in zip(PAIR, responses, strict=True):
        column = reading.columns_of(name)
        with error_context(f"{column!r}, the conversation:"):
            turns = _turns_of_side(prompt, response, column, reading)
            talks.append(read_messages(_with_system_prompt(turns, values.get(SYSTEM_PROMPT))))
        last = talks[-1][-1].role
        if last != "assistant":
            reason = f"{column!r}: the last turn is the {last}'s; it must be the assistant's"
            raise RecordError(reason, RowProblem.CONVERSATION)
    asked, other = [_asked(talk) for talk in talks]
    if asked != other:
        reason = "its two conversations have different turns of the user; they cannot be compared"
        raise RecordError(reason, RowProblem.CONVERSATION)
    if not asked and "instruction" in used:
        raise RecordError("no instruction: its conversations have no turn of the user", RowProblem.MISSING)
    fields["instruction"] = "\n\n".join(asked)
    shared = talks[0][:-1]
    last_turns = [talk[-1] for talk in talks]
    has_calls = any(block.call for turn in last_turns for block in turn.blocks)
    if shared != talks[1][:-1] or has_calls:
        texts = [written(talk, reasoning=False) for talk in talks]
        return fields | dict(zip(PAIR, texts, strict=True))
    if CONVERSATION in used and CONVERSATION not in values:
        fields[CONVERSATION] = written(shared, reasoning=False)
        fields["instruction"] = asked[-1] if asked else ""
    elif len(shared) > 1:
        fields["instruction"] = written(shared, reasoning=False)
    texts = ["\n".join(turn.texts()) for turn in last_turns]
    return fields | dict(zip(PAIR, texts, strict=True))


def _turns_of_side(prompt: Any, response: Any, column: str, reading: Reading) -> list[Any]:
    """Return the conversation that ends with one of two responses.

    Raises:
        RecordError: the response begins with the prompt, and those of the file do not, or the reverse.
    """
    turns = as_turns(response)
    if turns is None:
        turns = [{"role": "assistant", "content": response}]
    elif role_of(turns[0]) in ("user", "system", "developer"):
        if not reading.responses_hold_prompt:
            reason = (
                f"{column!r} begins with a turn of the user or the system, unlike in most records of this file"
            )
            raise RecordError(reason, RowProblem.CONVERSATION)
        return turns
    before = as_turns(prompt)
    if before is None:
        before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []
    _refuse_two_answers(before, turns, column)
    return before + turns


def _asked(turns: Iterable[Message]) -> list[str]:
    """Return what the user says, a text for each turn."""
    return [text for turn in turns if turn.role == "user" for text in turn.texts()]


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
