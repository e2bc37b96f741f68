"""The path of a value in a record.

    doc.question                    the value of a key inside an object
    attributes."gen_ai.input"       a key with dots, in double quotes
    choices[0].message.content      an element of a list, from 0; `choices.0` is the same
    messages[-1].content            the last element
    responses[*].text               each element of a list, or each value of an object
    outputs[*].@key                 the key of that value
    turns.@count                    the number of elements of a list

No text is decoded on the way: a path leads into objects and lists alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from localjudge.rows.record import RecordError, is_nan

ABSENT: Any = object()
"""The value of a path that a record does not have."""
EACH = "[*]"
_KEY, _COUNT = "@key", "@count"
_STEP = re.compile(r'\[(-?\d+|\*)\]|"([^"]*)"|([^.\["]+|[\["])')
_PLAIN_KEY = re.compile(r'[^.\["]+')

Element = Mapping[str, int | str]
"""The place or the key of the element that `[*]` stands for, by the path of its list."""
FIRST: Element = {}


@lru_cache(maxsize=4096)
def steps(path: str) -> tuple[str, ...]:
    """Return the keys and the places that a path goes through."""
    found = []
    for place, quoted, key in _STEP.findall(path):
        if place == "*":
            found.append(EACH)
        else:
            found.append(place or quoted or key)
    return tuple(found)


def column(path: str) -> str:
    """Return the column of a record that a path begins with."""
    return next(iter(steps(path)), path)


def path_of_column(name: str) -> str:
    """Return the path of a whole column; a name with dots or brackets is quoted."""
    return name if _PLAIN_KEY.fullmatch(name) or '"' in name else f'"{name}"'


def is_column(path: str) -> bool:
    """Return whether a path is a whole column."""
    return len(steps(path)) == 1


@lru_cache(maxsize=4096)
def list_of(path: str) -> str:
    """Return the path of the list that the first `[*]` of a path goes through; empty without one."""
    before, each, _ = path.partition(EACH)
    return before if each else ""


def value_at(record: Mapping[str, Any], path: str, element: Element = FIRST) -> Any:
    """Return the value of a path; `ABSENT` if the record has none.

    Args:
        record: columns by name.
        path: the path.
        element: the element that `[*]` stands for; the first one of other lists.
    """
    value: Any = record
    place: int | str = 0
    for step in steps(path):
        if step == EACH:
            place = element.get(list_of(path), 0)
            step = str(place)
        if step == _KEY:
            value = place
        elif isinstance(value, Mapping):
            value = value.get(step, ABSENT)
        elif not isinstance(value, list):
            return ABSENT
        elif step.removeprefix("-").isdecimal():
            index = int(step)
            value = value[index] if -len(value) <= index < len(value) else ABSENT
        elif step == _COUNT:
            value = len(value)
        else:
            return ABSENT
    return value


def look_up(record: Mapping[str, Any], path: str) -> Any:
    """Return the value of the column with a path as its name, or else of the path; `ABSENT` without both."""
    return record[path] if path in record else value_at(record, path)


def values_of_each(record: Mapping[str, Any], path: str, element: Element = FIRST) -> Any:
    """Return the values of a path for all elements of its list; `ABSENT` if the record has no such list.

    Raises:
        RecordError: the value before `[*]` is not a list or an object.
    """
    keys = _keys(record, list_of(path), element)
    if keys is None:
        return ABSENT
    return [value_at(record, path, {list_of(path): key}) for key in keys]


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
    for path in paths:
        name = list_of(path)
        if not name:
            continue
        of_list = _keys(record, name)
        if of_list is None:
            continue
        if not of_list:
            raise RecordError(f"{name!r} is an empty list; {name}{EACH} needs at least one element")
        keys[name] = of_list
    if not keys:
        return None
    if not product and len({*map(len, keys.values())}) > 1:
        lengths = " and ".join(f"{len(each)} in {name!r}" for name, each in keys.items())
        raise RecordError(f"lists that are read side by side have different lengths: {lengths}")
    together = itertools.product(*keys.values()) if product else zip(*keys.values(), strict=True)
    return [dict(zip(keys, each, strict=True)) for each in together]


def _keys(record: Mapping[str, Any], name: str, element: Element = FIRST) -> list[Any] | None:
    """Return the places in a list or the keys of an object; None if the record has no value there."""
    value = value_at(record, name, element)
    if value is ABSENT or value is None:
        return None
    if isinstance(value, Mapping):
        return list(value)
    if isinstance(value, list):
        return list(range(len(value)))
    raise RecordError(f"{name!r} is not a list, as {name}{EACH} needs")


def is_missing(value: Any) -> bool:
    """Return whether a value is absent, null or the NaN of a table."""
    return value is ABSENT or value is None or is_nan(value)


def is_empty(value: Any) -> bool:
    """Return whether a value is missing or an empty text."""
    return is_missing(value) or (isinstance(value, str) and not value)
