"""Rows that were judged twice, to measure the noise of a run: the lines of `noise.jsonl`.

The lines have both results of each row. They are no rows of the run: no mean and no count has them, and
`summary.json` says whether the file belongs to the lines of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, FiniteFloat

from localjudge.errors import RunMismatchError
from localjudge.modes.row_outcome import EXPECTED, TAG, VALUE, RowOutcome
from localjudge.records import Judgement, Outcome
from localjudge.runs.run_files import NOISE


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
