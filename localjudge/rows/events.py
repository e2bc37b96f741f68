"""The events of OpenHands as messages: the log of an agent, in the form of its program or of its kit (SDK)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SAID = ("message", "finish", "system")
"""Actions that say something, and call no tool."""


def event_messages(events: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in a list of events; events that say nothing are left out."""
    calls = set[Any]()
    for event in events:
        for part in event if isinstance(event, list) else [event]:  # an action with its observation
            if isinstance(part, Mapping) and (message := _message(part, calls)) is not None:
                yield message


def _message(event: Mapping[str, Any], calls: set[Any]) -> Mapping[str, Any] | None:
    arguments, call = event.get("args") or {}, event.get("tool_call")
    if isinstance(message := event.get("llm_message"), Mapping):
        return message
    if "system_prompt" in event and isinstance(prompt := event["system_prompt"], Mapping):
        return {"role": "system", "content": prompt.get("text")}
    if isinstance(call, Mapping):
        calls.add(call.get("id"))
        return {"role": "assistant", "content": event.get("thought") or "", "tool_calls": [call]}
    if isinstance(seen := event.get("observation"), Mapping) and event.get("tool_call_id") in calls:
        return {"role": "tool", "tool_call_id": event["tool_call_id"], "content": seen.get("content") or ""}
    if event.get("action") in _SAID:
        said = [arguments.get(key) for key in ("content", "final_thought", "thought")]
        role = (
            "system"
            if event["action"] == "system"
            else "assistant"
            if event.get("source") == "agent"
            else "user"
        )
        return {"role": role, "content": next(filter(None, said), "")}
    if isinstance(action := event.get("action"), str) and event.get("source") == "agent" and arguments:
        calls.add(event.get("id"))
        given = {key: value for key, value in arguments.items() if key != "thought"}
        made = {"id": str(event.get("id")), "name": action, "arguments": given}
        return {"role": "assistant", "content": arguments.get("thought") or "", "tool_calls": [made]}
    if "observation" in event and event.get("cause") in calls:
        return {"role": "tool", "tool_call_id": str(event["cause"]), "content": event.get("content") or ""}
    return None
