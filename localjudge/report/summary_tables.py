"""Tables of a run's summary: the mean of each number by system, and what only rows of its mode have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from localjudge.modes.mode import MeanTable, SystemCounts, TagMeans
from localjudge.report.noise_lines import noise_line
from localjudge.report.tables import Cell, Table
from localjudge.runs.summary import Summary


def summary_tables(summary: Summary) -> Iterator[Table | str]:
    """Yield the table of the systems, that of the tags of criteria, and lines below them."""
    mode = summary.rubric.mode
    counts_by_system: dict[str, SystemCounts] = {}
    for name, counts in summary.by_system().items():
        counts_by_system[name if name else "(none)"] = counts
    means = mode.mean_table(counts_by_system, summary.rubric.row_columns)
    if counts_by_system:
        yield _systems_table(means, counts_by_system)
    if means.tags is not None and means.tags.means:
        yield _tags_table(means.tags, systems=list(counts_by_system))
    lines = list(summary.signs.details.lines())
    if summary.noise is not None:
        lines.append(noise_line(summary.noise, mode))
    if lines:
        yield "\n".join(lines)


def _systems_table(means: MeanTable, counts_by_system: Mapping[str, SystemCounts]) -> Table:
    """Return a row for each system: its means, and its numbers of judged and failed rows."""
    counts_of_systems = counts_by_system.values()
    columns: dict[str, Sequence[float | None]] = dict(means.columns)
    columns[means.rows] = [counts.judged for counts in counts_of_systems]
    failed = [counts.failed for counts in counts_of_systems]
    if any(failed):
        columns["failed"] = failed
    if means.unscored is not None:
        unscored = [counts.unscored(means.unscored) for counts in counts_of_systems]
        if any(unscored):
            columns["without score"] = unscored
    rows = list(zip(counts_by_system, *columns.values(), strict=True))
    return Table(means.title, [means.systems] + list(columns), rows)


def _tags_table(tags: TagMeans, systems: Sequence[str]) -> Table:
    """Return a row for each tag, with the number of each system."""
    rows: list[list[Cell]] = []
    for tag, means_of_systems in tags.means.items():
        row: list[Cell] = [tag]
        row += means_of_systems
        rows.append(row)
    columns = [tags.heading] + list(systems)
    return Table("The same, of the criteria with each tag", columns, rows)
