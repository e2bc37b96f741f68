"""The rows of two runs that are compared with nothing: lost in NEW, failed in OLD, or in NEW alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto

from localjudge.matching.identity import Identity
from localjudge.studies.compare.cell import MatchedRow
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.pair_subject import Systems


class NoScore(Enum):
    """Why a row has no score."""

    FAILED = auto()
    """It failed in its run."""
    FAILED_IN_NEW = auto()
    """It has a score in OLD and failed in NEW."""
    ABSENT = auto()
    """It has a score in OLD, and NEW has no such row."""


@dataclass(frozen=True, slots=True)
class RowWithoutScore:
    """A row without a score.

    Attributes:
        id: its id.
        system: its system; of a pair, the name of its preference.
        reason: why it has no score.
        error: why it failed; empty for a row that is absent.
    """

    id: str
    system: str
    reason: NoScore
    error: str

    @property
    def is_absent(self) -> bool:
        """Whether NEW has no such row at all."""
        return self.reason is NoScore.ABSENT


@dataclass(frozen=True, slots=True)
class UncomparedRows:
    """The rows that are compared with nothing.

    Attributes:
        missing: the rows of OLD that have a score, but none in NEW, each with the error there.
        failed: the rows of OLD that failed.
        unmatched: the rows of NEW without a score that belong to no row of OLD.
        only_new: number of rows of NEW with a score that belong to no row of OLD.
    """

    missing: tuple[RowWithoutScore, ...]
    failed: tuple[RowWithoutScore, ...]
    unmatched: tuple[RowWithoutScore, ...]
    only_new: int


def uncompared_rows(rows: ComparedRows, matched: Sequence[MatchedRow]) -> UncomparedRows:
    """Return the rows that are compared with nothing.

    Args:
        rows: the rows of both runs.
        matched: each row of OLD in a cell with its row of NEW.
    """
    unreadable = _unreadable_rows(rows, matched)
    failed = [row for row in rows.rows_of(0) if not rows.has_score(row) and rows.counts[row]]
    further = _further_rows(rows, matched, unreadable=unreadable)
    return UncomparedRows(
        missing=_missing(rows, matched, unreadable=unreadable),
        failed=tuple(_failed_row(rows, row) for row in failed),
        unmatched=tuple(_failed_row(rows, row) for row in further if not rows.has_score(row)),
        only_new=sum(map(rows.has_score, further)),
    )


def is_compared(rows: ComparedRows, row: MatchedRow) -> bool:
    """Return whether a row of OLD has a score and counts."""
    return rows.has_score(row.old) and bool(rows.counts[row.old])


def has_both_scores(rows: ComparedRows, row: MatchedRow) -> bool:
    """Return whether a row has a score in both runs."""
    return rows.has_score(row.old) and row.new is not None and rows.has_score(row.new)


def _failed_row(rows: ComparedRows, row: int) -> RowWithoutScore:
    return _row_without_score(rows, row, reason=NoScore.FAILED, error=rows.errors[row])


def _row_without_score(rows: ComparedRows, row: int, reason: NoScore, *, error: str) -> RowWithoutScore:
    return RowWithoutScore(rows.identities[row].id or "", rows.systems[row], reason=reason, error=error)


def _missing(
    rows: ComparedRows, matched: Sequence[MatchedRow], unreadable: dict[int, int]
) -> tuple[RowWithoutScore, ...]:
    """Return the rows of OLD that have a score, but none in NEW."""
    missing = []
    for row in matched:
        if not is_compared(rows, row) or has_both_scores(rows, row):
            continue
        failed = unreadable.get(row.old) if row.new is None else row.new
        if failed is None:
            lost = _row_without_score(rows, row.old, reason=NoScore.ABSENT, error="")
        else:
            lost = _row_without_score(rows, row.old, reason=NoScore.FAILED_IN_NEW, error=rows.errors[failed])
        missing.append(lost)
    return tuple(missing)


def _unreadable_rows(rows: ComparedRows, matched: Sequence[MatchedRow]) -> dict[int, int]:
    """Return the row of NEW that could not be read, for each row of OLD that it stands for.

    The instruction of a row that could not be read is not known, so it belongs to no cell. It stands for a row
    of OLD that has its id, has no row in its cell of NEW, and is not of another system. A pair is not formed if
    one of its responses cannot be read; then it is the row of this response.
    """
    unread_by_id: dict[str | None, list[int]] = defaultdict(list)
    for unread_row in rows.rows_of(1):
        if rows.group[unread_row] < 0:
            unread_by_id[rows.identities[unread_row].id].append(unread_row)
    systems: set[str | None] = set()
    for identity in rows.identities[: rows.scored]:
        systems.update(identity.systems)
    systems.discard(None)
    unreadable: dict[int, int] = {}
    for row in matched:
        if row.new is not None:
            continue
        identity = rows.identities[row.old]
        unread = _unread_row(
            rows, unread_by_id, identity=identity, other_systems=systems.difference(identity.systems)
        )
        if unread is not None:
            unreadable[row.old] = unread
    return unreadable


def _unread_row(
    rows: ComparedRows,
    unread_by_id: Mapping[str | None, Sequence[int]],
    identity: Identity,
    *,
    other_systems: Set[str | None],
) -> int | None:
    """Return the row of NEW that could not be read and stands for a row of OLD; None without one.

    Args:
        rows: the rows of both runs.
        unread_by_id: the rows of NEW that could not be read, by their ids.
        identity: what identifies the row of OLD.
        other_systems: the names of the systems that the row of OLD is not of.
    """
    if identity.id is None:
        return None
    for part in [identity.id] + identity.id.split(" vs "):
        for unread in unread_by_id.get(part, ()):
            if other_systems.isdisjoint(rows.identities[unread].systems):
                return unread
    return None


def _further_rows(rows: ComparedRows, matched: Sequence[MatchedRow], unreadable: dict[int, int]) -> list[int]:
    """Return the rows of NEW that belong to no row of OLD, nor to one that could not be read in a run."""
    in_cells = {row.new for row in matched}
    in_cells.update(unreadable.values())
    names_in_old = set()
    unread_names_in_old = set()
    for row in rows.rows_of(0):
        names_in_old.add(_name(rows, row))
        if rows.group[row] < 0:
            unread_names_in_old.add(_name(rows, row))
    further = []
    for row in rows.rows_of(1):
        same = names_in_old if rows.group[row] < 0 else unread_names_in_old
        if row not in in_cells and _name(rows, row) not in same:
            further.append(row)
    return further


def _name(rows: ComparedRows, row: int) -> tuple[str | None, Systems]:
    """Return the id and the systems of a row, by which rows that cannot be read are told apart."""
    identity = rows.identities[row]
    return identity.id, identity.systems
