"""What all modes have: the columns of their lines, the join of a row's prompts, and the counts of a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Generic, Literal, NoReturn

from localjudge.errors import UsageError
from localjudge.modes.row_outcome import Join, RowOutcome, Side, T
from localjudge.records import Failure, Outcome, Row
from localjudge.records.outcome_columns import AnswerColumns, from_table, is_reserved
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.score_column import ScoreColumn, score_columns


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """The part of a mode whose rows are pairs: two responses to one instruction.

    Attributes:
        fields: the fields of the template with the responses.
        unnamed: the names of the responses whose systems are not known.
    """

    fields: tuple[str, str]
    unnamed: tuple[str, str]


@dataclass(frozen=True, slots=True)
class RowCriteria:
    """The part of a mode whose rows have criteria of their own, each with a prompt and an answer.

    Attributes:
        score: the column of the score that a row earns by its criteria.
    """

    score: ScoreColumn


@dataclass(frozen=True, slots=True)
class NumberWords:
    """The part of a mode that names the numbers of its rows.

    Attributes:
        word: what a number that is not an expected one is called.
        kind: the kind of the numbers of rows that have no expected values.
    """

    word: str = "score"
    kind: Literal["integer", "preference"] = "integer"


@dataclass(frozen=True, slots=True)
class ListWords:
    """The words of a report's list.

    Attributes:
        one: what a line of the list is called.
        many: the same in the plural.
        answer: the label of the filter by answers.
    """

    one: str = "judgement"
    many: str = "judgements"
    answer: str = "Score"


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
        pairs: what rows have that compare two responses; None in other modes.
        criteria: what rows have that are judged by criteria of their own; None in other modes.
        number_words: what the numbers of a row are called.
        most_aspects: the largest number of aspects of a rubric.
        prompt_columns: the columns of a line that tell the prompts of a row apart.
        list_columns: the columns of a list of rows, if they are not the aspects.
        list_words: the words of a report's list.
        options_for: which runs take the options of statistics that those of this mode do not take, in words.
    """

    name: ClassVar[str]
    item: ClassVar[str] = "row"
    judges: ClassVar[str]
    pairs: ClassVar[ComparedPair | None] = None
    criteria: ClassVar[RowCriteria | None] = None
    number_words: ClassVar[NumberWords] = NumberWords()
    most_aspects: ClassVar[float] = inf
    prompt_columns: ClassVar[frozenset[str]] = frozenset()
    list_columns: ClassVar[tuple[str, ...]] = ()
    list_words: ClassVar[ListWords] = ListWords()
    options_for: ClassVar[str] = ""

    @property
    def responses(self) -> tuple[str, ...]:
        """The fields of the template with the responses."""
        if self.pairs is None:
            return ("candidate",)
        return self.pairs.fields

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The names of the responses whose systems are not known."""
        if self.pairs is None:
            return ("(none)",)
        return self.pairs.unnamed

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the texts of a row in an export."""
        return ("instruction", "reference", *self.responses)

    def require_pairs(self, where: str, advice: str = "") -> None:
        """Check that rows compare two responses.

        Args:
            where: the beginning of the message; what the rubric does follows.
            advice: its end.

        Raises:
            UsageError: they do not.
        """
        if self.pairs is None:
            self._refuse(where, advice)

    def require_criteria(self, where: str, advice: str = "") -> None:
        """Check that rows have criteria of their own; the arguments are those of `require_pairs`.

        Raises:
            UsageError: they have none.
        """
        if self.criteria is None:
            self._refuse(where, advice)

    def require_one_response(self, where: str, advice: str = "") -> None:
        """Check that rows have one response, and so a score; the arguments are those of `require_pairs`.

        Raises:
            UsageError: they have two.
        """
        if self.pairs is not None:
            self._refuse(where, advice)

    def require_aspects(self, where: str, advice: str = "") -> None:
        """Check that rows have one response and a value in each aspect; arguments as for `require_pairs`.

        Raises:
            UsageError: they compare two responses, or are judged by criteria of their own.
        """
        if self.pairs is not None or self.criteria is not None:
            self._refuse(where, advice)

    def require_whole_rows(
        self, where: str, advice: str = "; only score, show, rank, compare, agree, export and serve can use it"
    ) -> None:
        """Check that each row has a judgement of its own; the arguments are those of `require_pairs`.

        Raises:
            UsageError: only the criteria of a row have judgements.
        """
        if self.criteria is not None:
            self._refuse(where, advice)

    def _refuse(self, where: str, advice: str) -> NoReturn:
        raise UsageError(f"{where} {self.judges}{advice}")

    def refuse_options(self, options: Mapping[str, object]) -> None:
        """Refuse options of a command that rows of this mode do not take.

        Args:
            options: their values; one that was not given is None or empty.

        Raises:
            UsageError: one of them was given.
        """
        for name, value in options.items():
            if value:
                raise UsageError(f"`{name}`: {self.options_for}")

    def reserves(self, name: str) -> bool:
        """Return whether an aspect with this name would conflict with another column."""
        return is_reserved(name)

    def refusal(self, aspect: Aspect) -> str | None:
        """Return in words why a rubric of this mode cannot have an aspect; None if it can."""
        if aspect.preference is None:
            return None
        return "is a preference; the template shows one response"

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
        """Return the counter of what only rows of this mode have."""
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

        types = self.types(columns)
        if names is None:
            names = self.column_names(columns)
        return pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in names])


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
        if self.rows == 0:
            return None
        return round(self.total / self.rows, 4)

    @property
    def expected(self) -> float | None:
        """The mean of the expected values; None if no row has one."""
        if self.expected_rows == 0:
            return None
        return round(self.expected_total / self.expected_rows, 4)

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
            expected = side.expected.get(name)
            if expected is not None:
                column.expected_rows += 1
                column.expected_total += expected

    def as_dict(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the counts and the means for `summary.json`; the mean of nothing is None.

        Args:
            names: the names of the numbers that every row has.
        """
        columns = {name: ColumnMean() for name in names}
        columns.update(self.columns)
        return {
            "judged": self.judged,
            "failed": self.failed,
            "rationales_cut": self.rationales_cut,
            "candidates_cut": self.candidates_cut,
            "mean": {name: column.mean for name, column in columns.items()},
            "mean_expected": {name: column.expected for name, column in columns.items()},
        }

    def unscored(self, column: str) -> int:
        """Return the number of judged rows without this number."""
        return self.judged - self.columns[column].rows


@dataclass(frozen=True, slots=True)
class TagMeans:
    """The numbers of systems for the criteria with each tag.

    Attributes:
        heading: the heading of the tags.
        means: by tag, the number of each system.
    """

    heading: str
    means: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class MeanTable:
    """The numbers of systems as a table.

    Attributes:
        title: what is above it.
        systems: the heading of the systems.
        rows: the heading of the numbers of rows.
        columns: the number of each system, by the heading of the column.
        unscored: the column whose missing numbers are counted; None to count none.
        tags: a second table, of the same systems; None without tags.
    """

    title: str
    systems: str
    rows: str
    columns: Mapping[str, Sequence[float | None]]
    unscored: str | None = None
    tags: TagMeans | None = None
