"""The events of OpenHands as messages: the log of an agent, in the form of its program or of its kit (SDK)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SAID = ("message", "finish", "system")
"""Actions that say something, and call no tool."""


def event_messages(events: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in a list of events; events that say nothing are left out."""
    calls = set[str]()
    # In older logs, an action and its observation are a list.
    for event in (part for each in events for part in (each if isinstance(each, list) else [each])):
        given, call, seen = event.get("args") or {}, event.get("tool_call"), event.get("observation")
        action, role = event.get("action"), "assistant" if event.get("source") == "agent" else "user"
        answered = str(event.get("tool_call_id") or event.get("cause"))
        if isinstance(event.get("llm_message"), Mapping):
            yield event["llm_message"]
        elif isinstance(event.get("system_prompt"), Mapping):
            yield {"role": "system", "content": event["system_prompt"].get("text")}
        elif action in _SAID:
            said = (given.get(key) for key in ("content", "final_thought", "thought"))
            yield {"role": "system" if action == "system" else role, "content": next(filter(None, said), "")}
        elif call or (isinstance(action, str) and role == "assistant" and given):
            arguments = {key: value for key, value in given.items() if key != "thought"}
            call = call or {"id": str(event.get("id")), "name": action, "arguments": arguments}
            calls.add(str(call["id"]))
            thought = event.get("thought") or given.get("thought") or ""
            yield {"role": "assistant", "content": thought, "tool_calls": [call]}
        elif seen is not None and answered in calls:
            content = seen.get("content") if isinstance(seen, Mapping) else event.get("content")
            yield {"role": "tool", "tool_call_id": answered, "content": content or ""}
