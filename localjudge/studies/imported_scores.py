"""Scores from elsewhere as a run: from a judge behind an API, from people, or from another program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from localjudge.errors import RowError, UsageError
from localjudge.matching.label_values import LabelColumn
from localjudge.matching.labels import columns_of
from localjudge.records import Failure, Judgement, Outcome, Row
from localjudge.records.keys import row_key, settings_digest
from localjudge.records.outcome_columns import (
    EXPECTED,
    LIKELIEST,
    MASS,
    MODEL,
    NOTICE,
    PROBABILITIES,
    RATIONALE,
)
from localjudge.rows.columns import Columns
from localjudge.rows.formats import sha256_of
from localjudge.rows.inputs import Inputs, RecordStream, find_inputs
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect, Scale
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.rubric_file import problems_of
from localjudge.rubrics.template import Template
from localjudge.runs.notices import IMPORTED, exported
from localjudge.runs.row_source import reading_records
from localjudge.runs.run_manifest import RunSettings
from localjudge.runs.summary import Summary
from localjudge.studies.imported_exports import are_exports, import_exports, of_pairs
from localjudge.studies.written_runs import write_run

T = TypeVar("T")


def import_scores(
    files: Sequence[str],
    out: Path,
    aspects: Sequence[str] | Mapping[str, Aspect] | Rubric,
    scale: tuple[int, int] = (1, 5),
    judge: str | None = None,
    mapping: Mapping[str, str] | None = None,
    columns: Columns | None = None,
) -> Summary:
    """Write the scores in files of rows as a run.

    Scores are read like labels (`label_values`); the first one of a list is used. If some
    numbers are not whole, they become the expected scores, and the nearest values the scores. A row
    that lacks a score of an aspect becomes a failure. If the files are exported runs, the new run keeps their
    notices, and, with the rubric of the run, its probabilities and the orders of its pairs
    (`localjudge.studies.imported_exports`).

    Args:
        files: rows with their scores.
        out: the run directory to create.
        aspects: the names of the aspects that were judged, or the aspects with their values, or their rubric.
        scale: the lowest and the highest score of aspects that are only named.
        judge: a name for the judge; None for "elsewhere", or for the judge that an export names.
        mapping: the aspect that a column of another name holds.
        columns: the column of each field whose column has a custom name.

    Raises:
        UsageError: a file cannot be read, a score is not a value of its aspect, or no row has
            scores.
    """
    names = find_inputs(files)
    reads_exports = not mapping and not columns and are_exports(names)
    if isinstance(aspects, Rubric):
        if reads_exports:
            return import_exports(names, out, aspects, judge)
        advice = "; give one that judges one response, or an export of its run as JSON lines or Parquet"
        aspects.mode.require_aspects(f"`rubric` {aspects.name}:", advice)
        aspects = aspects.aspects
    if reads_exports and of_pairs(names):
        raise UsageError(f"{names[0]}: is an export of pairs; give the `rubric` of the run")
    if not judge:
        judge = "elsewhere"
    if not isinstance(aspects, Mapping):
        lowest, highest = scale
        aspects = dict.fromkeys(aspects, Aspect(scale=Scale(lowest=lowest, highest=highest)))
    rubric = _rubric(aspects, judge)
    settings = RunSettings(
        engine=IMPORTED, rubric=rubric.digest, model=hashlib.sha256(judge.encode()).hexdigest()
    )
    score_columns = columns_of(rubric.aspects, mapping)
    seen = _SeenRecords.read(names, score_columns)
    if columns is None:
        columns = {}
    try:
        inputs = Inputs(names, columns, rubric.fields, label_columns=[column.name for column in score_columns])
        inputs.check()
    except UsageError as error:
        raise UsageError(_problem(names, str(error))) from None
    outcomes = _outcomes(
        inputs,
        score_columns,
        rubric=rubric,
        settings=settings_digest(settings.as_dict()),
        has_fractions=seen.has_fractions,
        names=names,
    )
    return write_run(
        out,
        outcomes,
        rubric=rubric,
        settings=settings,
        model=judge,
        inputs=[str(Path(name).resolve()) for name in names],
        columns=columns,
        readings=reading_records(names, inputs.readings),
        input_sha256=[sha256_of(name) for name in names],
        dry_run=any(notice.startswith("dry run") for notice in seen.notices),
        inherited_notices=seen.notices,
    )


def _rubric(aspects: Mapping[str, Aspect], judge: str) -> Rubric:
    """Return a rubric of these aspects.

    Raises:
        UsageError: an aspect has a name that a rubric does not allow.
    """
    try:
        return Rubric(
            name="elsewhere",
            description=f"Scores by {judge} from outside of localjudge; the template was never sent.",
            aspects=dict(aspects),
            prompt=Template(template="{$instruction}\n\n{$candidate}"),
        )
    except ValidationError as error:
        advice = "; `mapping` OURS=THEIRS reads a column of another name"
        raise UsageError(f"`aspect` {', '.join(aspects)}: {problems_of(error)}{advice}") from None


@dataclass(frozen=True, slots=True)
class _SeenRecords:
    """What the records of files have.

    Attributes:
        notices: the notices of exported runs, each once.
        has_fractions: whether some score is not a whole number.
    """

    notices: list[str]
    has_fractions: bool

    @classmethod
    def read(cls, names: Sequence[str], score_columns: Sequence[LabelColumn]) -> Self:
        """Read the records of the files.

        Raises:
            UsageError: a score is not a value of its aspect.
        """
        notices: dict[str, None] = {}  # in the order in which they are seen
        has_fractions = False
        for name in names:
            for number, record in RecordStream(name):
                if isinstance(record, RowError):
                    continue
                notices.update(dict.fromkeys(exported(record)))
                for column in score_columns:
                    values = column.read(record, f"{name}:{number}")
                    if values and _is_fraction(values[0]):
                        has_fractions = True
        return cls(list(notices), has_fractions)


def _is_fraction(value: float | None) -> bool:
    return value is not None and value != round(value)


def _outcomes(
    inputs: Inputs,
    score_columns: Sequence[LabelColumn],
    *,
    rubric: Rubric,
    settings: bytes,
    has_fractions: bool,
    names: Sequence[str],
) -> Iterator[Outcome]:
    """Yield the outcome of each row.

    Raises:
        UsageError: a score is not a value of its aspect, or no row has scores.
    """
    has_judgement = False
    for read in inputs.records():
        rows = list(read.rows)
        for index, row in enumerate(rows):
            if isinstance(row, Failure) or not isinstance(read.record, Mapping):
                assert isinstance(row, Failure)
                yield row
                continue
            scores = _RecordScores(
                record=dict(read.record) | dict(row.columns),
                row_index=index,
                rows=len(rows),
                columns=score_columns,
            )
            key = row_key(settings, row.digest)
            outcome = _outcome(row, scores, rubric=rubric, key=key, has_fractions=has_fractions)
            if isinstance(outcome, Judgement):
                has_judgement = True
            yield outcome
    if not has_judgement:
        raise UsageError(
            f"{', '.join(names)}: no row has a score of {', '.join(rubric.aspects)}; name the columns with "
            "`mapping` OURS=THEIRS"
        )


def _problem(names: Sequence[str], problem: str) -> str:
    """Return why files have no rows with their texts, and what to do."""
    compare = "compare with these labels: localjudge agree RUN --labels FILE"
    if "two responses" in problem:
        what = (
            "scores of two responses are not imported, but exports of a run with its --rubric, as JSON lines "
            "or Parquet; judge the pairs with --rubric pairwise"
        )
        return f"{', '.join(names)}: {what}, and {compare}"
    return f"{problem}; or judge the file that has the texts, and {compare}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordScores:
    """The scores of a row in its record.

    Attributes:
        record: the columns of the record and of the row.
        row_index: the index of the row among the rows of the record, from 0.
        rows: the number of these rows.
        columns: the columns of the scores.
    """

    record: Mapping[str, Any]
    row_index: int
    rows: int
    columns: Sequence[LabelColumn]

    def numbers(self, where: str) -> dict[str, float]:
        """Return the score of each aspect that has one.

        Raises:
            UsageError: a score is not a number, or the record has not one for each of its responses.
        """
        number_of = {column.target: self._number(column, where) for column in self.columns}
        return {aspect: number for aspect, number in number_of.items() if number is not None}

    def _number(self, column: LabelColumn, where: str) -> float | None:
        """Return the score of the row in a column; None without one."""
        values = column.read(self.record, where)
        if not values:
            return None
        if self.rows == 1:
            return values[0]
        if len(values) != self.rows:
            raise UsageError(
                f"{where}: has {len(values)} of {column.name!r} for {self.rows} responses; give a score for "
                "each, or a record for each response"
            )
        return values[self.row_index]


def _outcome(
    row: Row, scores: _RecordScores, *, rubric: Rubric, key: str, has_fractions: bool
) -> Judgement | Failure:
    """Return the outcome of a row with the scores in its record; expected scores, too, with fractions."""
    record = scores.record
    numbers = scores.numbers(row.source)
    common = row.identity | {"key": key}
    missing = [aspect for aspect in rubric.aspects if aspect not in numbers]
    if missing:
        return Failure(**common, error=f"{row.source}: no score of {', '.join(missing)}")
    values: dict[str, Value] = {}
    expected: dict[str, float] = {}
    for name, aspect in rubric.aspects.items():
        values[name] = _nearest_value(aspect, numbers[name], f"{row.source}: {name}")
        if aspect.numbers and has_fractions:
            expected[name] = numbers[name]
    answers = _ExportedAnswers()
    if MODEL in record and NOTICE in record:
        answers = _ExportedAnswers.read(record, rubric.aspects)
    rationale = record.get(RATIONALE)
    if not rationale:
        rationale = ""
    return Judgement(
        **common,
        texts={RATIONALE: rationale if isinstance(rationale, str) else json.dumps(rationale)},
        scores=values,
        expected=expected | answers.expected,
        probabilities=answers.probabilities,
        mass=answers.mass,
        likeliest=answers.likeliest,
        rationale_cut=False,
        prompt_tokens=0,
        output_tokens=0,
    )


def _nearest_value(aspect: Aspect, number: float, where: str) -> Value:
    """Return the value of an aspect that is nearest to a number.

    Raises:
        UsageError: the number is outside the scale.
    """
    if aspect.scale is not None and not aspect.scale.lowest <= number <= aspect.scale.highest:
        raise UsageError(
            f"{where} is {number:g}, outside the scale {aspect.scale}; give `scale` LOWEST-HIGHEST"
        )
    values = list(aspect.values.values())
    first_number = 0 if aspect.numbers is None else aspect.numbers[values[0]]
    return values[round(number) - first_number]


@dataclass(frozen=True, slots=True)
class _ExportedAnswers:
    """What an export has beside the score of each aspect; an aspect without a value is missing.

    The attributes are those of `Judgement`.
    """

    expected: dict[str, float] = field(default_factory=dict)
    probabilities: dict[str, list[float]] = field(default_factory=dict)
    mass: dict[str, float] = field(default_factory=dict)
    likeliest: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def read(cls, record: Mapping[str, Any], aspects: Mapping[str, Aspect]) -> Self:
        """Read the columns of a record.

        Only what has the type that it has in a run is taken; the values of a CSV file are texts.
        """
        probabilities = _typed(record, aspects, PROBABILITIES, list)
        return cls(
            expected=_typed(record, aspects, EXPECTED, float),
            probabilities={
                name: shares
                for name, shares in probabilities.items()
                if len(shares) == len(aspects[name].values)
            },
            mass=_typed(record, aspects, MASS, float),
            likeliest=_typed(record, aspects, LIKELIEST, bool),
        )


def _typed(record: Mapping[str, Any], aspects: Iterable[str], ending: str, value_type: type[T]) -> dict[str, T]:
    """Return the value of each aspect in the column with an ending, where it has this type."""
    values = {name: record.get(name + ending) for name in aspects}
    return {name: value for name, value in values.items() if isinstance(value, value_type)}
