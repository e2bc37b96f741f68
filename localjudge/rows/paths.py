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
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from localjudge.errors import RowProblem
from localjudge.rows.record import RecordError, is_nan

ABSENT: Any = object()
"""The value of a path that a record does not have."""
EACH = "[*]"
_KEY, _COUNT = "@key", "@count"
_STEP = re.compile(r'\[(-?\d+|\*)\]|"((?:[^"\\]|\\.)*)"|([^.\["]+|[\["])')
_ESCAPED = re.compile(r"\\(.)")
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
            found.append(place or _ESCAPED.sub(r"\1", quoted) or key)
    return tuple(found)


def column(path: str) -> str:
    """Return the column of a record that a path begins with."""
    return next(iter(steps(path)), path)


def path_of_column(name: str) -> str:
    """Return the path of a whole column; a name with dots or brackets is quoted."""
    if _PLAIN_KEY.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


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


@dataclass(frozen=True, slots=True)
class ElementList:
    """A list whose elements are rows.

    Attributes:
        columns: the columns of the record that has it.
        path: its path.
        is_object: whether it is an object, whose values are the elements.
    """

    columns: Mapping[str, Any]
    path: str
    is_object: bool = False

    def keys(self) -> list[Any] | None:
        """Return the places of its elements, or their keys; None if the record has no value there.

        Raises:
            RecordError: the value is of another kind, or has no element.
        """
        value = value_at(self.columns, self.path)
        if is_missing(value):
            return None
        if not isinstance(value, Mapping if self.is_object else list):
            expected = "an object" if self.is_object else "a list"
            raise RecordError(f"{self.path!r} is not {expected}, as in most records", RowProblem.KIND)
        if not value:
            raise RecordError(f"{self.path!r} is empty; {self.path}{EACH} needs at least one element")
        return list(value) if self.is_object else list(range(len(value)))


def elements(lists: Iterable[ElementList], *, product: bool = False) -> list[Element] | None:
    """Return each element that `[*]` stands for in these lists; None without such a list.

    Lists have equal numbers of elements and are read side by side; objects have the same keys.

    Args:
        lists: the lists.
        product: whether each element of a list is read with each one of the others.

    Raises:
        RecordError: a list is empty, its value is not a list, or the elements do not correspond.
    """
    keys: dict[str, list[Any]] = {}
    for each in lists:
        of_list = each.keys()
        if of_list is not None:
            keys[each.path] = of_list
    if not keys:
        return None
    if product:
        return [dict(zip(keys, each, strict=True)) for each in itertools.product(*keys.values())]
    first = next(iter(keys.values()))
    for name, of_list in keys.items():
        if len(of_list) != len(first):
            lengths = " and ".join(f"{len(each)} in {path!r}" for path, each in keys.items())
            raise RecordError(f"lists that are read side by side have different lengths: {lengths}")
        if set(of_list) != set(first):
            raise RecordError(f"{name!r} has other keys than the object that is read beside it")
    return [dict.fromkeys(keys, key) for key in first]


def _keys(record: Mapping[str, Any], name: str, element: Element = FIRST) -> list[Any] | None:
    """Return the places in a list or the keys of an object; None if the record has no value there."""
    value = value_at(record, name, element)
    if is_missing(value):
        return None
    if isinstance(value, Mapping):
        return list(value)
    if isinstance(value, list):
        return list(range(len(value)))
    raise RecordError(f"{name!r} is not a list, as {name}{EACH} needs", RowProblem.KIND)


def is_missing(value: Any) -> bool:
    """Return whether a value is absent, null or the NaN of a table."""
    return value is ABSENT or value is None or is_nan(value)


def is_empty(value: Any) -> bool:
    """Return whether a value is missing or an empty text."""
    return is_missing(value) or (isinstance(value, str) and not value)
