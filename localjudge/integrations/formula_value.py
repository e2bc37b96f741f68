"""The value of a formula for one row: its operators and functions, and what is computed from them."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: math.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Not: operator.not_, ast.And: all, ast.Or: any,
}  # fmt: skip
FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
UNDEFINED = (TypeError, ValueError, ArithmeticError, RecursionError)
"""The errors of a formula that is not defined for a row."""


def value_of(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """Return the value of a formula whose parts were checked.

    Args:
        node: the formula, or a part of it.
        values: the value of each name; None where it is missing.

    Raises:
        TypeError: a value that the formula needs is missing.
        ValueError, ArithmeticError, RecursionError: the formula is not defined for these values.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _value_of_name(name, values)
        case ast.UnaryOp(op=sign, operand=operand):
            return OPERATORS[type(sign)](value_of(operand, values))
        case ast.BinOp(left=left, op=sign, right=right):
            return OPERATORS[type(sign)](value_of(left, values), value_of(right, values))
        case ast.BoolOp(op=connective, values=operands):
            # `all` and `any` compute no operand after the first that decides.
            return OPERATORS[type(connective)](value_of(operand, values) for operand in operands)
        case ast.Compare():
            return _is_true(node, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return value_of(body, values) if value_of(test, values) else value_of(orelse, values)
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return FUNCTIONS[function](*(value_of(argument, values) for argument in arguments))
    raise AssertionError(node)  # `check_parts` refuses other parts


def _value_of_name(name: str, values: Mapping[str, Any]) -> Any:
    value = values.get(name)
    if value is None:
        raise TypeError(
            f"{name} is not known: the engine did not give the probabilities of its values, or the row "
            "has no positive points"
        )
    return value


def _is_true(comparison: ast.Compare, values: Mapping[str, Any]) -> bool:
    """Return whether a comparison such as `1 < a <= b` is true; it ends at the first sign that is not."""
    left = value_of(comparison.left, values)
    for sign, side in zip(comparison.ops, comparison.comparators, strict=True):
        right = value_of(side, values)
        if not OPERATORS[type(sign)](left, right):
            return False
        left = right
    return True
