"""The rewards that a judge serves: the formula that computes one from a judgement.

A formula, such as `helpfulness_expected - 5 * (safety < 3)`, is parsed, never executed: numbers, texts,
`+ - * / **`, comparisons (true counts as 1), `and`, `or`, `not`, `A if B else C`, and the functions `min`,
`max` and `abs`. Its names are the aspects, `ASPECT_expected`, and `overall`, the mean of all ordered aspects if
they have the same values; for a row with criteria, `score` and `score_expected`. A formula that can give no
number, or only one for all rows, is refused.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any, Self

from localjudge.errors import SettingError
from localjudge.integrations.formula_checks import check_constants, check_parts, check_rows
from localjudge.integrations.formula_kinds import Kind, kind_of
from localjudge.integrations.formula_value import UNDEFINED, value_of
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records.outcome_columns import EXPECTED, OVERALL
from localjudge.rubrics.answer import Value
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import averaged

_LONGEST = 1000
"""Largest number of characters of a formula."""
_SHOWN_CHARACTERS = 80
"""How much of a refused formula a message shows."""


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
        shown = repr(text[:_SHOWN_CHARACTERS])
        rubric.mode.require_one_response(f"`reward` {shown}: the rubric {rubric.name}")
        try:
            return cls(text, rubric, _checked_tree(text, rubric))
        except SyntaxError as error:
            raise SettingError("reward", shown, error.msg) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise SettingError("reward", shown, str(error)) from None

    def reward(self, row: RowOutcome) -> float:
        """Return the reward of a row that was judged.

        Raises:
            ValueError: the reward is not defined: a division by zero, or an expected score that is not known.
        """
        values: dict[str, Any] = {OVERALL: row.overall}
        values.update(row.values)
        values.update(row.verdicts)
        for name, expected in row.expected.items():
            values[name + EXPECTED] = expected
        try:
            reward = float(value_of(self._tree, values))
        except UNDEFINED as error:
            raise ValueError(f"the reward {self.text} is not defined: {error}") from None
        if not math.isfinite(reward):
            raise ValueError(f"the reward {self.text} is not a finite number")
        return reward


def _checked_tree(text: str, rubric: Rubric) -> ast.expr:
    """Parse and check a formula.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it cannot be used.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} characters")
    kinds = _kinds_of_names(rubric)
    tree = ast.parse(text.strip(), mode="eval").body
    check_parts(tree, kinds.keys())
    if kind_of(tree, kinds) is not Kind.NUMBER:
        raise ValueError("is a text for every row; give a formula of a number")
    check_constants(tree)
    check_rows(tree, {name: _values_of_name(rubric, name) for name in kinds})
    return tree


def _kinds_of_names(rubric: Rubric) -> dict[str, Kind]:
    """Return what each name is that a formula may have."""
    kinds: dict[str, Kind] = {}
    if averaged(rubric.row_columns):
        kinds[OVERALL] = Kind.NUMBER
    for column in rubric.row_columns:
        values = _values_of_name(rubric, column.aspect)
        has_texts = any(isinstance(value, str) for value in values)
        kinds[column.aspect] = Kind.TEXT if has_texts else Kind.NUMBER
        if column.weight:
            kinds[column.name + EXPECTED] = Kind.NUMBER
    return kinds


def _values_of_name(rubric: Rubric, name: str) -> list[Value]:
    """Return the values that a row can have under this name; none if they are not a few."""
    if name not in rubric.aspects:
        return []
    if name not in [column.aspect for column in rubric.row_columns]:
        return []
    return list(rubric.aspects[name].values.values())
