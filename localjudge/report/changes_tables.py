"""The part of a report of two runs that says what changed from the first to the second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localjudge.analysis.by_slice import change_by_slice
from localjudge.analysis.changes import Changes, change_lines, compare_runs
from localjudge.analysis.changes.matched_runs import JudgedRows, match_runs
from localjudge.analysis.matching.scores import read_scores
from localjudge.analysis.matching.slices import read_slices
from localjudge.analysis.pairs import read_judged_pairs
from localjudge.analysis.ranking import p_value
from localjudge.errors import UsageError
from localjudge.report.report_tables import estimate_value, slice_tables, table
from localjudge.rubrics.mode import PAIRWISE
from localjudge.runs.reader import is_complete
from localjudge.runs.run_manifest import read_manifest

_MOST_VERDICTS = 3


def changes_tables(
    runs: Sequence[Path], inputs: Sequence[str], resamples: int, seed: int, by_column: str | None = None
) -> dict[str, Any] | None:
    """Return what `localjudge compare` finds in two complete runs; the reason if they cannot be compared.

    Args:
        runs: the runs of the report.
        inputs: the files to read, if the inputs of pairs were moved.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
        by_column: a column of the rows; the changes of each of its values are returned, too.

    Returns:
        None unless there are two runs, and both are complete.
    """
    if len(runs) != 2 or not all(map(is_complete, runs)):
        return None
    try:
        if read_manifest(runs[0]).rubric.mode is PAIRWISE:
            rows = JudgedRows.from_pairs(read_judged_pairs(runs, inputs))
        else:
            rows = JudgedRows.from_scores(read_scores(runs, by_run=False))
        matched = match_runs(rows)
        changes = compare_runs(matched, resamples=resamples, seed=seed)
    except UsageError as error:
        return {"leads": [f"The runs cannot be compared: {error}"], "tables": []}
    sliced = []
    if by_column:
        slices = read_slices(runs, rows.source.manifests, by_column, inputs)
        by_slice = ("", change_by_slice(matched, slices, resamples, seed))
        sliced = (slice_tables([by_slice]) or {})["tables"]
    heading = ("column", "text"), *((name, "estimate") for name in changes.names)
    columns = [*heading, ("change", "estimate"), ("p", "number"), ("equal instructions", "number")]
    means = [
        [
            name,
            {"value": each.old},
            {"value": each.new},
            estimate_value(each.difference),
            p_value(each.p),
            each.equal,
        ]
        for name, each in changes.columns.items()
    ]
    return {
        "leads": [*change_lines(changes), *(f"{note[0].upper()}{note[1:]}." for note in changes.notes)],
        "tables": [
            table(" → ".join(changes.names), columns, means),
            *sliced,
            *_verdicts(changes),
            *_judges(changes),
            *_rows(changes),
        ],
    }


def _verdicts(changes: Changes) -> list[dict[str, Any]]:
    columns = [("verdict", "text"), ("changed", "number"), ("rows", "number"), ("most often", "word")]
    rows = [
        [
            name,
            each.changed,
            each.rows,
            ", ".join(f"{was} → {now}: {count:,}" for was, now, count in each.most[:_MOST_VERDICTS]),
        ]
        for name, each in changes.verdicts.items()
    ]
    return [table("Changed verdicts", columns, rows)] * bool(rows)


def _judges(changes: Changes) -> list[dict[str, Any]]:
    if changes.judges is None:
        return []
    kappa, order = changes.judges.kappa, changes.judges.order
    columns = [("aspect", "text"), ("kappa", "estimate")]
    columns += [(f"order of {changes.judges.systems} systems (tau)", "estimate")] * bool(order)
    rows = [
        [name, estimate_value(kappa.get(name)), *[estimate_value(order.get(name))] * bool(order)]
        for name in dict.fromkeys([*kappa, *order])
    ]
    return [table("Agreement of the two judges", columns, rows)]


def _rows(changes: Changes) -> list[dict[str, Any]]:
    old, new = changes.names
    columns = [("row", "text"), ("system", "word"), ("verdicts", "word"), (f"the judge in {old}", "word")]
    columns.append((f"the judge in {new}", "word"))
    rows = [
        [
            each.id,
            each.system,
            ", ".join(f"{name} {was} → {now}" for name, (was, now) in each.verdicts.items() if was != now),
            *each.texts,
        ]
        for each in changes.moved
    ]
    return [table("Rows that changed most", columns, rows, folded=True)] * bool(rows)
