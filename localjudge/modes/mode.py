"""What all modes have: the columns of their lines, the join of a row's prompts, and the counts of a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Generic, Literal

from localjudge.errors import UsageError
from localjudge.modes.row_outcome import Join, RowOutcome, Side, T
from localjudge.records import Failure, Outcome, Row
from localjudge.records.outcome_columns import AnswerColumns, from_table, is_reserved
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.score_column import ScoreColumn, score_columns

RowFeature = Literal["aspects", "score", "verdict", "pairs", "criteria"]
"""What a row has for those who read it: a value of one response in each aspect; a score; an answer of its own
in each aspect; a preference between two responses; an answer to each of its criteria."""


class RowDetails(Generic[T]):
    """What a summary counts besides the numbers of the systems; here, nothing."""

    def add(self, row: T) -> None:
        """Count a row."""

    @property
    def tells_values_apart(self) -> bool:
        """Whether its signs show more than that all scores are equal."""
        return False

    def counted(self, judged: int, failed: int, orders: int) -> str:
        """Return the numbers of judged and failed rows in words.

        Args:
            judged: number of judged rows.
            failed: number of failed rows.
            orders: the number of orders of each pair; 1 without pairs.
        """
        return f"{judged:,} judged, {failed:,} failed"

    def lines(self) -> Iterator[str]:
        """Yield the lines below the table of the systems."""
        yield from ()

    def signs(self, least: int) -> Iterator[str]:
        """Yield the warning signs in it, one line each.

        Args:
            least: the least number of rows for a sign.
        """
        yield from ()


class Mode(ABC, Generic[T]):
    """What a rubric judges.

    Attributes:
        name: the field's term for it.
        item: what a row of the input is called.
        judges: what a rubric of this mode does, in words.
        most_aspects: the largest number of aspects of a rubric.
        responses: the fields of the template with the responses.
        prompt_columns: the columns of a line that tell the prompts of a row apart.
        list_columns: the columns of a list of rows, if they are not the aspects.
        features: what a row has for those who read it.
        unnamed: the names of the responses of systems that are not known.
        number_word: what a number of a row is called that is no expected one.
        list_words: the words of a report's list: one and many of what it lists, and the filter by answers.
        statistics: the statistics that compare the systems.
        number_kind: the kind of the numbers of a row that have no expected values.
        options_for: which runs take the options of statistics that those of this mode do not take, in words.
    """

    name: ClassVar[str]
    item: ClassVar[str] = "row"
    judges: ClassVar[str]
    responses: ClassVar[tuple[str, ...]] = ("candidate",)
    most_aspects: ClassVar[float] = inf
    prompt_columns: ClassVar[frozenset[str]] = frozenset()
    list_columns: ClassVar[tuple[str, ...]] = ()
    features: ClassVar[frozenset[RowFeature]]
    unnamed: ClassVar[tuple[str, ...]] = ("(none)",)
    number_word: ClassVar[str] = "score"
    list_words: ClassVar[tuple[str, str, str]] = ("judgement", "judgements", "Score")
    statistics: ClassVar[Literal["scores", "points", "preferences"]] = "scores"
    number_kind: ClassVar[Literal["integer", "preference"]] = "integer"
    options_for: ClassVar[str] = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the texts of a row in an export."""
        return ("instruction", "reference", *self.responses)

    def require(self, needed: RowFeature, where: str, advice: str) -> None:
        """Refuse a rubric whose rows do not have what is needed.

        Args:
            needed: what a row must have.
            where: the beginning of the message; what the rubric does follows.
            advice: its end.

        Raises:
            UsageError: a row of this mode does not have it.
        """
        if needed not in self.features:
            raise UsageError(f"{where} {self.judges}{advice}")

    def refuse_options(self, refused: Mapping[str, Mapping[str, object]]) -> None:
        """Refuse options of a command.

        Args:
            refused: the values of the options that rows with these statistics do not take.

        Raises:
            UsageError: one of those is given that rows of this mode do not take.
        """
        for name, value in refused.get(self.statistics, {}).items():
            if value:
                raise UsageError(f"`{name}`: {self.options_for}")

    def require_whole_rows(self, where: str) -> None:
        """Refuse a rubric whose rows have a judgement for each of their criteria, and none of their own.

        Args:
            where: the command, the option or the run that the message names.

        Raises:
            UsageError: a row of this mode has no judgement of its own.
        """
        only = "; only score, show, rank, compare, agree, export and serve can use it"
        self.require("verdict", f"{where}: its rubric", only)

    def reserves(self, name: str) -> bool:
        """Return whether an aspect with this name would conflict with another column."""
        return is_reserved(name)

    def refusal(self, aspect: Aspect) -> str | None:
        """Return in words why a rubric of this mode cannot have an aspect; None if it can."""
        return None if aspect.preference is None else "is a preference; the template shows one response"

    def prompt_rows(self, rows: Iterable[Row | Failure]) -> Iterable[Row | Failure]:
        """Return the row of each prompt; those of a row of the input follow each other."""
        return rows

    @abstractmethod
    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[T]:
        """Return the join of the outcomes of a run, whose prompts are numbered row by row.

        Args:
            aspects: the aspects of the rubric.
            prompts: the number of orders of each pair; 1 without pairs.
        """

    def row_columns(self, aspects: Mapping[str, Aspect]) -> tuple[ScoreColumn, ...]:
        """Return the numbers of a row, whose means describe a system."""
        return score_columns(aspects)

    def details(self, aspects: Mapping[str, Aspect]) -> RowDetails[Any]:
        """Return what counts what only rows of this mode have."""
        return RowDetails()

    @abstractmethod
    def mean_table(self, systems: Mapping[str, SystemCounts], columns: Sequence[ScoreColumn]) -> MeanTable:
        """Return the numbers of the systems as a table.

        Args:
            systems: the counts of each system.
            columns: the numbers of a row.
        """

    def column_names(self, columns: AnswerColumns) -> list[str]:
        """Return the columns of a row's line, in their order."""
        return list(self.join({}, 1).joined([_NOTHING]).line(columns))

    def prompts_of(self, row: Mapping[str, Any], columns: AnswerColumns) -> tuple[Outcome, ...]:
        """Return the outcomes of the prompts of a row of a table: the inverse of `RowOutcome.line`.

        Args:
            row: the row of the table, such as of an export; it can have further columns.
            columns: the columns of the rubric.

        Raises:
            ValueError: a column is missing, or has a value that it cannot have.
        """
        return (from_table(row, columns),)

    @abstractmethod
    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the Arrow types of the columns of such a line that are not texts."""

    def schema(self, columns: AnswerColumns, names: Sequence[str] | None = None) -> Any:
        """Return the Arrow schema of such lines; an additional column is text.

        Args:
            columns: the columns of the run's rubric.
            names: the columns in order; None for the columns of a line.
        """
        import pyarrow

        types, text = self.types(columns), pyarrow.string()
        return pyarrow.schema([(name, types.get(name, text)) for name in names or self.column_names(columns)])


_NOTHING = Failure(id="", key="", error="")


@dataclass(slots=True)
class ColumnMean:
    """The mean of a number, and of its expected values, over the rows that have one."""

    rows: int = 0
    total: float = 0.0
    expected_rows: int = 0
    expected_total: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean; None if no row has the number."""
        return round(self.total / self.rows, 4) if self.rows else None

    @property
    def expected(self) -> float | None:
        """The mean of the expected values; None if no row has one."""
        return round(self.expected_total / self.expected_rows, 4) if self.expected_rows else None

    @property
    def is_measured(self) -> bool:
        """Whether every row with the number has its expected value."""
        return self.rows == self.expected_rows


