"""Match the rows of several runs: the same responses, judged again or by another judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.row_index import RowIndex
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.run_manifest import RunManifest


def identities(folder: Path) -> list[Identity]:
    """Return the identity of each line of a run of one response."""
    return [Identity.from_outcome(row) for row in read_row_outcomes(folder)]


def align_runs(
    runs: Sequence[Sequence[Identity]], manifests: Sequence[RunManifest], names: Sequence[str] = ()
) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
    """Match the rows of several runs.

    Args:
        runs: the identities of the rows of each run.
        manifests: the manifests of the runs.
        names: the names of the runs in the remarks; without names they say only "rows".

    Returns:
        The numbers of each row that all runs have, [rows, runs], in the order of the first run; and remarks.

    Raises:
        UsageError: rows cannot be told apart.
    """
    used = manifests[0].rubric.fields
    first = runs[0]
    further = list(runs[1:])
    if len({frozenset(manifest.rubric.fields) for manifest in manifests}) > 1:
        # Rubrics that show other texts have other groups; those of the first run still tell its rows apart.
        further = [_without_groups(run) for run in further]
    matches: list[dict[int, int]] = []
    notes: list[str] = []
    for number, run in enumerate(further, 1):
        index = RowIndex(first, used)
        matches.append(_match_run(first, run, index=index))
        if names:
            notes += index.notes(f"rows of {names[number]}", f" of {names[0]}")
        else:
            notes += index.notes("rows")
    common: list[tuple[int, ...]] = []
    for row in range(len(first)):
        if all(row in match for match in matches):
            numbers = [row] + [match[row] for match in matches]
            common.append(tuple(numbers))
    return common, tuple(dict.fromkeys(notes))


def _without_groups(run: Sequence[Identity]) -> list[Identity]:
    return [replace(identity, group=None) for identity in run]


@dataclass(frozen=True, slots=True)
class _RepeatedRow:
    """A row of another run whose rows in the first run are matched already.

    Attributes:
        row: its number.
        first_row: the number of a row in the first run that it matches.
    """

    row: int
    first_row: int


def _match_run(first: Sequence[Identity], run: Sequence[Identity], *, index: RowIndex) -> dict[int, int]:
    """Return the row of a run that is each row of the first run; no row is used twice.

    Args:
        first: the rows of the first run.
        run: the rows of the run.
        index: the index of the rows of the first run.

    Raises:
        UsageError: rows cannot be told apart.
    """
    match: dict[int, int] = {}
    repeated: list[_RepeatedRow] = []
    for row, identity in enumerate(run):
        first_rows = index.find(identity).rows
        if not first_rows:
            continue
        free = [first_row for first_row in first_rows if first_row not in match]
        if free:
            match[free[0]] = row
            continue
        last = first_rows[-1]
        earlier = run[match[last]]
        if earlier.systems != identity.systems:
            raise UsageError(
                f"{identity.where}: has the texts of {earlier.where}, of another system, and "
                f"{first[last].where} names no system; judge it again with --column system=COLUMN"
            )
        repeated.append(_RepeatedRow(row, first_rows[0]))
    return match | _match_repeated(repeated, first, match=match)


def _match_repeated(
    repeated: Sequence[_RepeatedRow], first: Sequence[Identity], *, match: Mapping[int, int]
) -> dict[int, int]:
    """Return the matches of repeated rows: rows of the first run with other ids and equal texts and systems.

    Args:
        repeated: the rows.
        first: the rows of the first run.
        match: the rows of the first run that are matched already.
    """
    if not repeated:
        return {}
    unmatched: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for first_row, identity in enumerate(first):
        if first_row not in match and identity.has_digests:
            unmatched[identity.systems, identity.content].append(first_row)
    matches: dict[int, int] = {}
    for row in repeated:
        identity = first[row.first_row]
        equal = unmatched[identity.systems, identity.content]
        if equal:
            matches[equal.pop(0)] = row.row
    return matches
