"""What a rubric judges: one response to an instruction (pointwise), two responses compared (pairwise), or one
response by each of the row's own criteria (checklist).

A row of the input becomes one or more prompts, and each prompt has an outcome, a line of `judgements.jsonl`. A
mode says how the outcomes of a row's prompts become the outcome of the row, and which columns both have. Other
modules get from here everything in which the modes differ; the commands choose the statistics of each mode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Generic, Literal, TypeVar

from localjudge.errors import UsageError
from localjudge.records import Failure, Outcome
from localjudge.records.outcome_columns import (
    AGREE,
    CRITERION_COLUMNS,
    MASS,
    ORDER_COLUMNS,
    ORDERS,
    PAIR_DIGESTS,
    PAIR_SYSTEMS,
    PREFERENCE,
    AnswerColumns,
    arrow_kinds,
    arrow_types,
    is_reserved,
    to_line,
)
from localjudge.rows.criteria import CRITERION, NUMBERED_CRITERIA
from localjudge.rows.pair_columns import PAIR, compares_responses
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.checklist_outcome import SCORE_COLUMN, ChecklistOutcome
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.rubrics.score_column import ScoreColumn

RowOutcome = Outcome | PairOutcome | ChecklistOutcome
"""The outcome of a row of the input: that of its only prompt, or those of all its prompts joined."""
T = TypeVar("T", Outcome, PairOutcome, ChecklistOutcome)


@dataclass(slots=True)
class Join(Generic[T]):
    """Joins the outcomes of each row's prompts, which arrive one by one, in any order.

    The prompts of a run are numbered from 1, row by row.

    Attributes:
        joined: returns the outcome of a row from those of its prompts.
        prompts: the number of prompts of each row; None if each criterion of the row can have one.
    """

    joined: Callable[[Sequence[Outcome]], T]
    prompts: int | None
    _waiting: dict[int, list[Outcome]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> T | None:
        """Return the outcome of the row that this prompt completes; None if another prompt is missing."""
        first, prompts = self.row_of(outcome)
        parts = self._waiting.setdefault(first, [])
        parts.append(outcome)
        return self.joined(self._waiting.pop(first)) if len(parts) == prompts else None

    def row_of(self, outcome: Outcome) -> tuple[int, int]:
        """Return the number of the first prompt of this prompt's row, and the number of the row's prompts."""
        number, asked, prompts = outcome.row or 0, outcome.criterion, self.prompts or 1
        if self.prompts is None and asked is not None:
            return number - asked.part + 1, asked.parts
        return number - (number - 1) % prompts, prompts

    def all(self, outcomes: Iterable[Outcome]) -> Iterator[T]:
        """Yield the outcome of each row as soon as those of all its prompts are there."""
        for outcome in outcomes:
            if (row := self.add(outcome)) is not None:
                yield row


class Mode(ABC, Generic[T]):
    """What a rubric judges.

    Attributes:
        name: the field's term for it.
        item: what a row of the input is called.
        judges: what a rubric of this mode does, in words.
        most_aspects: the largest number of aspects of a rubric.
        responses: the fields of the template with the responses.
        prompt_columns: the columns of a line that tell the prompts of a row apart.
        row_columns: the numbers of a row, if they are not those of its prompts.
        row_file: the file of a run with the outcomes of the rows, if they are not the lines of their prompts.
    """

    name: ClassVar[Literal["pointwise", "pairwise", "checklist"]]
    item: ClassVar[str] = "row"
    judges: ClassVar[str]
    responses: ClassVar[tuple[str, ...]] = ("candidate",)
    most_aspects: ClassVar[float] = inf
    prompt_columns: ClassVar[frozenset[str]] = frozenset()
    row_columns: ClassVar[tuple[ScoreColumn, ...]] = ()
    row_file: ClassVar[str | None] = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the texts of a row in an export."""
        return ("instruction", "reference", *self.responses)

    def reserves(self, name: str) -> bool:
        """Return whether an aspect with this name would conflict with another column."""
        return is_reserved(name)

    def refusal(self, aspect: Aspect) -> str | None:
        """Return in words why a rubric of this mode cannot have an aspect; None if it can."""
        return None if aspect.preference is None else "is a preference; the template shows one response"

    @abstractmethod
    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[T]:
        """Return the join of the outcomes of a run, whose prompts are numbered row by row.

        Args:
            aspects: the aspects of the rubric.
            prompts: the number of orders of each pair; 1 without pairs.
        """

    @abstractmethod
    def line(self, outcome: T, columns: AnswerColumns) -> dict[str, Any]:
        """Return the outcome of a row as one flat JSON object, for files of results."""

    def column_names(self, columns: AnswerColumns) -> list[str]:
        """Return the columns of such a line, in their order."""
        return list(self.line(self.join({}, 1).joined([_NOTHING]), columns))

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


