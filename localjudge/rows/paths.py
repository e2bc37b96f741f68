"""The path of a value in a record.

    doc.question                    the value of a key inside an object
    choices[0].message.content      an element of a list, from 0; `choices.0` is the same
    messages[-1].content            the last element
    responses[*].text               each element of a list, or each value of an object: a row for each
    outputs[*].@key                 the key of that value
    turns.@count                    the number of elements of a list
    request.@text                   the text in a JSON string

A column that has the whole path as its name is that column. A text that holds JSON is read where a path goes
into it; if a shape names the text itself as another place of the field, this holds for `Cells` alone.
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
_KEY, _COUNT, _TEXT = "@key", "@count", "@text"
_STEP = re.compile(r"\[(-?\d+|\*)\]|([^.\[]+|\[)")

Element = Mapping[str, int | str]
"""The place or the key of the element that `[*]` stands for, by what is before it in a path."""
FIRST: Element = {}


@lru_cache(maxsize=4096)
def steps(path: str) -> tuple[str, ...]:
    """Return the keys and the places that a path goes through."""
    return tuple(EACH if place == "*" else place or key for place, key in _STEP.findall(path))


def value_at(record: Mapping[str, Any], path: str, element: Element = FIRST) -> Any:
    """Return the value of a column or of a nested value; `ABSENT` if the record has none.

    Args:
        record: columns by name.
        path: the path.
        element: the element that `[*]` stands for; the first one of other lists.
    """
    if path in record:
        return record[path]
    found: Any = record
    own: int | str = 0
    for step in steps(path):
        if step == _TEXT:
            return _string(found)
        found = unpacked(found)
        if step == EACH:
            own = element.get(path.partition(EACH)[0], 0)
            step = str(own)
        if step == _KEY:
            found = own
        elif isinstance(found, Mapping):
            found = found.get(step, ABSENT)
        elif isinstance(found, list) and step.removeprefix("-").isdecimal():
            found = found[int(step)] if -len(found) <= int(step) < len(found) else ABSENT
        elif isinstance(found, list) and step == _COUNT:
            found = len(found)
        else:
            return ABSENT
    return found


def column(path: str) -> str:
    """Return the column of a record that a path begins with."""
    return next(iter(steps(path)), path)


def elements(record: Mapping[str, Any], paths: Iterable[str], *, product: bool = False) -> list[Element] | None:
    """Return each element that `[*]` of these paths stands for; None without such a list.

    Lists that are named together have equal numbers of elements, which are read side by side.

    Args:
        record: columns by name.
        paths: the paths.
        product: whether each element of a list is read with each one of the others.

    Raises:
        RecordError: a list is empty, its value is not a list, or the lengths differ.
    """
    keys: dict[str, list[Any]] = {}
    for name in (path.partition(EACH)[0] for path in paths if EACH in path):
        found = unpacked(value_at(record, name))
        if found is ABSENT or found is None:
            continue
        if not isinstance(found, Mapping | list) or not found:
            raise RecordError(f"{name!r} is not a list of at least one element, as {name}{EACH} needs")
        keys[name] = list(found) if isinstance(found, Mapping) else list(range(len(found)))
    if not keys:
        return None
    if not product and len({*map(len, keys.values())}) > 1:
        said = " and ".join(f"{len(each)} in {name!r}" for name, each in keys.items())
        raise RecordError(f"lists that are read side by side have different lengths: {said}")
    together = itertools.product(*keys.values()) if product else zip(*keys.values(), strict=True)
    return [dict(zip(keys, each, strict=True)) for each in together]


def unpacked(value: Any) -> Any:
    """Return the object or the list in a JSON text, a tuple or an array of numpy; any other value as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def is_missing(value: Any) -> bool:
    """Return whether a value is absent, null or an empty text."""
    return value is ABSENT or value is None or (isinstance(value, str) and not value)


def _string(value: Any) -> Any:
    """Return the text in a JSON string; any other value as it is."""
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] == '"' else value
    except ValueError:
        return value
