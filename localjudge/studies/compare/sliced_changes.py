"""The changes of each slice of the rows, or of each system, with the intervals and tests of all together."""

from __future__ import annotations

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.matching.scores import Slices
from localjudge.statistics import sign_test
from localjudge.statistics.resampling import cell_means, studentise
from localjudge.statistics.system_means import column_means
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL
from localjudge.studies.by_slice import Sliced, SliceRow
from localjudge.studies.compare.matched_runs import MatchedRuns
from localjudge.studies.rank import p_in_words

_NOTHING = "no row has a score in both runs"


def change_by_slice(matched: MatchedRuns, slices: Slices, resamples: int, seed: int) -> Sliced:
    """Return the change of each column in each slice; a row has the slice that OLD gives it.

    Args:
        matched: the rows of both runs.
        slices: the slices of the rows of both, those of OLD first.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    return _changes(matched, slices.column, slices.names, slices.of_row[matched.places[:, 0]], resamples, seed)


def change_by_system(matched: MatchedRuns, resamples: int, seed: int) -> Sliced:
    """Return the change of each column for each system; see `change_by_slice`."""
    return _changes(matched, "system", matched.systems, matched.system, resamples, seed)


def signs(changes: Floats) -> tuple[int, int, int]:
    """Return how many changes are above 0, below 0, and 0; NaN is none of them."""
    rose, fell = (changes > NO_DIFFERENCE).sum(), (changes < -NO_DIFFERENCE).sum()
    return int(rose), int(fell), int((np.abs(changes) <= NO_DIFFERENCE).sum())


def moved_in_words(rose: int, fell: int, instructions: int) -> str:
    """Return on how many instructions a mean rose or fell: "fell on 3 and rose on 1 of 40"."""
    moved = {"rose": rose, "fell": fell}
    said = [f"{verb} on {count:,}" for verb, count in sorted(moved.items(), key=lambda each: -each[1]) if count]
    return f"{' and '.join(said)} of {instructions:,}"


def _changes(
    matched: MatchedRuns, column: str, names: tuple[str, ...], of_cell: Integers, resamples: int, seed: int
) -> Sliced:
    """Return the changes of cells by their slices, [n]; see `change_by_slice`."""
    rows, both = matched.rows, matched.in_both
    changes, of_cell = (matched.new - matched.old)[both], of_cell[both]
    group, groups = matched.group[both], int(matched.group.max()) + 1
    each = (of_cell == place for place in range(len(names)))
    means = np.hstack([cell_means(changes[chosen], group[chosen], groups) for chosen in each])
    width = np.tile(rows.width, len(names))
    tested = studentise(column_means(means), -width, width, True, resamples, seed)
    found, p = tested.simultaneous(-width, width).estimates(), tested.adjusted()

    def said(at: int, name: str) -> str | None:
        """Return what a column did in a slice, if it is significant or has no interval."""
        rose, fell, equal = signs(means[:, at])
        if np.isfinite(p[at]):
            return (
                f"{name} {'rose' if (found[at].value or 0) > 0 else 'fell'}"
                if p[at] < SIGNIFICANCE_LEVEL
                else None
            )
        if not rose + fell:
            return None
        sign_p = min(1.0, len(found) * sign_test(rose, fell))
        return f"{name} {moved_in_words(rose, fell, rose + fell + equal)} (sign test {p_in_words(sign_p)})"

    def row(place: int, name: str) -> SliceRow:
        own = {place * len(rows.names) + at: column for at, column in enumerate(rows.names)}
        instructions = len(np.unique(group[of_cell == place]))
        moved = tuple(each for each in (said(at, column) for at, column in own.items()) if each)
        estimates = {column: found[at] for at, column in own.items()}
        return SliceRow(name, instructions, estimates, moved if instructions else (_NOTHING,))

    return Sliced(column, "changes", tuple(row(place, name) for place, name in enumerate(names)))