class _Pointwise(Mode[Outcome]):
    name = "pointwise"
    judges = "judges one response"

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[Outcome]:
        return Join(lambda parts: parts[0], 1)

    def line(self, outcome: Outcome, columns: AnswerColumns) -> dict[str, Any]:
        return to_line(outcome, columns)

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        return arrow_types(columns)


class _Pairwise(Mode[PairOutcome]):
    name = "pairwise"
    item = "pair"
    judges = "compares two responses"
    responses = PAIR
    prompt_columns = ORDER_COLUMNS
    row_file = "pairs.jsonl"

    def reserves(self, name: str) -> bool:
        taken = {*PAIR_SYSTEMS, *PAIR_DIGESTS, *self.texts}
        return super().reserves(name) or name in taken or name.endswith((PREFERENCE, AGREE, *ORDERS))

    def refusal(self, aspect: Aspect) -> str | None:
        return "is not a preference; the template shows two responses" if aspect.preference is None else None

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[PairOutcome]:
        return Join(lambda parts: PairOutcome.from_orders(parts, aspects), prompts)

    def line(self, outcome: PairOutcome, columns: AnswerColumns) -> dict[str, Any]:
        return outcome.line(columns)

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        import pyarrow

        types = {aspect + AGREE: pyarrow.bool_() for aspect in columns.aspects}
        names = [aspect + suffix for aspect in columns.aspects for suffix in (PREFERENCE, MASS)]
        return types | dict.fromkeys(names, pyarrow.float64())


class _Checklist(Mode[ChecklistOutcome]):
    name = "checklist"
    judges = "checks one response by criteria of the row"
    most_aspects = 1
    prompt_columns = CRITERION_COLUMNS
    row_columns = (SCORE_COLUMN,)
    row_file = "checklists.jsonl"

    def reserves(self, name: str) -> bool:
        own = self.column_names(AnswerColumns({}))
        return super().reserves(name) or name in {*CRITERION_COLUMNS, *own, "name", "probability"}

    def refusal(self, aspect: Aspect) -> str | None:
        unordered = "has no order, so it earns no points; give ordered = true"
        return super().refusal(aspect) or (unordered if aspect.numbers is None else None)

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[ChecklistOutcome]:
        return Join(lambda parts: ChecklistOutcome.from_prompts(parts, aspects), None)

    def line(self, outcome: ChecklistOutcome, columns: AnswerColumns) -> dict[str, Any]:
        return outcome.line(columns)

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        import pyarrow

        text, real = pyarrow.string(), pyarrow.float64()
        ((aspect, kind),) = columns.aspects.items()
        asked = {"criterion": text, "name": text, "points": real, "tags": pyarrow.list_(text)}
        asked |= {aspect: arrow_kinds()[kind], "probability": real, aspect + MASS: real, "error": text}
        asked |= dict.fromkeys((*columns.texts, "key"), text)
        types = dict.fromkeys(("score", "score_expected", "score_low", "score_high"), real)
        scores = {"tag": text, "score": real, "score_expected": real}
        lists = {"criteria": asked, "tags": scores}
        types |= {name: pyarrow.list_(pyarrow.struct(each)) for name, each in lists.items()}
        return types | {"criteria_judged": pyarrow.int64()}


_NOTHING = Failure(id="", key="", error="")
POINTWISE, PAIRWISE, CHECKLIST = _Pointwise(), _Pairwise(), _Checklist()


def refuse_criteria(mode: Mode[Any], where: str) -> None:
    """Refuse a rubric that checks criteria of the row, for an operation that needs one judgement for each row.

    Args:
        mode: the mode of the rubric.
        where: the command, the option or the run that the message names.

    Raises:
        UsageError: the mode is `CHECKLIST`.
    """
    if mode is CHECKLIST:
        raise UsageError(
            f"{where}: its rubric {mode.judges}; only score, show, rank, compare, agree, export and serve can "
            "use it"
        )


def mode_of(used: Iterable[str]) -> Mode[Any]:
    """Return the mode of a rubric whose template uses these fields."""
    used = list(used)
    checks = not {CRITERION, NUMBERED_CRITERIA}.isdisjoint(used)
    return PAIRWISE if compares_responses(used) else CHECKLIST if checks else POINTWISE
