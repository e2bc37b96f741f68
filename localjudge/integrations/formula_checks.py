"""The checks of a formula before the judge starts: its parts, its constants, and its values over all rows."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from localjudge.integrations.formula_value import FUNCTIONS, OPERATORS, UNDEFINED, value_of
from localjudge.records.outcome_columns import OVERALL

_EQUALITY = (ast.Eq, ast.NotEq)
_PARTS = (
    ast.Name, ast.Load, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp,
)  # fmt: skip
"""The nodes of a formula beside operators, constants and calls."""
_MOST_ROWS = 5000
"""The most combinations of values for which a formula is tried."""
_MOST_VALUES_LISTED = 10
_SHOWN_CHARACTERS = 40
"""How much of a part of a formula a message shows."""


def check_parts(tree: ast.expr, names: Collection[str]) -> None:
    """Check that a formula consists of what it may have, and of names that a row has.

    Raises:
        ValueError: a part of the formula is not allowed, or a name is unknown.
    """
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and not node.keywords]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node not in functions:
            _check_name(node.id, names)
        elif not _is_allowed(node):
            shown = _shown(node) or type(node).__name__
            raise ValueError(f"{shown!r} is not allowed; use numbers, aspects, + - * / and comparisons")


def _check_name(name: str, names: Collection[str]) -> None:
    if name in names:
        return
    reason = "is not an aspect"
    if name == OVERALL:
        reason = "needs ordered aspects that all have the same values"
    raise ValueError(f"{name} {reason}; give {', '.join(sorted(names))}")


def _is_allowed(node: ast.AST) -> bool:
    """Return whether a formula may have this node."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (bool, int, float, str)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords
    return isinstance(node, _PARTS) or type(node) in OPERATORS


def check_constants(tree: ast.expr) -> None:
    """Check that no part is undefined that is computed for every row and depends on none.

    Raises:
        ValueError: there is such a part.
    """
    for node in _computed_for_every_row(tree):
        if _names_in(node):
            continue
        try:
            value_of(node, {})
        except UNDEFINED as error:
            raise ValueError(f"{_shown(node)} is not defined: {error}") from None
    for node in _computed_for_every_row(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or _names_in(node.right):
            continue
        if value_of(node.right, {}) == 0:
            raise ValueError(f"{_shown(node)} is not defined: division by zero")


def _computed_for_every_row(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a formula that no condition leaves out, and the formula itself."""
    yield node
    parts: list[ast.expr] = []
    match node:
        case ast.UnaryOp(operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.BoolOp(values=operands):
            parts = operands[:1]
        case ast.Compare(left=left, comparators=comparators):
            parts = [left, comparators[0]]
        case ast.IfExp(test=test):
            parts = [test]
        case ast.Call(args=arguments):
            parts = arguments
    for part in parts:
        yield from _computed_for_every_row(part)


def check_rows(tree: ast.expr, values: Mapping[str, Sequence[Any]]) -> None:
    """Check that a formula gives different numbers for some rows, if all rows can be tried.

    A comparison of a name with what it can never be, such as a label with a mistake, is found in any part.

    Args:
        tree: the formula.
        values: the values that a row can have under each name; none for a name whose values are not a few.

    Raises:
        ValueError: the formula gives a number for no row, or the same one for all; or such a comparison does.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and all(isinstance(sign, _EQUALITY) for sign in node.ops):
            _check_varies(node, _numbers_of(node, values), values=values)
    numbers = _numbers_of(tree, values)
    _check_varies(tree, numbers, values=values)
    if numbers is not None and not numbers:
        raise ValueError("gives a finite number for no row")


def _check_varies(node: ast.expr, numbers: set[float] | None, *, values: Mapping[str, Sequence[Any]]) -> None:
    """Check that a part of a formula with names is not the same number for every row.

    Args:
        node: the part.
        numbers: what it gives over all rows, as `_numbers_of` returns it.
        values: as for `check_rows`.

    Raises:
        ValueError: it is the same number.
    """
    names = _names_in(node)
    if not names or numbers is None or len(numbers) != 1:
        return
    (number,) = numbers
    ranges = "; ".join(f"{name} is one of {_first_values(values[name])}" for name in names)
    raise ValueError(f"{_shown(node)} is {number:g} for every row: {ranges}")


def _numbers_of(node: ast.expr, values: Mapping[str, Sequence[Any]]) -> set[float] | None:
    """Return the finite numbers that a part of a formula gives over all rows.

    Returns:
        None if not all rows can be tried: they are too many, or a name's values are not a few.
    """
    names = _names_in(node)
    values_of_names = [values[name] for name in names]
    combinations = math.prod(len(values_of_name) for values_of_name in values_of_names)
    if combinations == 0 or combinations > _MOST_ROWS:
        return None
    numbers: set[float] = set()
    for row in itertools.product(*values_of_names):
        with suppress(*UNDEFINED):
            number = float(value_of(node, dict(zip(names, row, strict=True))))
            if math.isfinite(number):
                numbers.add(number)
    return numbers


def _names_in(node: ast.expr) -> list[str]:
    """Return the names of a part of a formula whose values differ between rows, in alphabetical order."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return sorted(names - FUNCTIONS.keys())


def _first_values(values: Sequence[Any]) -> str:
    """Return the beginning of a list of values."""
    shown = ", ".join(str(value) for value in values[:_MOST_VALUES_LISTED])
    if len(values) > _MOST_VALUES_LISTED:
        return f"{shown}, …"
    return shown


def _shown(node: ast.AST) -> str:
    """Return the beginning of a part of a formula, for a message."""
    return ast.unparse(node)[:_SHOWN_CHARACTERS]