@dataclass(slots=True)
class SystemCounts:
    """The rows of one system.

    Attributes:
        judged: number of rows without a failure.
        failed: number of the others.
        rationales_cut: number of rationales that were cut at their limit.
        candidates_cut: number of prompts whose response was cut to fit the model's context.
        columns: the mean of each number.
    """

    judged: int = 0
    failed: int = 0
    rationales_cut: int = 0
    candidates_cut: int = 0
    columns: defaultdict[str, ColumnMean] = field(default_factory=lambda: defaultdict(ColumnMean))

    def add(self, row: RowOutcome, side: Side) -> None:
        """Count a row, and its numbers for this system."""
        for prompt in row.judged:
            self.rationales_cut += prompt.rationale_cut
            self.candidates_cut += prompt.candidate_cut > 0
        if row.error is not None:
            self.failed += 1
            return
        self.judged += 1
        for name, value in side.values.items():
            column = self.columns[name]
            column.rows += 1
            column.total += value
            if (expected := side.expected.get(name)) is not None:
                column.expected_rows += 1
                column.expected_total += expected

    def as_dict(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the counts and the means for `summary.json`; the mean of nothing is None.

        Args:
            names: the names of the numbers that every row has.
        """
        columns = {name: self.columns[name] for name in dict.fromkeys((*names, *self.columns))}
        return {
            "judged": self.judged,
            "failed": self.failed,
            "rationales_cut": self.rationales_cut,
            "candidates_cut": self.candidates_cut,
            "mean": {name: each.mean for name, each in columns.items()},
            "mean_expected": {name: each.expected for name, each in columns.items()},
        }

    def unscored(self, column: str) -> int:
        """Return the number of judged rows without this number."""
        return self.judged - self.columns[column].rows


@dataclass(frozen=True, slots=True)
class MeanTable:
    """The numbers of systems as a table.

    Attributes:
        title: what is above it.
        systems: the heading of the systems.
        rows: the heading of the numbers of rows.
        columns: the number of each system, by the heading of the column.
        unscored: the column whose missing numbers are counted; None to count none.
        tags: a second table, of the same systems: its heading and the numbers of each system in each row.
    """

    title: str
    systems: str
    rows: str
    columns: Mapping[str, Sequence[float | None]]
    unscored: str | None = None
    tags: tuple[str, Mapping[str, Sequence[float | None]]] | None = None
