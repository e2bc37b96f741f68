"""Exports of runs, imported as runs with the same numbers: probabilities, lengths, both orders of pairs.

A line of an export has what statistics compute with, and digests in place of the texts. So the new run is the
old one, without the settings of the judge.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from localjudge.errors import RowError, UsageError
from localjudge.records import Judgement, Outcome
from localjudge.records.keys import row_key, settings_digest
from localjudge.records.outcome_columns import AGREE, MODEL, NOTICE, PREFERENCE, PROBABILITIES
from localjudge.rows.formats import sha256_of
from localjudge.rows.inputs import Inputs, RecordStream
from localjudge.rows.pairs import Pairing
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import IMPORTED, exported
from localjudge.runs.reader import validity
from localjudge.runs.row_source import reading_records
from localjudge.runs.run_manifest import RunSettings
from localjudge.runs.summary import Summary
from localjudge.runs.warning_signs import WarningSigns
from localjudge.studies.written_runs import write_run

_OF_EXPORT = frozenset({"id", "status", "error", "group", "source", "columns", MODEL, NOTICE})
"""Columns of every line of an export."""


def are_exports(names: Sequence[str]) -> bool:
    """Return whether all files are exports of runs, of responses or of pairs, with typed values.

    Args:
        names: the files.
    """
    return all(_begins_with_export(name) for name in names)


def _begins_with_export(name: str) -> bool:
    """Return whether the first record of a file is a line of an export; not, if there is none."""
    for _, record in RecordStream(name):
        return _is_export(record)
    return False


def of_pairs(names: Sequence[str]) -> bool:
    """Return whether the first of these exports is of pairs."""
    _, first = next(_lines(names))
    return _is_pair(first)


def _is_pair(record: Mapping[str, Any]) -> bool:
    """Return whether a line of an export is of a pair."""
    for name in record:
        aspect = name.removesuffix(AGREE)
        if name.endswith(AGREE) and aspect + PREFERENCE in record:
            return True
    return False


def _is_export(record: object) -> bool:
    """Return whether a record is a line of an export; the values of a CSV file have no types."""
    if not isinstance(record, Mapping) or not record.keys() >= _OF_EXPORT:
        return False
    lengths = [value for name, value in record.items() if name.startswith("characters")]
    has_types = not any(isinstance(length, str) for length in lengths)
    has_answer = any(PROBABILITIES in name for name in record)
    return has_types and has_answer


def import_exports(names: Sequence[str], out: Path, rubric: Rubric, judge: str | None = None) -> Summary:
    """Write exports of a run as a run.

    Args:
        names: the files.
        out: the run directory to create.
        rubric: the rubric of the run that was exported.
        judge: a name for the judge; None for the one that the export names.

    Raises:
        UsageError: a line is not of a run by this rubric, or pairs were judged in different numbers of orders.
    """
    rubric.mode.require_whole_rows(f"`rubric` {rubric.name}:", "; import takes runs of responses or of pairs")
    lines = _ExportedLines.read(names, rubric)
    if judge is None:
        judge = lines.models.pop() if len(lines.models) == 1 else "elsewhere"
    settings = RunSettings(
        engine=IMPORTED, rubric=rubric.digest, model=hashlib.sha256(judge.encode()).hexdigest()
    )
    pairing = None
    if rubric.mode.pairs is not None:
        pairing = Pairing(orders=2 if lines.orders == 2 else 1)
    inputs: list[str] = []
    readings: list[dict[str, Any]] = []
    texts = _with_texts(names, rubric)
    if texts is not None:
        inputs = list(names)
        readings = reading_records(inputs, texts.readings)
    return write_run(
        out,
        _outcomes(names, rubric, settings_digest(settings.as_dict())),
        rubric=rubric,
        settings=settings,
        model=judge,
        inputs=[str(Path(name).resolve()) for name in inputs],
        columns={},
        pairing=pairing,
        readings=readings,
        input_sha256=[sha256_of(name) for name in inputs],
        dry_run=any(notice.startswith("dry run") for notice in lines.notices),
        # The new run finds its warning signs itself, also in a part of its rows.
        inherited_notices=[notice for notice in lines.notices if notice not in lines.signs.lines],
    )


@dataclass(slots=True)
class _ExportedLines:
    """What the lines of exports have.

    Attributes:
        signs: the warning signs in their answers.
        notices: the notices of their runs, each once.
        models: the names of their judges.
        orders: the number of prompts of each line: of pairs, that of orders in which they were judged.
    """

    signs: WarningSigns
    notices: list[str]
    models: set[str]
    orders: int

    @classmethod
    def read(cls, names: Sequence[str], rubric: Rubric) -> Self:
        """Read all lines of the files.

        Raises:
            UsageError: a line is not of a run by this rubric, or pairs were judged in different numbers of
                orders.
        """
        lines = cls(signs=WarningSigns(rubric), notices=[], models=set(), orders=1)
        numbers_of_prompts: set[int] = set()
        problem_of = validity(rubric)
        for where, record in _lines(names):
            prompts = _prompts(record, rubric, problem_of=problem_of, where=where)
            numbers_of_prompts.add(len(prompts))
            lines.notices += [notice for notice in exported(record) if notice not in lines.notices]
            lines.models.add(str(record[MODEL]))
            lines.signs.add(rubric.mode.join(rubric.aspects, len(prompts)).joined(prompts))
        if len(numbers_of_prompts) > 1:
            raise UsageError(
                f"{names[0]}: some pairs were judged in one order, some in both; import each by itself"
            )
        if numbers_of_prompts:
            lines.orders = numbers_of_prompts.pop()
        return lines


def _lines(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line of the files, and its place.

    Raises:
        UsageError: a line is not of an export.
    """
    for name in names:
        for number, record in RecordStream(name):
            where = f"{name}:{number}"
            if isinstance(record, RowError) or not _is_export(record):
                raise UsageError(f"{where}: is not a line of an export; import such files by themselves")
            line = dict(record)
            if isinstance(line["columns"], str):  # Parquet has no objects of any form
                line["columns"] = _decoded(line["columns"], where)
            yield where, line


