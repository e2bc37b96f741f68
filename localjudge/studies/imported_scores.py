"""Scores from elsewhere as a run: from a judge behind an API, from people, or from another program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    judge = judge or "elsewhere"
    if not isinstance(aspects, Mapping):
        values = Aspect(scale=Scale(lowest=scale[0], highest=scale[1]))
        aspects = dict.fromkeys(aspects, values)
    try:
        rubric = Rubric(
            name="elsewhere",
            description=f"Scores by {judge} from outside of localjudge; the template was never sent.",
            aspects=dict(aspects),
            prompt=Template(template="{$instruction}\n\n{$candidate}"),
        )
    except ValidationError as error:
        advice = "; `mapping` OURS=THEIRS reads a column of another name"
        raise UsageError(f"`aspect` {', '.join(aspects)}: {problems_of(error)}{advice}") from None
    settings = RunSettings(
        engine=IMPORTED, rubric=rubric.digest, model=hashlib.sha256(judge.encode()).hexdigest()
    )
    wanted, notices, fractions = columns_of(rubric.aspects, mapping), dict[str, None](), False
    for name in names:
        for number, record in RecordStream(name):
            if not isinstance(record, RowError):
                notices |= dict.fromkeys(exported(record))
                first = [column.read(record, f"{name}:{number}")[:1] for column in wanted]
                fractions |= any(value is not None and value != round(value) for [value] in filter(None, first))
    digest, columns = settings_digest(settings.as_dict()), columns or {}
    try:
        inputs = Inputs(names, columns, rubric.fields, label_columns=[column.name for column in wanted])
        inputs.check()
    except UsageError as error:
        raise UsageError(_problem(names, str(error))) from None

    def outcomes() -> Iterator[Outcome]:
        judged = 0
        for read in inputs.records():
            rows = list(read.rows)
            for place, row in enumerate(rows):
                if isinstance(row, Failure) or not isinstance(read.record, Mapping):
                    assert isinstance(row, Failure)
                    yield row
                    continue
                key = row_key(digest, row.digest)
                given = _Given({**read.record, **row.columns}, place, len(rows), wanted)
                outcome = _outcome(row, given, rubric, key, fractions)
                judged += isinstance(outcome, Judgement)
                yield outcome
        if not judged:
            scored = ", ".join(rubric.aspects)
            raise UsageError(
                f"{', '.join(names)}: no row has a score of {scored}; name the columns with `mapping` "
                "OURS=THEIRS"
            )

    return write_run(
        out,
        outcomes(),
        rubric=rubric,
        settings=settings,
        model=judge,
        inputs=[str(Path(name).resolve()) for name in names],
        columns=columns,
        readings=reading_records(names, inputs.readings),
        input_sha256=[sha256_of(name) for name in names],
        dry_run=any(notice.startswith("dry run") for notice in notices),
        inherited_notices=[*notices],
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


@dataclass(frozen=True, slots=True)
class _Given:
    """The scores of a row in its record.

    Attributes:
        record: the columns of the record and of the row.
        place: the place of the row among the rows of the record, from 0.
        rows: the number of these rows.
        wanted: the columns of the scores.
    """

    record: Mapping[str, Any]
    place: int
    rows: int
    wanted: Sequence[LabelColumn]

    def scores(self, where: str) -> dict[str, list[float | None]]:
        """Return the score of each aspect, in a list; an empty one without a score.

        Raises:
            UsageError: a score is not a number, or the record has not one for each of its responses.
        """
        found = {}
        for column in self.wanted:
            values = column.read(self.record, where)
            if self.rows > 1 and values:
                if len(values) != self.rows:
                    has = f"{len(values)} of {column.name!r} for {self.rows} responses"
                    raise UsageError(
                        f"{where}: has {has}; give a score for each, or a record for each response"
                    )
                values = values[self.place :]
            found[column.target] = values[:1]
        return found


def _outcome(row: Row, given: _Given, rubric: Rubric, key: str, fractions: bool) -> Judgement | Failure:
    """Return the outcome of a row with the scores in its record; expected scores, too, with fractions."""
    record, read = given.record, given.scores(row.source)
    numbers = {aspect: value for aspect, values in read.items() for value in values if value is not None}
    common = row.identity | {"key": key}
    if missing := [aspect for aspect in rubric.aspects if aspect not in numbers]:
        return Failure(**common, error=f"{row.source}: no score of {', '.join(missing)}")
    scores: dict[str, Value] = {}
    for name, aspect in rubric.aspects.items():
        number, scale, values = numbers[name], aspect.scale, [*aspect.values.values()]
        if scale is not None and not scale.lowest <= number <= scale.highest:
            raise UsageError(
                f"{row.source}: {name} is {number:g}, outside the scale {scale}; give `scale` LOWEST-HIGHEST"
            )
        scores[name] = values[round(number) - (0 if aspect.numbers is None else aspect.numbers[values[0]])]
    judged = _from_export(record, rubric.aspects) if {MODEL, NOTICE} <= record.keys() else {}
    expected = {name: numbers[name] for name, aspect in rubric.aspects.items() if aspect.numbers and fractions}
    rationale = record.get(RATIONALE) or ""
    return Judgement(
        **common,
        texts={RATIONALE: rationale if isinstance(rationale, str) else json.dumps(rationale)},
        scores=scores,
        expected=expected | judged.get(EXPECTED, {}),
        probabilities=judged.get(PROBABILITIES, {}),
        mass=judged.get(MASS, {}),
        likeliest=judged.get(LIKELIEST, {}),
        rationale_cut=False,
        prompt_tokens=0,
        output_tokens=0,
    )


def _from_export(record: Mapping[str, Any], aspects: Mapping[str, Aspect]) -> dict[str, dict[str, Any]]:
    """Return what an export has beside the score of each aspect, by the endings of its columns.

    Only what has the type that it has in a run is taken; the values of a CSV file are texts.
    """
    types = {EXPECTED: float, PROBABILITIES: list, MASS: float, LIKELIEST: bool}
    found: dict[str, dict[str, Any]] = {}
    for ending, kind in types.items():
        values = {name: record.get(name + ending) for name in aspects}
        found[ending] = {name: value for name, value in values.items() if isinstance(value, kind)}
    shares = found[PROBABILITIES]
    found[PROBABILITIES] = {
        name: values for name, values in shares.items() if len(values) == len(aspects[name].values)
    }
    return found
