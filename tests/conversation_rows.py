"""Rows of conversations, as the tests of trajectories read them."""

from __future__ import annotations

from typing import Any

from localjudge import Row
from localjudge.rows.columns import as_row

WHOLE, REASONED, ANSWER = ("conversation",), ("conversation_with_reasoning",), ("conversation", "candidate")
"""Fields of templates that judge a conversation, one with its reasoning, and the answer at its end."""


def row_of(messages: Any, *used: str) -> Row:
    row = as_row({"messages": messages}, "a:1", {}, used)
    assert isinstance(row, Row), row
    return row
