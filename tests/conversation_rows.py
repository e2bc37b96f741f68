"""Rows of conversations, as the tests of trajectories read them."""

from __future__ import annotations

from typing import Any

from one_row import as_row

from localjudge import Row

WHOLE, REASONED, ANSWER = ("conversation",), ("conversation_with_reasoning",), ("conversation", "candidate")
"""Fields of templates that judge a conversation, one with its reasoning, and the answer at its end."""


def row_of(messages: Any, *used: str) -> Row:
    row = as_row({"messages": messages}, "a:1", {}, used)
    assert isinstance(row, Row), row
    return row


def trajectory(*results: str, last: str = "Done.") -> list[dict[str, Any]]:
    """Return messages of an assistant that calls a tool for each of these results."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at all."}]
    for result in results:
        call = {"function": {"name": "look", "arguments": {}}}
        messages += [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": result}]
    return [*messages, {"role": "assistant", "content": last}]


def long_trajectories(size: int = 1) -> list[dict[str, Any]]:
    """Return 12 rows for a context of 1500 tokens times `size`: many lose tool results, and one never fits."""
    rows = [
        {"id": f"r{n}", "messages": trajectory(*["word " * (9 + 37 * n % 101)] * (1 + 5 * n % 13) * size)}
        for n in range(12)
    ]
    rows[7]["messages"] = trajectory(last="word " * 999 * size)
    return rows
