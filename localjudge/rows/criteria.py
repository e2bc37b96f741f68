"""Criteria of a row's own: a list in one of its columns.

A criterion is a text, worth one point, or an object with its text and its points. The names of the keys are
those of HealthBench (`criterion`, `points`, `tags`), ProfBench (`criterion_description`, `criterion_weight`,
`criterion_type`) and Rubrics as Rewards (`title`, `description`, `weight`). A tree of PaperBench
(`requirements`, `weight`, `sub_tasks`) stands for its leaves: the points of a leaf are the product, along its
path, of each weight divided by the sum of the weights beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from localjudge.records import Criterion
from localjudge.rows.columns import CRITERION
from localjudge.rows.record import LARGEST_NUMBER, RecordError, check_text, is_number

_TEXT = (CRITERION, "criterion_description", "requirements", "description", "text")
_POINTS, _TAGS, _NAME = ("points", "weight", "criterion_weight"), ("tags", "criterion_type"), ("name", "title")
_IMPORTANCE = {"critical": 4, "major": 3, "minor": 2, "additional": 1}
"""The points of ProfBench's words."""
_PARTS = "sub_tasks"
_FORM = 'give a list of texts or of {"criterion": text, "points": number}'


def read_criteria(given: Any) -> tuple[Criterion, ...]:
    """Return the criteria in a column of a row.

    Args:
        given: a list or a tree.

    Raises:
        RecordError: it is neither, or a criterion in it is wrong; the message names the first.
    """
    if isinstance(given, Mapping) and _PARTS in given:
        found = [_criterion(*leaf) for leaf in _leaves(given, 1.0, "its root")]
    elif isinstance(given, list):
        found = [_criterion(each, f"criterion {number}") for number, each in enumerate(given, 1)]
    else:
        raise RecordError(f"of type {type(given).__name__}; {_FORM}")
    if not found:
        raise RecordError(f"an empty list; {_FORM}")
    return tuple(
        each.model_copy(update={"part": part, "parts": len(found)}) for part, each in enumerate(found, 1)
    )


def _criterion(value: Any, where: str) -> Criterion:
    """Return a criterion: a text, worth one point, or an object."""
    if isinstance(value, str):
        value = {CRITERION: value, "points": 1}
    if not isinstance(value, Mapping):
        raise RecordError(f"{where} is of type {type(value).__name__}; {_FORM}")
    text = _value(value, _TEXT, where)
    points = _value(value, _POINTS, where)
    name = _value(value, _NAME, where)
    tags = _value(value, _TAGS, where)
    if tags is None:
        tags = []
    if isinstance(tags, str):
        tags = [tags]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise RecordError(f"{where}: its tags are not texts; give a list of texts")
    return Criterion(
        text=_text(text, where),
        points=_number(points, where),
        name=None if name is None else _text(name, f"the name of {where}"),
        tags=[_text(tag, f"a tag of {where}") for tag in dict.fromkeys(tags)],
    )


def _leaves(node: Any, points: float, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the leaves of a tree as criteria, each with its place; `points` are the node's."""
    if not isinstance(node, Mapping):
        raise RecordError(f"{where} is of type {type(node).__name__}; give an object with requirements")
    parts = node.get(_PARTS)
    if not parts:
        category = node.get("task_category")
        tags = [category] if isinstance(category, str) and category.strip() else []
        yield {CRITERION: node.get("requirements"), "points": points, "tags": tags}, where
        return
    if not isinstance(parts, list):
        raise RecordError(f"{where}: its {_PARTS} are of type {type(parts).__name__}; give a list")
    weights = []
    for number, part in enumerate(parts, 1):
        weight = part.get("weight") if isinstance(part, Mapping) else None
        weights.append(_number(weight, f"{where}, part {number}"))
    if min(weights) < 0 or not any(weights):
        raise RecordError(f"{where}: the weights of its {_PARTS} must not be below 0, nor all 0")
    for number, (part, weight) in enumerate(zip(parts, weights, strict=True), 1):
        yield from _leaves(part, points * weight / sum(weights), f"{where}, part {number}")


def _value(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> Any:
    """Return the value of the first of these keys; None without one."""
    found = [name for name in names if given.get(name) is not None]
    if len(found) > 1 and names is not _TEXT:
        raise RecordError(f"{where} has {found[0]} and {found[1]}; give one of the two")
    return given[found[0]] if found else None


def _text(given: Any, where: str) -> str:
    if given is None or given == "" or (isinstance(given, str) and given.isspace()):
        raise RecordError(f"{where} has no text; {_FORM}")
    check_text(given, where)
    return str(given)


def _number(given: Any, where: str) -> float:
    points = _IMPORTANCE.get(given.strip().casefold()) if isinstance(given, str) else given
    if not is_number(points):
        said = f" ({given[:40]!r})" if isinstance(given, str) else ""
        limits = f"from {-LARGEST_NUMBER:,.0f} to {LARGEST_NUMBER:,.0f}, below 0 if it must not be met"
        raise RecordError(f"{where} has no usable points{said}; give a number {limits}")
    return float(points)
