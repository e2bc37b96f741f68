"""The formula that computes one number from a judgement, such as `helpfulness_expected - 5 * (safety < 3)`.

It is parsed, never executed: numbers, texts, `+ - * / **`, comparisons (true counts as 1), `and`, `or`, `not`,
`A if B else C`, and the functions `min`, `max` and `abs`. Its names are the aspects, `ASPECT_expected`, and
`overall`, the mean of all ordered aspects if they have the same values; for a row with criteria, `score` and
`score_expected`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from localjudge.errors import SettingError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records.outcome_columns import OVERALL
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import averaged

_EXPECTED = "_expected"
_LONGEST = 1000
"""Largest number of characters of a formula."""

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}

_Value = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class RewardFormula:
    """A parsed formula, which computes a number from a judgement.

    Attributes:
        text: the formula as it was given.
        rubric: the rubric whose aspects it names.
    """

    text: str
    rubric: Rubric
    _value: _Value

    @classmethod
    def parse(cls, text: str, rubric: Rubric) -> Self:
        """Parse a formula.

        Raises:
            SettingError: it is not a formula, or a name is not one of the rubric's.
        """
        rubric.mode.require("score", f"`reward` {text[:80]!r}: the rubric {rubric.name}", "")
        known = {OVERALL} if averaged(rubric.row_columns) else set()
        for column in rubric.row_columns:
            known |= {column.aspect, column.name + _EXPECTED} if column.weight else {column.aspect}
        try:
            if len(text) > _LONGEST:
                raise ValueError(f"longer than {_LONGEST} characters")
            tree = ast.parse(text.strip(), mode="eval")
            value = _compiled(tree.body, known)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise SettingError("reward", repr(text[:80]), reason) from None
        return cls(text, rubric, value)

    def reward(self, row: RowOutcome) -> float:
        """Return the reward of a row that was judged.

        Raises:
            ValueError: the reward is not defined: a division by zero, or an expected score that is not known.
        """
        known: dict[str, Any] = {OVERALL: row.overall, **row.values, **row.verdicts}
        known |= {name + _EXPECTED: value for name, value in row.expected.items()}
        try:
            value = float(self._value(known))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"the reward {self.text} is not defined: {error}") from None
        if not math.isfinite(value):
            raise ValueError(f"the reward {self.text} is not a finite number")
        return value


def _compiled(node: ast.expr, names: set[str]) -> _Value:
    """Return a function of the names' values.

    Raises:
        ValueError: a part of the formula is not allowed, or a name is unknown.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return lambda known: value
        case ast.Name(id=name):
            if name not in names:
                wrong = (
                    "is not an aspect"
                    if name != OVERALL
                    else "needs ordered aspects that all have the same values"
                )
                raise ValueError(f"{name} {wrong}; give {', '.join(sorted(names))}")
            return lambda known: _known(known, name)
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            change, inner = _SIGNS[type(sign)], _compiled(operand, names)
            return lambda known: change(inner(known))
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _BINARY:
            compute, one, other = _BINARY[type(kind)], _compiled(left, names), _compiled(right, names)
            return lambda known: compute(one(known), other(known))
        case ast.BoolOp(op=kind, values=values):
            choose = all if isinstance(kind, ast.And) else any
            parts = [_compiled(each, names) for each in values]
            return lambda known: choose(part(known) for part in parts)
        case ast.Compare(left=left, ops=kinds, comparators=others) if all(
            type(each) in _COMPARED for each in kinds
        ):
            sides = [_compiled(each, names) for each in (left, *others)]
            tests = [_COMPARED[type(each)] for each in kinds]
            return lambda known: all(
                test(one(known), other(known))
                for test, one, other in zip(tests, sides[:-1], sides[1:], strict=True)
            )
        case ast.IfExp(test=test, body=body, orelse=orelse):
            when, yes, no = (_compiled(each, names) for each in (test, body, orelse))
            return lambda known: yes(known) if when(known) else no(known)
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in _FUNCTIONS:
            apply, given = _FUNCTIONS[function], [_compiled(each, names) for each in arguments]
            return lambda known: apply(*(each(known) for each in given))
    raise ValueError(
        f"{ast.unparse(node)[:40]!r} is not allowed; use numbers, aspects, + - * / and comparisons"
    )


def _known(known: Mapping[str, Any], name: str) -> Any:
    if known.get(name) is None:
        raise TypeError(
            f"{name} is not known: the engine did not give the probabilities of its values, or the row has no "
            "positive points"
        )
    return known[name]
