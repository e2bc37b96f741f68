"""The noise of a run: how far its scores move when the same engine judges rows again, in other batches.

A sample of the rows is judged again when all rows are done (`RunDirectory.measure_noise`). `noise.jsonl` has a
line for each of these rows, with both results. They are no rows of the run: no mean and no count has them, and
`summary.json` says whether the file belongs to its lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, FiniteFloat

from localjudge.arrays import Floats, Integers
from localjudge.errors import RunMismatchError
from localjudge.modes.row_outcome import EXPECTED, TAG, VALUE, RowOutcome
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.run_files import NOISE
from localjudge.statistics.absolute_change import AbsoluteChange, absolute_change


class RepeatedPrompt(BaseModel):
    """A prompt that was judged twice.

    Attributes:
        row: the number of the prompt's row in the whole input, from 1.
        key: the key of its judgement.
        first: the value that the judge wrote for each aspect in the run.
        again: the same when it was judged again; empty if it failed then.
        changed_texts: whether the rationales differ.
        error: why it failed when it was judged again; None if it did not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    row: int | None
    key: str
    first: dict[str, bool | int | str]
    again: dict[str, bool | int | str]
    changed_texts: bool
    error: str | None

    @classmethod
    def of(cls, first: Judgement, again: Outcome) -> Self:
        """Return a prompt with both outcomes."""
        values: Mapping[str, bool | int | str] = {}
        changed_texts = False
        if isinstance(again, Judgement):
            values = again.scores
            changed_texts = again.texts != first.texts
        return cls(
            row=first.row,
            key=first.key,
            first=first.scores,
            again=dict(values),
            changed_texts=changed_texts,
            error=again.error,
        )


class RepeatedRow(BaseModel):
    """A row that was judged twice: a line of `noise.jsonl`.

    Attributes:
        id: the id of the row.
        systems: the systems that wrote its responses.
        group: digest of its instruction, as in the row's line; its id if the line has none.
        prompts: its prompts: one, or one for each order of a pair or each criterion.
        values: for each column, the row's number in the run and when it was judged again; empty if a prompt
            failed then.
        expected: the same of the numbers under the judge's probabilities, for the columns that have them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    systems: list[str | None]
    group: str
    prompts: list[RepeatedPrompt]
    values: dict[str, tuple[FiniteFloat, FiniteFloat]]
    expected: dict[str, tuple[FiniteFloat, FiniteFloat]]

    @classmethod
    def of(cls, first: RowOutcome, again: RowOutcome) -> Self:
        """Return a row with both outcomes."""
        prompts = zip(first.judged, again.prompts, strict=True)
        return cls(
            id=first.id,
            systems=list(first.systems),
            group=first.first.group or first.id,
            prompts=[RepeatedPrompt.of(first_outcome, new_outcome) for first_outcome, new_outcome in prompts],
            values=_numbers_of_both(first, again, kind=VALUE),
            expected=_numbers_of_both(first, again, kind=EXPECTED),
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its prompts."""
        return tuple(prompt.key for prompt in self.prompts)

    @property
    def failed(self) -> bool:
        """Whether a prompt of it failed when it was judged again."""
        return any(prompt.error is not None for prompt in self.prompts)

    def belongs_to(self, row: RowOutcome) -> bool:
        """Return whether it is this row of a run, with the outcome that it has there now."""
        scores_of_row = [(prompt.key, prompt.scores) for prompt in row.judged]
        first_scores = [(prompt.key, prompt.first) for prompt in self.prompts]
        if scores_of_row != first_scores:
            return False
        numbers = {(kind, name): number for kind, name, number in row.numbers()}
        for name, (first, _) in self.values.items():
            if numbers.get((VALUE, name)) != first:
                return False
        for name, (first, _) in self.expected.items():
            if numbers.get((EXPECTED, name)) != first:
                return False
        return True

    def numbers(self, expected: bool) -> Mapping[str, tuple[float, float]]:
        """Return the numbers of the row in both judgings, by column.

        Args:
            expected: those under the judge's probabilities; otherwise those of the written values.
        """
        return self.expected if expected else self.values


def _numbers_of_both(first: RowOutcome, again: RowOutcome, *, kind: str) -> dict[str, tuple[float, float]]:
    """Return the numbers that a row has in both judgings, by column; those of tags are left out.

    Args:
        first: the outcome of the row in the run.
        again: its outcome when it was judged again.
        kind: the kind of the numbers, as `RowOutcome.numbers` has it.
    """
    if again.error is not None:
        return {}
    first_numbers = _numbers_of_kind(first, kind)
    new_numbers = _numbers_of_kind(again, kind)
    return {
        name: (number, new_numbers[name])
        for name, number in first_numbers.items()
        if name in new_numbers and not name.startswith(TAG)
    }


def _numbers_of_kind(outcome: RowOutcome, kind: str) -> dict[str, float]:
    """Return the numbers of a row of one kind, by column."""
    return {name: number for number_kind, name, number in outcome.numbers() if number_kind == kind}


