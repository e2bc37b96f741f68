"""The judged rows of runs as columns of numbers: scores of responses, or the judge's verdicts on pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats, RowArrays
from localjudge.errors import UsageError
from localjudge.matching.row_numbers import RowNumbers
from localjudge.matching.row_selection import RowSelection
from localjudge.matching.run_rows import RunRows, common_rubric, read_judged_rows
from localjudge.matching.scores import RowTags, Scores
from localjudge.matching.system_names import UNNAMED
from localjudge.modes import pair_preference as kinds
from localjudge.modes.row_outcome import EXPECTED, LOWEST, MOST_TAGS, TAG, VALUE, RowOutcome
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import refuse_single
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.system.quantities import counted
from localjudge.system.steps import Report, no_progress

Criteria = Literal["joined", "split"]
"""How many rows a row with criteria is: one, with the score of its criteria, or one for each criterion."""


@dataclass(frozen=True, slots=True)
class PairVerdicts(RowArrays):
    """The judge's verdicts on n pairs in one aspect. All values of a pair that failed are NaN.

    Attributes:
        preference: the probability that the first response is better, a tie counting half: of both orders
            averaged, and of each order, [n, 3]; NaN for an order that was not judged.
        result: the verdict by the same columns, a number of `RESULTS`. That of both orders is the pair's, or
            the most probable result of both averaged if the aspect has no label for a tie.
        shown_first: the probability that the response shown first is better, in the input's order and in the
            reverse, [n, 2]; NaN for an order that was not judged.
        same_response: 1 if both orders name the same response, 0 if they name different ones, [n]; NaN if an
            order says a tie or was not judged.
    """

    preference: Floats
    result: Floats
    shown_first: Floats
    same_response: Floats

    @classmethod
    def from_numbers(cls, numbers: RowNumbers, aspect: str) -> PairVerdicts:
        """Return the verdicts on all pairs whose numbers were read."""
        return cls(
            preference=numbers.table((VALUE,) + kinds.ORDER_PREFERENCES, [aspect]),
            result=numbers.table((kinds.RESULT,) + kinds.ORDER_RESULTS, [aspect]),
            shown_first=numbers.table([kinds.SHOWN_IN_ORDER, kinds.SHOWN_IN_REVERSE], [aspect]),
            same_response=numbers.column(kinds.SAME_RESPONSE, aspect),
        )


@dataclass(frozen=True, slots=True)
class JudgedPairs(RunRows):
    """The n judged pairs of one or more runs. No value is NaN, unless it is said here.

    Attributes:
        columns: the other columns of the row of each pair.
        aspects: the verdicts in each aspect.
        failed: number of pairs that could not be judged, which are in `unscored`.
    """

    columns: Sequence[Mapping[str, Any]]
    aspects: Mapping[str, PairVerdicts]
    failed: int
    unscored: RunRows

    @property
    def systems(self) -> list[tuple[str | None, ...]]:
        """The systems of the first and the second response of each pair, as its run calls them."""
        return [identity.systems for identity in self.identities]

    @property
    def manifest(self) -> RunManifest:
        """The manifest of the first run."""
        return self.manifests[0]

    @property
    def orders(self) -> int:
        """The number of orders in which each pair was judged."""
        return self.manifest.orders


def read_judged(
    folders: Sequence[Path],
    *,
    by_run: bool = True,
    report: Report = no_progress,
    criteria: Criteria | None = None,
    tag: str | None = None,
    where: RowSelection | None = None,
) -> Scores | JudgedPairs:
    """Return what statistics compute with: the verdicts of runs of pairs, or the scores of other runs.

    The arguments are those of `read_scores`.
    """
    if read_manifest(folders[0]).rubric.mode.pairs is not None:
        return read_judged_pairs(folders, report=report, where=where)
    return read_scores(folders, by_run=by_run, report=report, criteria=criteria, tag=tag, where=where)


def read_judged_pairs(
    folders: Sequence[Path], *, report: Report = no_progress, where: RowSelection | None = None
) -> JudgedPairs:
    """Return the judged pairs of runs.

    Args:
        folders: run directories with the same aspects.
        report: receives the number of rows that were read, and of all lines.
        where: the rows that count; by default all.

    Raises:
        UsageError: a run compares no responses, the aspects differ, or no pair was judged.
    """
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        refuse_single(folder, manifest.rubric)
    common_rubric(folders, manifests)
    columns = _PairColumns()
    rows, numbers = read_judged_rows(
        folders, manifests, numbers_of=columns.numbers_of, report=report, where=where
    )
    return pairs_of(rows, numbers, columns=columns.of_pairs)


class _PairColumns:
    """Keeps the other columns of each pair while its numbers are read."""

    def __init__(self) -> None:
        self.of_pairs: list[Mapping[str, Any]] = []

    def numbers_of(self, run: int, pair: RowOutcome) -> Iterable[tuple[str, str, float]]:
        """Return the numbers of a pair, and keep its columns."""
        self.of_pairs.append(pair.first.columns)
        return pair.numbers()


def pairs_of(rows: RunRows, numbers: RowNumbers, columns: Sequence[Mapping[str, Any]] = ()) -> JudgedPairs:
    """Return the judged pairs among rows that were read.

    Args:
        rows: the pairs.
        numbers: their numbers.
        columns: the other columns of each; empty if they are not needed.

    Raises:
        UsageError: no pair was judged.
    """
    judged = rows.judged
    if not len(judged):
        raise UsageError(f"{rows.where}: no pair was judged")
    columns_of_judged: list[Mapping[str, Any]] = []
    if columns:
        columns_of_judged = [columns[row] for row in judged.tolist()]
    verdicts = {}
    for aspect in rows.manifests[0].rubric.aspects:
        verdicts[aspect] = PairVerdicts.from_numbers(numbers, aspect).take(judged)
    return JudgedPairs(**rows.with_scores(judged), columns=columns_of_judged, aspects=verdicts)


def read_scores(
    folders: Sequence[Path],
    *,
    by_run: bool = True,
    report: Report = no_progress,
    criteria: Criteria | None = None,
    tag: str | None = None,
    where: RowSelection | None = None,
) -> Scores:
    """Return the scores of these runs in one `Scores`.

    Args:
        folders: run directories with the same aspects and scale.
        by_run: name the systems of several runs by `SystemNames`; otherwise, a name is one system in all runs.
        report: receives the number of rows that were read, and of all lines.
        criteria: how many rows a row with criteria is; None to refuse runs of such rows.
        tag: the tag whose criteria decide the score of a row with criteria; None or "score" for all criteria.
        where: the rows that count; by default all.

    Raises:
        UsageError: a folder is not a run, compares responses or has no judgement, the runs' aspects or scales
            differ, or no criterion has the tag.
    """
    manifests = [read_manifest(folder) for folder in folders]
    if criteria is None:
        require_aspects(folders, manifests)
    else:
        require_one_response(folders, manifests)
    has_criteria = common_rubric(folders, manifests).mode.criteria is not None
    is_split = has_criteria and criteria == "split"
    rows, numbers = read_judged_rows(folders, manifests, report=report, by_criterion=is_split, where=where)
    return scores_of(rows, numbers, by_run=by_run, is_split=is_split, tag=tag)


def scores_of(
    rows: RunRows, numbers: RowNumbers, *, by_run: bool = True, is_split: bool = False, tag: str | None = None
) -> Scores:
    """Return the scores of rows that were read.

    Args:
        rows: the rows.
        numbers: their numbers.
        by_run: as for `read_scores`.
        is_split: whether a row with criteria was read as one for each.
        tag: as for `read_scores`.

    Raises:
        UsageError: no row has scores, or no criterion has the tag.
    """
    rubric = rows.manifests[0].rubric
    if rubric.mode.criteria is not None and not is_split:
        total = rubric.mode.criteria.score.name
        return _scores_of_criteria(rows, numbers, total=total, by_run=by_run, tag=tag)
    columns = rubric.score_columns
    names = [column.name for column in columns]
    scores = _scores(rows, numbers, columns=columns, blocks=[names], by_run=by_run)
    if not is_split:
        return scores
    note = "each criterion counts as one row; within an instruction, its criteria are compared, too"
    return replace(scores, notes=(note,))


_ADVICE = "; give runs that judge one response by aspects (agree and rank take others, too)"


def require_aspects(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
    """Check that the rows of all runs have one response with a value in each aspect.

    Args:
        folders: the run directories.
        manifests: their manifests.

    Raises:
        UsageError: the rows of a run compare two responses, or have criteria of their own.
    """
    for folder, manifest in zip(folders, manifests, strict=True):
        manifest.rubric.mode.require_aspects(f"{folder}:", _ADVICE)


def require_one_response(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> None:
    """Check that the rows of all runs have one response; the arguments are those of `require_aspects`.

    Raises:
        UsageError: the rows of a run compare two responses: their numbers are not scores of a system.
    """
    for folder, manifest in zip(folders, manifests, strict=True):
        manifest.rubric.mode.require_one_response(f"{folder}:", _ADVICE)


def _scores_of_criteria(
    rows: RunRows, numbers: RowNumbers, *, total: str, by_run: bool, tag: str | None
) -> Scores:
    """Return the scores of rows in one column: of all their criteria, or of those with a tag.

    Args:
        rows: the rows.
        numbers: their numbers.
        total: the name of the score of all criteria.
        by_run: as for `read_scores`.
        tag: as for `read_scores`.

    Raises:
        UsageError: no row has scores, or no criterion has the tag.
    """
    rows_by_tag = _rows_by_tag(total, numbers)
    name = tag or total
    if name != total and name not in rows_by_tag:
        names = ", ".join([total] + list(rows_by_tag))
        raise UsageError(f"`by` {tag}: no criterion has this tag; give one of {names}")
    number_name = total if name == total else TAG + name
    scores = _scores_in_one_column(rows, numbers, column=name, names=[number_name], by_run=by_run)
    return replace(
        scores,
        notes=_notes_on_criteria(scores, rows),
        by_tag=_scores_by_tag(rows, numbers, total=total, rows_by_tag=rows_by_tag),
    )


def _rows_by_tag(total: str, numbers: RowNumbers) -> dict[str, int]:
    """Return the number of rows with a score for each tag, the most frequent tag first.

    Args:
        total: the name of the score of all criteria.
        numbers: the numbers of the rows.
    """
    counts: dict[str, int] = {}
    for name in numbers.names(LOWEST):
        if name != total:
            counts[name.removeprefix(TAG)] = numbers.count(VALUE, name)
    tags = sorted(counts, key=lambda tag: -counts[tag])
    return {tag: counts[tag] for tag in tags}


def _scores_in_one_column(
    rows: RunRows, numbers: RowNumbers, *, column: str, names: Sequence[str], by_run: bool
) -> Scores:
    """Return the scores of criteria in one column.

    Args:
        rows: the rows.
        numbers: their numbers.
        column: the name of the column.
        names: the names of the numbers that are scores; those of each follow each other.
        by_run: as for `read_scores`.
    """
    lowest = floor(min(np.nanmin(numbers.column(LOWEST, name)) for name in names))
    score_column = ScoreColumn(column, column, numbers={"lowest": lowest, "highest": 1}, weight=1.0)
    scores = _scores(rows, numbers, columns=(score_column,), blocks=[[name] for name in names], by_run=by_run)
    lowest_of_scored = []
    for name in names:
        has_score = np.isfinite(numbers.column(VALUE, name))
        lowest_of_scored.append(numbers.column(LOWEST, name)[has_score])
    return replace(scores, lowest=np.concatenate(lowest_of_scored))


def _notes_on_criteria(scores: Scores, rows: RunRows) -> tuple[str, ...]:
    """Return the remarks on the scores of criteria.

    Args:
        scores: the scores.
        rows: all rows.
    """
    notes = []
    without_score = len(rows.judged) - len(scores.ids)
    if without_score:
        count = counted(without_score, "row")
        notes.append(f"{count} without positive points among these criteria have no score")
    sums_of_systems = np.bincount(scores.system, scores.integer[:, 0])
    if (sums_of_systems < 0).any():
        notes.append("means are not clipped here; show clips them to 0 to 1, as HealthBench does")
    return tuple(notes)


def _scores_by_tag(
    rows: RunRows, numbers: RowNumbers, *, total: str, rows_by_tag: Mapping[str, int]
) -> tuple[Scores, RowTags] | None:
    """Return the scores of the criteria with each of the most frequent tags, and their tags; None without any.

    Args:
        rows: the rows.
        numbers: their numbers.
        total: the name of the score of all criteria.
        rows_by_tag: the number of rows with a score for each tag, the most frequent tag first.
    """
    tags = [tag for tag, count in rows_by_tag.items() if count]
    shown = tags[:MOST_TAGS]
    if not shown:
        return None
    heading = "tag"
    if len(tags) > MOST_TAGS:
        heading = f"tag ({len(tags) - MOST_TAGS} more)"
    scores = _scores_in_one_column(rows, numbers, column=total, names=[TAG + tag for tag in shown], by_run=True)
    tag_of_row = np.repeat(np.arange(len(shown)), [rows_by_tag[tag] for tag in shown])
    return scores, RowTags(heading, tuple(shown), of_row=tag_of_row)


@dataclass(frozen=True, slots=True)
class _ScoredRows:
    """The m rows that have a number in each of C columns.

    Attributes:
        rows: their numbers, [m].
        values: their numbers in the columns, [m, C].
        expected: the means of these under the judge's probabilities, [m, C]; NaN where they are not known.
    """

    rows: NDArray[np.intp]
    values: Floats
    expected: Floats

    @classmethod
    def from_numbers(cls, numbers: RowNumbers, columns: Sequence[str]) -> _ScoredRows:
        """Return the rows that have a number in each of these columns."""
        values = numbers.table([VALUE], columns)
        expected = numbers.table([EXPECTED], columns)
        rows = np.flatnonzero(np.isfinite(values).all(axis=1))
        return cls(rows, values=values[rows], expected=expected[rows])


def _scores(
    rows: RunRows,
    numbers: RowNumbers,
    *,
    columns: tuple[ScoreColumn, ...],
    blocks: Sequence[Sequence[str]],
    by_run: bool,
) -> Scores:
    """Return the scores of the rows that have all numbers of a block; those of each block follow each other.

    Args:
        rows: the rows.
        numbers: their numbers.
        columns: the C columns.
        blocks: the names of the C numbers of each block.
        by_run: as for `read_scores`.

    Raises:
        UsageError: no row has scores.
    """
    scored_blocks = [_ScoredRows.from_numbers(numbers, names) for names in blocks]
    scored = np.concatenate([block.rows for block in scored_blocks])
    if not len(scored):
        raise UsageError(f"{rows.where}: no row was judged")
    values = np.concatenate([block.values for block in scored_blocks])
    expected = np.concatenate([block.expected for block in scored_blocks])
    has_expected = np.all(np.isfinite(expected), axis=0)
    without_expected = [
        column.name for column, has in zip(columns, has_expected.tolist(), strict=True) if not has
    ]
    system_of_row = _systems(rows, by_run=by_run)
    systems = [system_of_row[row] for row in scored.tolist()]
    in_order = sorted(set(systems), key=lambda name: (name == UNNAMED, name))
    number_of_system = {name: number for number, name in enumerate(in_order)}
    notices = rows.notices
    if by_run:
        _, remarks = rows.names.names()
        notices += remarks
    return Scores(
        **rows.with_scores(scored),
        columns=columns,
        systems=tuple(in_order),
        system=np.array([number_of_system[name] for name in systems], dtype=np.int32),
        integer=values,
        expected=np.where(has_expected, expected, values) if has_expected.any() else None,
        without_expected=frozenset(without_expected),
        notices=notices,
    )


def _systems(rows: RunRows, *, by_run: bool) -> list[str]:
    """Return the name of the system of each row.

    Args:
        rows: the rows, of one response each.
        by_run: as for `read_scores`.
    """
    if by_run:
        return [name for (name,) in rows.system_names([UNNAMED])]
    return [identity.systems[0] or UNNAMED for identity in rows.identities]
