"""The problems of a rubric in words: where each is, and what to write."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

_MOST_PROBLEMS = 5
"""Largest number of problems of a rubric that a message names."""


def problems_of(error: ValidationError) -> str:
    """Return the first problems of a rubric in words, each with its place."""
    problems = list(dict.fromkeys(map(_problem, error.errors())))
    more = f"; and {len(problems) - _MOST_PROBLEMS} more" * (len(problems) > _MOST_PROBLEMS)
    return "; ".join(problems[:_MOST_PROBLEMS]) + more


def _problem(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    known = {"extra_forbidden": "unknown key; remove it or correct its name", "missing": "is missing; add it"}
    message = known.get(error["type"], error["msg"].removeprefix("Value error, "))
    return f"{place + ': ' if place else ''}{message}{_advice(place.rpartition('.')[2], error['input'])}"


def _advice(key: str, given: Any) -> str:
    """Return what to write instead of a value that people often write for this key; empty for other values."""
    if key == "scale" and isinstance(given, list) and len(given) == 2:
        return f"; write scale = {{ lowest = {given[0]}, highest = {given[1]} }}"
    if key == "rationale" and isinstance(given, bool):
        place = "before" if given else "none"
        return f'; it is the key of a text: write rationale_place = "{place}" in [answer]'
    return ""
