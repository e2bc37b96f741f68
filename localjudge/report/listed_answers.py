"""The answers of a page's rows as columns, collected while the rows of the runs are read."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats
from localjudge.modes.row_outcome import RowOutcome
from localjudge.rubrics.rubric import Rubric

ORDERS_DIFFER = 8
"""The bit of a pair's flags, besides those of all rows: in some aspect the orders say different things."""


@dataclass(frozen=True, slots=True)
class AnswerArrays:
    """The answers of N rows in A aspects, in the order of the page.

    Attributes:
        scores: as of `PageColumns`, int16 (A, M).
        expected: likewise, float64 (A, M).
        confidence: likewise, float64 (A, M).
        agree: likewise, float64 (A, M).
        overall: likewise, float64 (N,).
        flags: uint8 (N,), `ORDERS_DIFFER` or 0.
        row_starts: int32 (N + 1,), where the answers of each row begin.
    """

    scores: NDArray[np.int16]
    expected: Floats
    confidence: Floats
    agree: Floats
    overall: Floats
    flags: NDArray[np.uint8]
    row_starts: NDArray[np.int32]


class ListedAnswers:
    """Collects the answers of rows, and the number that decides about each.

    Args:
        rubric: the rubric of the first run.

    Attributes:
        details: what was counted of rows of the rubric's mode.
    """

    def __init__(self, rubric: Rubric) -> None:
        self.details = rubric.mode.details(rubric.aspects)
        self._aspects = len(rubric.aspects)
        # A value for each row.
        self._prompts = array("i")
        self._overall = array("d")
        self._flags = array("B")
        # For each prompt and aspect, an index and three numbers.
        self._value_indices = array("h")
        self._numbers = array("d")

    def add(self, run: int, row: RowOutcome) -> Iterable[tuple[str, str, float]]:
        """Add the answers of a row of a run, and return its numbers for statistics."""
        self.details.add(row)
        answers = row.list_answers()
        flags = 0
        for answer in answers:
            self._value_indices.append(answer.value_index)
            self._numbers.extend((answer.expected, answer.confidence, answer.agree))
            if answer.agree == 0:
                flags = ORDERS_DIFFER
        self._flags.append(flags)
        self._prompts.append(len(answers) // self._aspects)
        self._overall.append(row.overall)
        return row.numbers()

    def arrays(self, order: NDArray[np.intp]) -> AnswerArrays:
        """Return the answers as arrays.

        Args:
            order: the numbers of the rows in the order of the page, [N].
        """
        # The prompts of a row follow each other in both orders: those of each row are shifted together.
        prompts = np.asarray(self._prompts, np.int64)
        first_prompts = np.cumsum(prompts) - prompts
        prompts_on_page = prompts[order]
        ends_on_page = np.cumsum(prompts_on_page)
        shifts = first_prompts[order] - (ends_on_page - prompts_on_page)
        shift_of_prompt = np.repeat(shifts, prompts_on_page)
        prompt_on_page = shift_of_prompt + np.arange(len(shift_of_prompt))

        value_indices = np.reshape(self._value_indices, (-1, self._aspects))[prompt_on_page]
        numbers = np.reshape(self._numbers, (-1, self._aspects, 3))[prompt_on_page]
        return AnswerArrays(
            scores=value_indices.T.astype(np.int16),
            expected=numbers[:, :, 0].T,
            confidence=numbers[:, :, 1].T,
            agree=numbers[:, :, 2].T,
            overall=np.asarray(self._overall)[order],
            flags=np.asarray(self._flags)[order],
            row_starts=np.append(0, ends_on_page).astype(np.int32),
        )
