"""The path of a value in a record: the one syntax of everything that names a column.

    doc.question                    the value of a key inside an object
    choices[0].message.content      an element of a list, from 0; `choices.0` is the same
    messages[-1].content            the last element
    responses[*].text               each element of a list, or each value of an object: a row for each
    outputs[*].@key                 the key of that value

A column that has the whole path as its name is that column. A text that holds JSON is read where a path goes
into it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from localjudge.rows.record import RecordError

ABSENT: Any = object()
"""The value of a path that a record does not have."""
EACH = "[*]"
_KEY = "@key"
_STEP = re.compile(r"\[(-?\d+|\*)\]|([^.\[]+|\[)")


@lru_cache(maxsize=4096)
def steps(path: str) -> tuple[str, ...]:
    """Return the keys and the places that a path goes through."""
    return tuple(EACH if place == "*" else place or key for place, key in _STEP.findall(path))


Places = Mapping[str, int]
"""The place of the element that `[*]` stands for, by what is before it in a path."""
FIRST: Places = {}


def value_at(record: Mapping[str, Any], path: str, element: Places = FIRST) -> Any:
    """Return the value of a column or of a nested value; `ABSENT` if the record has none.

    Args:
        record: columns by name.
        path: the path.
        element: the place of the element that `[*]` stands for; 0 in other lists.
    """
    if path in record:
        return record[path]
    found: Any = record
    key: Any = ABSENT
    for step in steps(path):
        found = unpacked(found)
        if step == _KEY:
            found = key
        elif step == EACH:
            place = element.get(path.partition(EACH)[0], 0)
            given = (
                [*found.items()]
                if isinstance(found, Mapping)
                else [*enumerate(found)]
                if isinstance(found, list)
                else []
            )
            key, found = given[place] if place < len(given) else (ABSENT, ABSENT)
        elif isinstance(found, Mapping):
            found = found.get(step, ABSENT)
        elif isinstance(found, list) and step.removeprefix("-").isdecimal():
            found = found[int(step)] if -len(found) <= int(step) < len(found) else ABSENT
        else:
            return ABSENT
    return found


def column(path: str) -> str:
    """Return the column of a record that a path begins with."""
    return next(iter(steps(path)), path)


def elements(record: Mapping[str, Any], paths: Iterable[str], *, product: bool = False) -> list[Places] | None:
    """Return the places of each element that `[*]` of these paths stands for; None without such a list.

    Lists that are named together have equal numbers of elements, which are read side by side.

    Args:
        record: columns by name.
        paths: the paths.
        product: whether each element of a list is read with each one of the others.

    Raises:
        RecordError: a list is empty, its value is not a list, or the lengths differ.
    """
    counts: dict[str, int] = {}
    for name in (path.partition(EACH)[0] for path in paths if EACH in path):
        found = unpacked(value_at(record, name))
        if found is ABSENT or found is None:
            continue
        if not isinstance(found, Mapping | list) or not found:
            raise RecordError(f"{name!r} is not a list of at least one element, as {name}{EACH} needs")
        counts[name] = len(found)
    if not counts:
        return None
    if not product and len({*counts.values()}) > 1:
        said = " and ".join(f"{count} in {name!r}" for name, count in counts.items())
        raise RecordError(f"lists that are read side by side have different lengths: {said}")
    ranges = map(range, counts.values())
    places = itertools.product(*ranges) if product else zip(*ranges, strict=True)
    return [dict(zip(counts, each, strict=True)) for each in places]


def unpacked(value: Any) -> Any:
    """Return the object or the list in a JSON text, a tuple or an array of numpy; any other value as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value
