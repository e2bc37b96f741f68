"""Whether the parts of a formula fit together: which are numbers, and which are texts."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise


class Kind(Enum):
    """What a part of a formula is."""

    NUMBER = "a number"
    TEXT = "a text"


_FEWEST_ARGUMENTS = {"min": 2, "max": 2, "abs": 1}


def kind_of(node: ast.expr, names: Mapping[str, Kind]) -> Kind:
    """Return what a part of a formula is, for every row.

    Args:
        node: the part, which consists of what a formula may have.
        names: what each name of the formula is.

    Raises:
        ValueError: it is neither, because its own parts do not fit together.
    """
    match node:
        case ast.Constant(value=value):
            return Kind.TEXT if isinstance(value, str) else Kind.NUMBER
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            _require_number(operand, names)
        case ast.BinOp(left=left, right=right):
            _require_number(left, names)
            _require_number(right, names)
        case ast.BoolOp(values=operands):
            for operand in operands:
                _require_number(operand, names)
        case ast.Compare():
            _check_comparison(node, names)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            _require_number(test, names)
            return _common_kind([body, orelse], names)
        case ast.Call(func=ast.Name(id="abs"), args=arguments):
            if len(arguments) != _FEWEST_ARGUMENTS["abs"]:
                raise ValueError(f"{ast.unparse(node)} needs one number")
            _require_number(arguments[0], names)
        case ast.Call(func=ast.Name(id=function), args=arguments):
            if len(arguments) < _FEWEST_ARGUMENTS[function]:
                raise ValueError(f"{ast.unparse(node)} needs two numbers or more")
            return _common_kind(arguments, names)
    return Kind.NUMBER


def _require_number(node: ast.expr, names: Mapping[str, Kind]) -> None:
    if kind_of(node, names) is not Kind.NUMBER:
        raise ValueError(f"{ast.unparse(node)} is a text, and a number is needed there")


def _common_kind(nodes: list[ast.expr], names: Mapping[str, Kind]) -> Kind:
    """Return what all of these parts are.

    Raises:
        ValueError: some are numbers, and some are texts.
    """
    first = kind_of(nodes[0], names)
    for node in nodes[1:]:
        kind = kind_of(node, names)
        if kind is not first:
            first_text = ast.unparse(nodes[0])
            raise ValueError(f"{first_text} is {first.value}, and {ast.unparse(node)} {kind.value}")
    return first


def _check_comparison(node: ast.Compare, names: Mapping[str, Kind]) -> None:
    """Check that what is compared are all numbers, or all texts: a number never equals a text.

    Raises:
        ValueError: a number is compared with a text.
    """
    sides = [node.left] + node.comparators
    for left, right in pairwise(sides):
        _common_kind([left, right], names)
