"""The aspects in the document of a rubric: short forms completed to one table for each aspect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localjudge.rubrics.answer_keys import refuse_duplicates

_KINDS = {"scale", "choices", "preference", "each", "boolean"}


def with_aspects(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a table for each aspect.

    Names of aspects are short for tables, and `scale` is for the aspects without values of their own.

    Raises:
        ValueError: an aspect has no name, no values, or the name of another.
    """
    document, aspects = dict(document), document.get("aspects")
    scale = document.pop("scale", None)
    if isinstance(aspects, list | tuple):
        pairs = [
            (each, {}) if isinstance(each, str) else (each["name"], each)
            for each in aspects
            if isinstance(each, str) or (isinstance(each, dict) and isinstance(each.get("name"), str))
        ]
        if len(pairs) < len(aspects):
            raise ValueError("aspects: give names, or a table with a name for each")
        refuse_duplicates("aspects", (name for name, _ in pairs))
        aspects = {name: {key: value for key, value in each.items() if key != "name"} for name, each in pairs}
    if isinstance(aspects, dict):
        without = [
            name for name, each in aspects.items() if isinstance(each, dict) and not each.keys() & _KINDS
        ]
        if without and scale is None:
            raise ValueError(
                f"aspects.{without[0]}: has no values; give it a scale, choices, a preference or "
                "boolean = true, or give a scale for all aspects"
            )
        own = {name: each | {"scale": scale} for name, each in aspects.items() if name in without}
        document["aspects"] = aspects | own
    return document