def _decoded(columns: str, where: str) -> Any:
    """Return the other columns of a row from their JSON text.

    Raises:
        UsageError: the text is not JSON.
    """
    try:
        return json.loads(columns)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: its columns are not JSON; export the run again") from None


def _prompts(
    record: Mapping[str, Any], rubric: Rubric, *, problem_of: Callable[[Judgement], str | None], where: str
) -> tuple[Outcome, ...]:
    """Return the outcomes of the prompts of a line.

    Args:
        record: the line.
        rubric: the rubric of its run.
        problem_of: says why the rubric does not allow a judgement.
        where: the place of the line, for a message.

    Raises:
        UsageError: the line is not of a run by this rubric.
    """
    advice = "give the rubric of the run that was exported; export the run again if another version did"
    if _is_pair(record) != (rubric.mode.pairs is not None):
        what = "a pair" if _is_pair(record) else "one response"
        raise UsageError(f"{where}: is a line of {what}, and the rubric {rubric.mode.judges}; {advice}")
    try:
        prompts = rubric.mode.prompts_of(record, rubric.columns)
    except ValueError as error:
        problem = str(error).splitlines()[0]
        raise UsageError(f"{where}: {problem}; {advice}") from None
    for outcome in prompts:
        if not isinstance(outcome, Judgement):
            continue
        invalid = problem_of(outcome)
        if invalid is not None:
            raise UsageError(f"{where}: {invalid}; {advice}")
    return prompts


def _outcomes(names: Sequence[str], rubric: Rubric, settings: bytes) -> Iterator[Outcome]:
    """Yield the outcome of each prompt, with the key of the new settings.

    Raises:
        UsageError: a line is not of a run by this rubric, or its digest is damaged.
    """
    problem_of = validity(rubric)
    for where, record in _lines(names):
        for outcome in _prompts(record, rubric, problem_of=problem_of, where=where):
            if outcome.digest is None:  # of a row that could not be read
                yield outcome
                continue
            try:
                digest = bytes.fromhex(outcome.digest)
            except ValueError:
                raise UsageError(f"{where}: its digest is damaged; export the run again") from None
            yield outcome.model_copy(update={"key": row_key(settings, digest)})


def _with_texts(names: Sequence[str], rubric: Rubric) -> Inputs | None:
    """Return the files as inputs with the texts of the rows; None if they lack these."""
    try:
        inputs = Inputs(names, {}, rubric.fields, label_columns=list(rubric.aspects))
        inputs.check()
    except UsageError:
        return None
    return inputs
