"""Tables of a run: the numbers of its systems, and a repetition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localjudge.report.tables import Cells, Table
from localjudge.runs.repeat import Repetition
from localjudge.runs.summary import Summary


def summary_tables(summary: Summary) -> Iterator[Table | str]:
    """Yield the numbers of the systems, one system in each row, and what only rows of their mode have."""
    systems = {name or "(none)": counts for name, counts in summary.by_system().items()}
    found = summary.rubric.mode.mean_table(systems, summary.rubric.row_columns)
    counts = {found.rows: [each.judged for each in systems.values()]}
    if any(each.failed for each in systems.values()):
        counts["failed"] = [each.failed for each in systems.values()]
    if found.unscored and any(each.unscored(found.unscored) for each in systems.values()):
        counts["without score"] = [each.unscored(found.unscored) for each in systems.values()]
    columns: dict[str, Sequence[float | None]] = {**found.columns, **counts}
    if systems:
        rows: list[Cells] = [*zip(systems, *columns.values(), strict=True)]
        yield Table(found.title, (found.systems, *columns), rows)
    if found.tags and found.tags[1]:
        heading, tags = found.tags
        of_tags = [(tag, *means) for tag, means in tags.items()]
        yield Table("The same, of the criteria with each tag", (heading, *systems), of_tags)
    if lines := [*summary.signs.details.lines()]:
        yield "\n".join(lines)


def repetition_table(repetition: Repetition) -> Table:
    """Return how many scores of each aspect changed."""
    totals = {"any score": repetition.changed_rows, "rationale": repetition.changed_rationales}
    rows = [
        (name, count, f"{count / repetition.rows:.1%}")
        for name, count in {**repetition.changed, **totals}.items()
    ]
    return Table("", ("aspect", "changed", f"of {repetition.rows}"), rows)
