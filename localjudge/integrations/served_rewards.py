"""The rewards that a judge serves: the formula that computes one from a judgement.

A formula, such as `helpfulness_expected - 5 * (safety < 3)`, is parsed, never executed: numbers, texts,
`+ - * / **`, comparisons (true counts as 1), `and`, `or`, `not`, `A if B else C`, and the functions `min`,
`max` and `abs`. Its names are the aspects, `ASPECT_expected`, and `overall`, the mean of all ordered aspects if
they have the same values; for a row with criteria, `score` and `score_expected`. A formula that can give no
number, or only one for all rows, is refused.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from localjudge.errors import SettingError
from localjudge.integrations.formula_kinds import Kind, kind_of
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records.outcome_columns import OVERALL
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import averaged

_EXPECTED = "_expected"
_LONGEST = 1000
"""Largest number of characters of a formula."""

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: math.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Not: operator.not_, ast.And: all, ast.Or: any,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
_UNDEFINED = (TypeError, ValueError, ArithmeticError, RecursionError)
"""The errors of a formula that is not defined for a row."""
_MOST_ROWS = 5000
"""The most combinations of values for which a formula is tried before the judge starts."""
_MOST_VALUES_LISTED = 10
_EQUALITY = (ast.Eq, ast.NotEq)
_PARTS = (*_OPERATORS, ast.Name, ast.Load, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp)


@dataclass(frozen=True, slots=True)
class RewardFormula:
    """A parsed formula, which computes a number from a judgement.

    Attributes:
        text: the formula as it was given.
        rubric: the rubric whose aspects it names.
    """

    text: str
    rubric: Rubric
    _tree: ast.expr

    @classmethod
    def parse(cls, text: str, rubric: Rubric) -> Self:
        """Parse a formula.

        Raises:
            SettingError: it is not a formula, a name is not one of the rubric's, it can give no number, or it
                depends on the row and gives the same number for every one.
        """
        rubric.mode.require_one_response(f"`reward` {text[:80]!r}: the rubric {rubric.name}")
        kinds = _kinds_of_names(rubric)
        try:
            if len(text) > _LONGEST:
                raise ValueError(f"longer than {_LONGEST} characters")
            tree = ast.parse(text.strip(), mode="eval").body
            _check(tree, set(kinds))
            if kind_of(tree, kinds) is not Kind.NUMBER:
                raise ValueError("is a text for every row; give a formula of a number")
            _check_constants(tree)
            _check_rows(tree, rubric)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise SettingError("reward", repr(text[:80]), reason) from None
        return cls(text, rubric, tree)

    def reward(self, row: RowOutcome) -> float:
        """Return the reward of a row that was judged.

        Raises:
            ValueError: the reward is not defined: a division by zero, or an expected score that is not known.
        """
        known: dict[str, Any] = {OVERALL: row.overall, **row.values, **row.verdicts}
        known |= {name + _EXPECTED: value for name, value in row.expected.items()}
        try:
            value = float(_value(self._tree, known))
        except _UNDEFINED as error:
            raise ValueError(f"the reward {self.text} is not defined: {error}") from None
        if not math.isfinite(value):
            raise ValueError(f"the reward {self.text} is not a finite number")
        return value


def _kinds_of_names(rubric: Rubric) -> dict[str, Kind]:
    """Return what each name is that a formula may have."""
    kinds: dict[str, Kind] = {}
    if averaged(rubric.row_columns):
        kinds[OVERALL] = Kind.NUMBER
    for column in rubric.row_columns:
        values = _values_of(rubric, column.aspect)
        has_texts = any(isinstance(value, str) for value in values)
        kinds[column.aspect] = Kind.TEXT if has_texts else Kind.NUMBER
        if column.weight:
            kinds[column.name + _EXPECTED] = Kind.NUMBER
    return kinds


def _values_of(rubric: Rubric, name: str) -> list[Any]:
    """Return the values that a row can have under this name; none if they are not a few."""
    aspect = rubric.aspects.get(name)
    is_of_aspect = aspect is not None and name in [column.aspect for column in rubric.row_columns]
    return list(aspect.values.values()) if aspect is not None and is_of_aspect else []


def _check_constants(tree: ast.expr) -> None:
    """Check that no part is undefined that is computed for every row and depends on none.

    Raises:
        ValueError: there is such a part.
    """
    for node in _computed_for_every_row(tree):
        if _names_in(node):
            continue
        try:
            _value(node, {})
        except _UNDEFINED as error:
            raise ValueError(f"{ast.unparse(node)[:40]} is not defined: {error}") from None
    for node in _computed_for_every_row(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or _names_in(node.right):
            continue
        if _value(node.right, {}) == 0:
            raise ValueError(f"{ast.unparse(node)[:40]} is not defined: division by zero")


def _computed_for_every_row(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a formula that no condition leaves out, and the formula itself."""
    yield node
    parts: list[ast.expr] = []
    match node:
        case ast.UnaryOp(operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.BoolOp(values=values):
            parts = values[:1]
        case ast.Compare(left=left, comparators=others):
            parts = [left, others[0]]
        case ast.IfExp(test=test):
            parts = [test]
        case ast.Call(args=arguments):
            parts = arguments
    for part in parts:
        yield from _computed_for_every_row(part)


def _names_in(node: ast.expr) -> set[str]:
    """Return the names of a part of a formula whose values differ between rows."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names - _FUNCTIONS.keys()


def _check_rows(tree: ast.expr, rubric: Rubric) -> None:
    """Check that a formula gives different numbers for some rows, if all rows can be tried.

    A comparison of a name with what it can never be, such as a label with a mistake, is found in any part.

    Raises:
        ValueError: the formula gives a number for no row, or the same one for all; or such a comparison does.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and all(isinstance(each, _EQUALITY) for each in node.ops):
            _check_varies(node, rubric)
    numbers = _check_varies(tree, rubric)
    if numbers is not None and not numbers:
        raise ValueError("gives a finite number for no row")


def _check_varies(node: ast.expr, rubric: Rubric) -> set[float] | None:
    """Return the numbers that a part of a formula gives, as `_numbers_of`.

    Raises:
        ValueError: it depends on names, and is the same number for every row.
    """
    numbers = _numbers_of(node, rubric)
    names = sorted(_names_in(node))
    if names and numbers is not None and len(numbers) == 1:
        (only,) = numbers
        ranges = "; ".join(f"{name} is one of {_listed(_values_of(rubric, name))}" for name in names)
        raise ValueError(f"{ast.unparse(node)[:40]} is {only:g} for every row: {ranges}")
    return numbers


def _numbers_of(node: ast.expr, rubric: Rubric) -> set[float] | None:
    """Return the finite numbers that a part of a formula gives over all rows; None if not all can be tried."""
    names = sorted(_names_in(node))
    values = [_values_of(rubric, name) for name in names]
    combinations = math.prod(len(each) for each in values)
    if not 0 < combinations <= _MOST_ROWS:
        return None  # also if a name has not a few values alone
    numbers = set()
    for row in itertools.product(*values):
        known = dict(zip(names, row, strict=True))
        with suppress(*_UNDEFINED):
            number = float(_value(node, known))
            if math.isfinite(number):
                numbers.add(number)
    return numbers


def _listed(values: list[Any]) -> str:
    """Return the beginning of a list of values."""
    shown = ", ".join(str(value) for value in values[:_MOST_VALUES_LISTED])
    return shown if len(values) <= _MOST_VALUES_LISTED else f"{shown}, …"


def _check(tree: ast.expr, names: set[str]) -> None:
    """Check that a formula consists of what it may have, and of known names.

    Raises:
        ValueError: a part of the formula is not allowed, or a name is unknown.
    """
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and not node.keywords]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node not in functions:
            if node.id not in names:
                wrong = "needs ordered aspects that all have the same values"
                wrong = wrong if node.id == OVERALL else "is not an aspect"
                raise ValueError(f"{node.id} {wrong}; give {', '.join(sorted(names))}")
            continue
        allowed = isinstance(node, _PARTS)
        if isinstance(node, ast.Constant):
            allowed = type(node.value) in (bool, int, float, str)
        elif isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
        if not allowed:
            shown = ast.unparse(node)[:40] or type(node).__name__
            raise ValueError(f"{shown!r} is not allowed; use numbers, aspects, + - * / and comparisons")


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the value of a formula that was checked."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if known.get(name) is None:
                raise TypeError(
                    f"{name} is not known: the engine did not give the probabilities of its values, or the row "
                    "has no positive points"
                )
            return known[name]
        case ast.UnaryOp(op=sign, operand=operand):
            return _OPERATORS[type(sign)](_value(operand, known))
        case ast.BinOp(left=left, op=kind, right=right):
            return _OPERATORS[type(kind)](_value(left, known), _value(right, known))
        case ast.BoolOp(op=choose, values=values):
            return _OPERATORS[type(choose)](_value(each, known) for each in values)
        case ast.Compare(left=left, ops=kinds, comparators=others):
            sides = pairwise(
                _value(side, known) for side in (left, *others)
            )  # no side after the first that fails
            return all(_OPERATORS[type(kind)](*pair) for kind, pair in zip(kinds, sides, strict=False))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, known) else orelse, known)
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return _FUNCTIONS[function](*(_value(argument, known) for argument in arguments))
    raise AssertionError(node)  # `_check` refuses other parts