@dataclass(frozen=True, slots=True)
class ColumnNoise:
    """The noise of a column of scores.

    Attributes:
        expected: whether it is that of the expected scores; False for the written values, where not all rows
            have an expected score.
        width: the width of the scale.
        change: how far the numbers moved.
    """

    expected: bool
    width: float
    change: AbsoluteChange

    @property
    def mean_share(self) -> float:
        """The mean change as a share of the scale; 0 if no row has a number."""
        if self.change.mean.value is None:
            return 0.0
        return self.change.mean.value / self.width


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a run, of the rows that were judged again.

    Attributes:
        rows: number of rows that were judged again and are compared.
        failed: number of rows that failed when they were judged again; they are in no other number.
        instructions: number of instructions of the rows.
        columns: the noise of each column of scores.
        values: number of values that the judge wrote for each aspect, of all prompts of the rows.
        changed: for each aspect, the number of values that changed.
        changed_rows: number of rows with a value that changed.
        changed_rationales: number of rows with a rationale that changed.
    """

    rows: int
    failed: int
    instructions: int
    columns: Mapping[str, ColumnNoise]
    values: int
    changed: Mapping[str, int]
    changed_rows: int
    changed_rationales: int

    @classmethod
    def from_rows(cls, rows: Iterable[RepeatedRow], columns: Sequence[ScoreColumn]) -> Self:
        """Return the noise of rows that were judged twice.

        Args:
            rows: the rows.
            columns: the numbers of a row, as `Rubric.row_columns` has them.
        """
        all_rows = list(rows)
        compared = [row for row in all_rows if not row.failed]
        prompts = 0
        changed_values: Counter[str] = Counter()
        changed_rows = 0
        changed_rationales = 0
        for row in compared:
            prompts += len(row.prompts)
            for prompt in row.prompts:
                for name, value in prompt.first.items():
                    changed_values[name] += int(prompt.again[name] != value)
            if any(prompt.first != prompt.again for prompt in row.prompts):
                changed_rows += 1
            if any(prompt.changed_texts for prompt in row.prompts):
                changed_rationales += 1
        return cls(
            rows=len(compared),
            failed=len(all_rows) - len(compared),
            instructions=len({row.group for row in compared}),
            columns={column.name: _column_noise(compared, column) for column in columns},
            values=prompts,
            changed=dict(changed_values),
            changed_rows=changed_rows,
            changed_rationales=changed_rationales,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the noise for `summary.json`; a mean without an interval says why it has none."""
        return asdict(self)


def _column_noise(rows: Sequence[RepeatedRow], column: ScoreColumn) -> ColumnNoise:
    """Return the noise of a column: that of the expected scores if all rows have one."""
    name = column.name
    width = column.highest - column.lowest
    rows_with_value = [row for row in rows if name in row.values]
    all_expected = all(name in row.expected for row in rows_with_value)
    return ColumnNoise(
        expected=all_expected,
        width=width,
        change=column_change(rows_with_value, name, expected=all_expected, width=width),
    )


def column_change(rows: Sequence[RepeatedRow], column: str, *, expected: bool, width: float) -> AbsoluteChange:
    """Return how far the numbers of a column moved, of the rows that have one.

    Args:
        rows: the rows.
        column: the column.
        expected: as for `RepeatedRow.numbers`.
        width: the width of its scale. (The score of a checklist can move further, by its negative points.)
    """
    numbered = [row for row in rows if column in row.numbers(expected=expected)]
    numbers: Floats = np.array([row.numbers(expected=expected)[column] for row in numbered], dtype=np.float64)
    numbers = numbers.reshape(-1, 2)
    first = numbers[:, 0]
    again = numbers[:, 1]
    groups: Integers
    _, groups = np.unique([row.group for row in numbered], return_inverse=True)
    largest_change = float(np.abs(again - first).max(initial=0.0))
    return absolute_change(first, again, group=groups, width=max(width, largest_change))


def encoded_rows(rows: Iterable[RepeatedRow]) -> Iterator[bytes]:
    """Yield the lines of `noise.jsonl`."""
    for row in rows:
        yield json.dumps(row.model_dump(mode="json"), ensure_ascii=False).encode() + b"\n"


def read_noise_lines(folder: Path) -> list[RepeatedRow]:
    """Return the rows of a run directory's `noise.jsonl`; none without the file.

    Raises:
        RunMismatchError: the file is damaged.
    """
    file = folder / NOISE
    if not file.exists():
        return []
    rows = []
    try:
        with file.open("rb") as stream:
            for line in stream:
                rows.append(RepeatedRow.model_validate_json(line))
    except (OSError, ValueError):
        raise RunMismatchError(
            f"{file}:{len(rows) + 1}: not a line of a row that was judged again, or damaged; delete the file, "
            "and the same score command measures the noise again"
        ) from None
    return rows
