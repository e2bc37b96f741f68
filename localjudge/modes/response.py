"""One response to an instruction, judged by one prompt (pointwise)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from localjudge.modes.mode import MeanTable, Mode, SystemCounts
from localjudge.modes.row_outcome import EXPECTED, VALUE, Decision, Join, RowOutcome
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
        if isinstance(self.first, Judgement):
            return (self.first,)
        return ()

    @property
    def criterion(self) -> Criterion | None:
        return self.first.criterion

    @property
    def verdicts(self) -> Mapping[str, Value | None]:
        if isinstance(self.first, Judgement):
            return self.first.scores
        return {}

    @property
    def verdict_texts(self) -> Mapping[str, str]:
        texts = dict(self.cells())
        if isinstance(self.first, Judgement):
            texts.update(self.first.texts)
        return texts

    def decision(self, aspect: str, within: int) -> Decision | None:
        if not isinstance(self.first, Judgement):
            return None
        numbers = self.aspects[aspect].numbers_or_indices
        number = numbers[self.first.scores[aspect]]
        probability = 0.0
        for other, share in zip(numbers.values(), self.first.probabilities[aspect], strict=True):
            if abs(other - number) <= within:
                probability += share
        return Decision(number, probability)

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        if not isinstance(self.first, Judgement):
            return
        for column in self.columns:
            yield VALUE, column.name, column.number(self.first)
            expected = column.expected(self.first)
            if expected is not None:
                yield EXPECTED, column.name, expected

    def cells(self) -> Mapping[str, str]:
        return {name: shown(value) for name, value in self.verdicts.items() if value is not None}

    @property
    def overall(self) -> float:
        columns = deciding(self.columns)
        if not columns or not isinstance(self.first, Judgement):
            return nan
        return overall(self.first, columns)

    def line(self, columns: AnswerColumns) -> dict[str, Any]:
        return to_line(self.first, columns)


class ResponseMode(Mode[ResponseOutcome]):
    name = "pointwise"
    judges = "judges one response"

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[ResponseOutcome]:
        columns = score_columns(aspects)
        return Join(lambda parts: ResponseOutcome((parts[0],), aspects, columns), 1)

    def mean_table(self, systems: Mapping[str, SystemCounts], columns: Sequence[ScoreColumn]) -> MeanTable:
        """The mean of a column is that of the expected scores if all judged rows have them, as in `rank`."""
        measured: set[str] = set()
        means: dict[str, list[float | None]] = {}
        for column in columns:
            of_systems = [counts.columns[column.name] for counts in systems.values()]
            if all(mean.is_measured for mean in of_systems):
                measured.add(column.name)
                means[column.name] = [mean.expected for mean in of_systems]
            else:
                means[column.name] = [mean.mean for mean in of_systems]
        return MeanTable(_title(list(means), measured), systems="system", rows="n", columns=means)

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        return arrow_types(columns)


def _title(columns: Sequence[str], measured: set[str]) -> str:
    """Return the title of the table of means, which names the kind of their scores."""
    integers = [name for name in columns if name not in measured]
    if integers and measured:
        return f"Mean expected scores of all rows (integer scores of {', '.join(integers)})"
    if all(is_share(name) for name in columns):
        return "Shares of labels of all rows"
    kind = "integer" if integers else "expected"
    return f"Mean {kind} scores of all rows"


RESPONSE = ResponseMode()
