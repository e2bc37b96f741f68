"""Read the messages of a conversation, in the forms that programs write.

These are the forms of OpenAI (messages, and items of its Responses API), of Anthropic, of Hugging Face's chat
templates, of ShareGPT (`from` and `value`), of LangChain (`type` and `content`), and the events of OpenHands.

A message becomes blocks: texts, reasoning, calls of tools and their results. Calls are numbered from 1, and a
result has the number of its call. That is the first call without a result that matches: by the id if both have
one, otherwise by the tool's name if the result gives one, otherwise any call.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from localjudge.errors import RowProblem
from localjudge.rows.columns import ROLE_NAMES
from localjudge.rows.record import RecordError, error_context

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_ROLE_OF = {name: role for role, names in ROLE_NAMES.items() for name in names}
_THOUGHTS = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_CALL_IDS = ("tool_call_id", "tool_call_ids", "call_id", "id")
_TEXT_PARTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
# The name of a tool that is written as it stands; any other is written as JSON.
_PLAIN_NAME = re.compile(r"[\w.:/-]+", re.ASCII)
_PROBLEM = RowProblem.CONVERSATION


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a message.

    Attributes:
        kind: what it is; an error is the result of a call that failed.
        text: what was said. Of a call: the tool's name, and after a space the arguments, if there are any.
        call: the number of the call; 0 in a text or reasoning.
    """

    kind: Literal["text", "reasoning", "call", "result", "error"]
    text: str
    call: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation: the role of the speaker, and the blocks."""

    role: str
    blocks: list[Block]

    def texts(self) -> list[str]:
        """Return what was said, without reasoning, calls and results."""
        return [block.text for block in self.blocks if block.kind == "text"]

    def with_thoughts_apart(self) -> Message:
        """Return the message with `<think>…</think>` at the beginning of the assistant's text as reasoning."""
        blocks = list[Block]()
        for block in self.blocks:
            thoughts = (
                _THOUGHTS.match(block.text) if block.kind == "text" and self.role == "assistant" else None
            )
            if thoughts is None:
                blocks.append(block)
                continue
            thought = thoughts[1].strip()
            if thought:
                blocks.append(Block("reasoning", thought))
            blocks.append(Block("text", block.text[thoughts.end() :]))
        return Message(self.role, _joined(blocks))


def read_messages(messages: Any) -> list[Message]:
    """Return the turns in a list of messages.

    Raises:
        RecordError: they are not a conversation that can be judged; the message names the turn.
    """
    turns = list(messages) if isinstance(messages, list) else []
    if turns and _is_exit(turns[-1]):
        turns.pop()
    if not turns:
        reason = "no turns; give a list of turns, each with role and content"
        raise RecordError(reason, RowProblem.CONVERSATION)
    reader = _Reader()
    found = []
    for number, message in enumerate(turns, 1):
        with error_context(f"turn {number}"):
            found.append(reader.message(message))
    return found


def _is_exit(message: Any) -> bool:
    """Return whether a message only says that the agent has ended, as the last one of mini-SWE-agent."""
    return role_of(message) == "exit" and not message.get("content")


