"""In which cell each row of two runs is: that of its instruction and system or, of two judges, of its response.

Two runs of one judge are compared on an instruction: the rows of a system in OLD with those of the same system
in NEW, or of the one system that each run has. Two judges are compared on a response, which both have judged.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.run_alignment import align_runs
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.pair_subject import Systems
from localjudge.studies.compare.run_difference import SettingChange
from localjudge.system.quantities import counted

CellKey = Hashable | None
"""The cell of a row; None for a row whose cell is not known."""


@dataclass(frozen=True, slots=True)
class ResponseKeys:
    """The cell of each row, of equal texts in both runs, and remarks on the rows that were aligned."""

    keys: list[CellKey]
    notes: tuple[str, ...]


def keys_by_instruction(rows: ComparedRows, names: Sequence[str]) -> list[CellKey]:
    """Return the cell of each row: its instruction, and its system if a run has several.

    Args:
        rows: the rows of both runs.
        names: the names of the runs.

    Raises:
        UsageError: a run has several systems, and none of them is in both.
    """
    old_systems = _systems_of_run(rows, 0)
    new_systems = _systems_of_run(rows, 1)
    is_one_each = len(old_systems) == 1 and len(new_systems) == 1
    if not is_one_each and new_systems and old_systems.isdisjoint(new_systems):
        raise UsageError(
            f"{names[1]}: has no system of {names[0]}; compare runs of the same systems, or of one system each"
        )
    keys: list[CellKey] = []
    for group, identity in zip(rows.group.tolist(), rows.identities, strict=True):
        if group < 0:
            keys.append(None)
        elif is_one_each:
            keys.append((group, None))
        else:
            keys.append((group, identity.systems))
    return keys


def _systems_of_run(rows: ComparedRows, run: int) -> set[Systems]:
    """Return the systems of the rows of a run whose instruction is known."""
    return {rows.identities[row].systems for row in rows.rows_of(run) if rows.group[row] >= 0}


def keys_by_response(
    rows: ComparedRows, names: Sequence[str], settings: Sequence[SettingChange]
) -> ResponseKeys:
    """Return the cell of each row, of equal texts in both runs.

    Args:
        rows: the rows of both runs.
        names: the names of the runs.
        settings: the settings of the judge that differ.

    Raises:
        UsageError: NEW has another response in the place of one of OLD.
    """
    old_rows = _rows_with_texts(rows, 0)
    new_rows = _rows_with_texts(rows, 1)
    identities = [_identities(rows, old_rows), _identities(rows, new_rows)]
    aligned, notes = align_runs(identities, rows.source.manifests)
    # A row with a score that is not aligned is alone in its cell.
    keys: list[CellKey] = [(row,) if rows.has_score(row) else None for row in range(len(rows.run))]
    for cell, (old, new) in enumerate(aligned):
        keys[old_rows[old]] = cell
        keys[new_rows[new]] = cell
    left_in_old = _left_alone(rows, keys, run=0)
    left_in_new = _left_alone(rows, keys, run=1)
    replaced = left_in_old.keys() & left_in_new.keys()
    if replaced:
        judge = ", ".join(map(str, settings))
        scored = sum(map(rows.has_score, rows.rows_of(0)))
        example = left_in_old[next(iter(replaced))]
        raise UsageError(
            f"{names[1]}: the judge changed ({judge}), and so did {counted(len(replaced), 'response')} of "
            f"{scored:,} (such as {example}), so nothing tells which of them changed a score; judge the same "
            "responses with both judges, or all of them with one"
        )
    return ResponseKeys(keys, notes)


def _rows_with_texts(rows: ComparedRows, run: int) -> list[int]:
    """Return the rows of a run whose texts are known."""
    return [row for row in rows.rows_of(run) if rows.identities[row].has_digests]


def _identities(rows: ComparedRows, chosen: Sequence[int]) -> list[Identity]:
    return [rows.identities[row] for row in chosen]


def _left_alone(rows: ComparedRows, keys: Sequence[CellKey], run: int) -> dict[tuple[str | None, Systems], str]:
    """Return where each row with a score stands whose texts the other run lacks, by its id and its systems."""
    alone: dict[tuple[str | None, Systems], str] = {}
    for row in rows.rows_of(run):
        if rows.has_score(row) and keys[row] == (row,):
            identity = rows.identities[row]
            alone[identity.id, identity.systems] = identity.where
    return alone
