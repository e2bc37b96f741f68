"""One response to an instruction, judged by one prompt (pointwise)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from localjudge.modes.mode import MeanTable, Mode, SystemCounts
from localjudge.modes.row_outcome import EXPECTED, VALUE, Join, RowOutcome
from localjudge.records import Criterion, Judgement
from localjudge.records.outcome_columns import AnswerColumns, arrow_types, to_line
from localjudge.rubrics.answer import Value, shown
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.score_column import ScoreColumn, deciding, is_share, overall, score_columns


@dataclass(frozen=True, slots=True)
class ResponseOutcome(RowOutcome):
    """A response that was judged, or could not be.

    Attributes:
        columns: the numbers of its answer.
    """

    columns: tuple[ScoreColumn, ...]

    @property
    def error(self) -> str | None:
        return self.first.error

    @property
    def judged(self) -> tuple[Judgement, ...]:
        return (self.first,) if isinstance(self.first, Judgement) else ()

    @property
    def criterion(self) -> Criterion | None:
        return self.first.criterion

    @property
    def verdicts(self) -> Mapping[str, Value | None]:
        return self.first.scores if isinstance(self.first, Judgement) else {}

    @property
    def verdict_texts(self) -> Mapping[str, str]:
        return {**self.cells(), **(self.first.texts if isinstance(self.first, Judgement) else {})}

    def decision(self, aspect: str, within: int) -> tuple[float, float]:
        if not isinstance(self.first, Judgement):
            return nan, nan
        known = self.aspects[aspect]
        numbers = known.numbers or {value: place for place, value in enumerate(known.values.values())}
        number = numbers[self.first.scores[aspect]]
        shares = zip(numbers.values(), self.first.probabilities[aspect], strict=True)
        return number, sum(share for other, share in shares if abs(other - number) <= within)

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        if isinstance(self.first, Judgement):
            for column in self.columns:
                yield VALUE, column.name, column.number(self.first)
                if (expected := column.expected(self.first)) is not None:
                    yield EXPECTED, column.name, expected

    def cells(self) -> Mapping[str, str]:
        return {name: shown(value) for name, value in self.verdicts.items() if value is not None}

    @property
    def overall(self) -> float:
        columns = deciding(self.columns)
        return overall(self.first, columns) if columns and isinstance(self.first, Judgement) else nan

    def line(self, columns: AnswerColumns) -> dict[str, Any]:
        return to_line(self.first, columns)


class ResponseMode(Mode[ResponseOutcome]):
    name = "pointwise"
    judges = "judges one response"
    features = frozenset({"aspects", "score", "verdict"})

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[ResponseOutcome]:
        columns = score_columns(aspects)
        return Join(lambda parts: ResponseOutcome((parts[0],), aspects, columns), 1)

    def mean_table(self, systems: Mapping[str, SystemCounts], columns: Sequence[ScoreColumn]) -> MeanTable:
        """The mean of a column is that of the expected scores if all judged rows have them, as in `rank`."""
        measured = {
            column.name
            for column in columns
            if all(counts.columns[column.name].is_measured for counts in systems.values())
        }
        known = {
            column.name: [
                each.expected if column.name in measured else each.mean
                for each in (counts.columns[column.name] for counts in systems.values())
            ]
            for column in columns
        }
        return MeanTable(_title([*known], measured), "system", "n", known)

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        return arrow_types(columns)


def _title(columns: Sequence[str], measured: set[str]) -> str:
    """Return the title of the table of means, which names their scores."""
    what = "Shares of labels" if all(map(is_share, columns)) else "Mean scores"
    integers = [name for name in columns if name not in measured]
    if not integers:
        return what.replace("scores", "expected scores") + " of all rows"
    if not measured:
        return what.replace("scores", "integer scores") + " of all rows"
    return f"Mean expected scores of all rows (integer scores of {', '.join(integers)})"


RESPONSE = ResponseMode()