class _Reader:
    """A reader of one conversation, which knows the calls that have no result yet."""

    def __init__(self) -> None:
        self._calls = 0
        # The calls without a result; and the calls in their order, by their id, and by whether they have an id
        # and by their tool, or by None for any tool.
        self._waiting: set[int] = set()
        self._in_order: defaultdict[tuple[Any, ...], deque[int]] = defaultdict(deque)

    def message(self, message: Any) -> Message:
        """Return a message with its blocks.

        Raises:
            RecordError: it cannot be judged.
        """
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise RecordError(f"is of type {kind}; give an object with role and content", _PROBLEM)
        if message.get("type") == "reasoning" and "role" not in message:
            return _reasoning_item(message)
        role, message = role_of(message), _in_one_form(message)
        if message.get("audio"):
            raise RecordError("has audio, which is not supported; only text is judged", RowProblem.MEDIA)
        if role not in _ROLES:
            has = "no role" if role is None else f"the role {str(role)[:40]!r}"
            raise RecordError(f"has {has}, which is not supported; use {', '.join(_ROLES)}", _PROBLEM)
        if role in ("tool", "function"):
            return Message("tool", [self._result_of_message(message)])
        calls = _calls_of(message)
        if calls and role != "assistant":
            reason = f"is the {role}'s and has calls of tools; only the assistant's can have them"
            raise RecordError(reason, _PROBLEM)
        return Message(role, self._blocks(message, role, calls))

    def _blocks(self, message: Mapping[str, Any], role: str, calls: Sequence[Any]) -> list[Block]:
        """Return the blocks of a message that is not a result: its reasoning, its parts and its calls."""
        blocks = []
        thoughts = message.get("reasoning_content") or message.get("reasoning")
        if thoughts and isinstance(thoughts, str):
            blocks.append(Block("reasoning", thoughts))
        content = message.get("content")
        if content is None and (calls or blocks):
            content = ""
        for part in _parts(content):
            blocks += self._part(part, role)
        if not blocks and not calls:
            blocks.append(Block("text", ""))
        blocks += [self._call(call) for call in calls]
        return _joined(blocks)

    def _part(self, part: Any, role: str) -> list[Block]:
        """Return the blocks of a part of a message's content."""
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "tool_use" and role == "assistant":
            blocks = [self._call(part)]
            if "result" in part:  # of a call that a provider's server made
                done = {"content": part.get("result"), "error": part.get("error")}
                blocks.append(self._result(done, part.get("id")))
            return blocks
        if kind == "tool_result" and role == "user":
            return [self._result(part, part.get("tool_use_id"))]
        if kind in ("thinking", "reasoning", "redacted_thinking") and role == "assistant":
            text = "" if part.get("redacted") else part.get(kind)
            return [Block("reasoning", text)] if isinstance(text, str) and text else []
        return [Block("text", _text(part))]

    def _call(self, call: Any) -> Block:
        """Return a call of a tool, with the next number."""
        call = call if isinstance(call, Mapping) else {}
        inner = call.get("function") or call.get("custom")
        function = inner if isinstance(inner, Mapping) else call
        name = function.get("name") or inner
        if not isinstance(name, str):
            reason = "has a call without the name of its tool; give a function with a name"
            raise RecordError(reason, _PROBLEM)
        arguments = _arguments_of(function)
        own = _identity(call.get("call_id") or call.get("id"))
        if own is not None and self._first_waiting((own,)):
            reason = f"has a call with the id {own[:40]!r}, which a call without a result has"
            raise RecordError(reason, _PROBLEM)
        self._calls += 1
        self._waiting.add(self._calls)
        for key in ((own,), (own is not None, name), (own is not None, None)):
            self._in_order[key].append(self._calls)
        shown = name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        return Block("call", f"{shown} {arguments}" if arguments else shown, self._calls)

    def _result_of_message(self, message: Mapping[str, Any]) -> Block:
        """Return the result that a message of a tool has."""
        call = None
        for key in _CALL_IDS:
            if message.get(key):
                call = message[key]
                break
        if isinstance(call, list):
            call = call[0]
        return self._result(message, call, message.get("name") or message.get("function"))

    def _result(self, result: Mapping[str, Any], call: Any, name: Any = None) -> Block:
        """Return the result of a call.

        Args:
            result: the content, and whether it is an error.
            call: the id of the call, as far as it is known.
            name: the name of the tool, as far as it is known.

        Raises:
            RecordError: no earlier call without a result matches.
        """
        own = _identity(call)
        error = result.get("error") or result.get("is_error")
        content = "" if result.get("content") is None else result["content"]
        text = "\n".join(_text(part) for part in _parts(content))
        if isinstance(error, Mapping) and not text:  # as Inspect writes the failure of a tool
            text = str(error.get("message") or "")
        tool = name if isinstance(name, str) else None
        keys: list[tuple[Any, ...]] = [(False, tool), (True, tool) if own is None else (own,)]
        waiting = [number for number in map(self._first_waiting, keys) if number]
        if not waiting:
            of = f" of {str(name)[:40]!r}" if name else ""
            if own is not None:
                of = f" with the id {own[:40]!r}"
            reason = f"is the result of a call{of}, and has no matching earlier call without a result"
            raise RecordError(reason, _PROBLEM)
        number = min(waiting)
        self._waiting.remove(number)
        return Block("error" if error else "result", text, number)

    def _first_waiting(self, key: tuple[Any, ...]) -> int:
        """Return the number of the first call of a kind that has no result; 0 if there is none."""
        calls = self._in_order[key]
        while calls and calls[0] not in self._waiting:
            calls.popleft()
        return calls[0] if calls else 0


def _reasoning_item(item: Mapping[str, Any]) -> Message:
    """Return an item of reasoning of OpenAI's Responses API as a message."""
    parts = [*(item.get("summary") or []), *(item.get("content") or [])]
    thought = "\n".join(_text(part) for part in parts)
    return Message("assistant", [Block("reasoning", thought)] if thought else [])


def _calls_of(message: Mapping[str, Any]) -> list[Any]:
    """Return the calls of tools in a message."""
    calls = message.get("tool_calls") or []
    found = list(calls) if isinstance(calls, list) else [calls]
    if message.get("function_call"):
        found.append(message["function_call"])
    return found


def _arguments_of(function: Mapping[str, Any]) -> str:
    """Return the arguments of a call, as JSON unless they are a text.

    Raises:
        RecordError: they cannot be written as JSON.
    """
    arguments = function.get("arguments")
    if arguments is None:
        arguments = function.get("input")
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"has arguments that cannot be written as JSON: {error}", _PROBLEM) from None


