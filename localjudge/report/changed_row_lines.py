"""What a comparison of two runs says of single rows: which moved most, which failed, and which are lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from localjudge.statistics.absolute_change import COVERED
from localjudge.studies.compare import Changes
from localjudge.studies.compare.moved_rows import MovedRow
from localjudge.studies.compare.rows_without_score import NoScore, RowWithoutScore
from localjudge.system.quantities import counted, in_digits

_MOST_MOVED = 3
"""The most rows that a sentence names because they changed."""
_MOST_NOISY = 4
"""The most columns whose noise stands in a sentence."""


def moved_lines(changes: Changes, asked: Collection[str] = ()) -> Iterator[str]:
    """Yield the rows that decide: those that fell most in each column that a gate asks for, or moved most.

    Args:
        changes: the changes.
        asked: the columns of the conditions; empty without a gate.
    """
    for column in dict.fromkeys(asked):
        fallen = [f"{_row_name(changes, row)} ({_numbers(row, column)})" for row in changes.fallen[column]]
        if fallen:
            yield f"Rows that fell most in {column}: {'; '.join(fallen)}."
    if asked:
        return
    moved = []
    for row in changes.moved[:_MOST_MOVED]:
        column = _most_moved_column(row)
        moved.append(f"{_row_name(changes, row)} ({column} {_numbers(row, column)})")
    if moved:
        yield f"Rows that changed most: {'; '.join(moved)}."


def _most_moved_column(row: MovedRow) -> str:
    """Return the column in which a row changed most; the first of several."""

    def size(column: str) -> float:
        old, new = row.numbers[column]
        return abs(new - old)

    return max(row.numbers, key=size)


def _row_name(changes: Changes, row: MovedRow) -> str:
    """Return the id of a row, with its system if there are several and the id does not tell which."""
    if len(changes.runs.counts.scored) == 1 or row.system in row.id:
        return row.id
    return f"{row.id} of {row.system}"


def _numbers(row: MovedRow, column: str) -> str:
    """Return how the number of a row in a column moved."""
    old, new = row.numbers[column]
    return f"{_short_number(old)} → {_short_number(new)}"


def _short_number(number: float) -> str:
    return f"{number:.2f}".removesuffix(".00")


def rows_within_noise(changes: Changes) -> Iterator[str]:
    """Yield how many rows moved no further than 95 % of rows do that are only judged again."""
    item = changes.runs.item
    columns = []
    for name, noise in changes.noise.items():
        if noise.below:
            again = f"{counted(noise.repeated, item)} of {noise.run} judged again"
            columns.append(
                f"{name}: {noise.below:,} of {noise.moved:,} that moved, by {in_digits(noise.bound)} or less "
                f"({again})"
            )
    if columns:
        yield (
            f"Single {item}s within the noise, the change that {COVERED:.0%} of {item}s do not exceed when "
            f"they are only judged again: {first_few(columns, _MOST_NOISY, between='; ')}."
        )


def lines_without_scores(changes: Changes) -> Iterator[str]:
    """Yield which rows have no score in a run, and why, and which belong to no row of the other run."""
    runs = changes.runs
    old, new = runs.names
    item = runs.item
    uncompared = runs.uncompared
    if uncompared.missing:
        total = counted(runs.rows + len(uncompared.missing), item)
        use = "left out" if runs.only_common else "at their lowest score in a gate"
        rows = _rows_by_reason(changes, uncompared.missing)
        yield f"{len(uncompared.missing):,} of {total} of {old} have no score in {new} ({use}): {rows}."
    if uncompared.failed:
        count = counted(len(uncompared.failed), item)
        rows = _rows_by_reason(changes, uncompared.failed)
        yield f"{count} of {old} failed, so nothing is compared with them: {rows}."
    if uncompared.unmatched:
        count = counted(len(uncompared.unmatched), item)
        rows = _rows_by_reason(changes, uncompared.unmatched)
        yield f"{count} of {new} failed and belong to no {item} of {old}, so they count in nothing: {rows}."
    if uncompared.only_new:
        count = counted(uncompared.only_new, item)
        yield f"{count} of {new} with a score belong to no {item} of {old}, so they count in nothing."


def why_without_score(row: RowWithoutScore, new: str) -> str:
    """Return why a row has no score; `new` is the name of NEW."""
    match row.reason:
        case NoScore.FAILED:
            return row.error
        case NoScore.FAILED_IN_NEW:
            return f"failed in {new}: {row.error}"
        case NoScore.ABSENT:
            return f"not in {new}"


def _rows_by_reason(changes: Changes, rows: Sequence[RowWithoutScore]) -> str:
    """Return the rows with each reason."""
    _, new = changes.runs.names
    ids_by_reason: dict[str, list[str]] = {}
    for row in rows:
        name = f"{row.id} of {row.system}" if changes.by_system else row.id
        ids_by_reason.setdefault(why_without_score(row, new), []).append(name)
    return "; ".join(f"{reason} (id {first_few(ids)})" for reason, ids in ids_by_reason.items())


def first_few(texts: Sequence[str], most: int = 5, *, between: str = ", ") -> str:
    """Return the first texts of a list, and how many more there are."""
    listed = between.join(texts[:most])
    if len(texts) > most:
        return f"{listed} and {len(texts) - most:,} more"
    return listed