def _joined(blocks: list[Block]) -> list[Block]:
    """Return the blocks with texts in a row as one, and without empty texts beside calls and results."""
    joined = list[Block]()
    for block in blocks:
        if joined and joined[-1].kind == block.kind == "text":
            block = Block("text", f"{joined.pop().text}\n{block.text}")
        joined.append(block)
    if any(block.call for block in joined):
        return [block for block in joined if block.call or block.text]
    return joined


def role_of(message: Any) -> Any:
    """Return the role of a message, by the name that a judge reads; None if it has none."""
    if not isinstance(message, Mapping):
        return None
    role = message.get("role") or message.get("from")
    name = message.get("type") if role is None else role
    return _ROLE_OF.get(name, role) if isinstance(name, str) else role


def as_turns(value: Any) -> list[Any] | None:
    """Return the messages in a list, or a message alone as a list; None if the value is something else."""
    turns = [value] if isinstance(value, Mapping) else value
    if not isinstance(turns, list) or not turns or role_of(turns[0]) is None:
        return None
    return list(turns)


def roles_of(turns: Any) -> list[Any]:
    """Return the roles of the turns of a conversation; none of a value that is not one."""
    return [role_of(turn) for turn in as_turns(turns) or ()]


def _in_one_form(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with the keys of OpenAI's messages."""
    kind = message.get("type")
    if "role" not in message and kind in ("function_call", "custom_tool_call"):
        return {"content": None, "tool_calls": [message]}
    if "role" not in message and kind in ("function_call_output", "custom_tool_call_output"):
        return {**message, "content": message.get("output")}
    if "value" in message and "content" not in message:
        text = message["value"]
        if message.get("from") == "function_call" and isinstance(text, str):
            try:
                calls = json.loads(text)
            except (ValueError, RecursionError):
                raise RecordError("has a function_call that is not JSON") from None
            return {"content": None, "tool_calls": calls if isinstance(calls, list) else [calls]}
        return {**message, "content": text}
    content = message.get("content")
    if isinstance(content, Mapping) and isinstance(content.get("answer"), str):
        return {**message, "content": content["answer"]}  # as Arena-Hard writes the answer of a model
    return message


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise RecordError(f"has content of type {type(content).__name__}; it must be text or a list of parts")
    return content


def _text(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind not in _TEXT_PARTS or not isinstance(part.get("text"), str):
        raise RecordError(f"has a part of type {str(kind)[:40]}, which is not supported; only text is judged")
    return str(part["text"])


def _identity(value: Any) -> str | None:
    """Return an id as text; None if it is missing, empty or the NaN of a table."""
    return str(value) if isinstance(value, str | int) and value != "" else None


_SPEECH = ("message", "finish", "system")
"""Actions of OpenHands that say something, and call no tool."""


def event_messages(events: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in a list of events of OpenHands; events that say nothing are left out.

    Raises:
        RecordError: an event is not an object.
    """
    calls = set[str]()
    for event in _flat(events):
        if not isinstance(event, Mapping):
            raise RecordError("its history has an event that is not an object", _PROBLEM)
        message = _message_of_event(event, calls)
        if message is not None:
            yield message


def _flat(events: Any) -> Iterator[Any]:
    """Yield events; in older logs, an action and its observation are a list."""
    for event in events if isinstance(events, list) else [events]:
        if isinstance(event, list):
            yield from event
        else:
            yield event


def _message_of_event(event: Mapping[str, Any], calls: set[str]) -> Mapping[str, Any] | None:
    """Return the message of an event; None if it says nothing.

    Args:
        event: the event.
        calls: the ids of earlier calls, to which the event may add one.
    """
    action, seen = event.get("action"), event.get("observation")
    arguments = event.get("args") or {}
    role = "assistant" if event.get("source") == "agent" else "user"
    answered = str(event.get("tool_call_id") or event.get("cause"))
    if isinstance(event.get("llm_message"), Mapping):
        return cast(Mapping[str, Any], event["llm_message"])
    if isinstance(event.get("system_prompt"), Mapping):
        return {"role": "system", "content": event["system_prompt"].get("text")}
    if action in _SPEECH:
        return {"role": "system" if action == "system" else role, "content": _speech(arguments)}
    call = event.get("tool_call")
    if call is None and isinstance(action, str) and role == "assistant" and arguments:
        own = {key: value for key, value in arguments.items() if key != "thought"}
        call = {"id": str(event.get("id")), "name": action, "arguments": own}
    if call:
        calls.add(str(call["id"]))
        thought = event.get("thought") or arguments.get("thought") or ""
        return {"role": "assistant", "content": thought, "tool_calls": [call]}
    if seen is not None and answered in calls:
        content = seen.get("content") if isinstance(seen, Mapping) else event.get("content")
        return {"role": "tool", "tool_call_id": answered, "content": content or ""}
    return None


def _speech(arguments: Mapping[str, Any]) -> Any:
    """Return what the arguments of an action say."""
    for key in ("content", "final_thought", "thought"):
        if arguments.get(key):
            return arguments[key]
    return ""
