"""Tables of a run: the numbers of its systems, a repetition, and what it will cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from localjudge.modes.system_counts import SystemCounts
from localjudge.report.tables import Cells, Table
from localjudge.runs.cost_estimate import CostEstimate
from localjudge.runs.repeat import Repetition
from localjudge.runs.summary import Summary
from localjudge.system.quantities import bars, file_size, hours


def summary_tables(summary: Summary) -> Iterator[Table | str]:
    """Yield the numbers of the systems, one system in each row, and what only rows of their mode have."""
    systems, rubric = _named(summary.by_system()), summary.rubric
    found = rubric.mode.mean_table(systems, rubric.row_columns)
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


def frequency_table(summary: Summary) -> Table:
    """Return the frequencies of the answers, lowest first, one system in each row."""
    systems, rubric = _named(summary.by_system() or summary.signs.details.without_systems), summary.rubric
    first, columns = rubric.mode.classes(rubric.score_columns)
    rows: list[Cells] = [
        (
            name,
            *(
                bars(counts.shares(column, classes)) if counts.judged else None
                for column, classes in columns.items()
            ),
        )
        for name, counts in systems.items()
    ]
    return Table("", (first, *columns), rows)


def _named(systems: Mapping[str | None, SystemCounts]) -> dict[str, SystemCounts]:
    return {name or "(none)": counts for name, counts in systems.items()}


def repetition_table(repetition: Repetition) -> Table:
    """Return how many scores of each aspect changed."""
    totals = {"any score": repetition.changed_rows, "rationale": repetition.changed_rationales}
    rows = [
        (name, count, f"{count / repetition.rows:.1%}")
        for name, count in {**repetition.changed, **totals}.items()
    ]
    return Table("", ("aspect", "changed", f"of {repetition.rows}"), rows)


_MEASURE = (
    "judge some rows with the engine (--limit 100): it ends with its rows/s; then --engine-arg rate=ROWS/S"
)


def cost_text(cost: CostEstimate) -> str:
    """Return the estimate, one quantity in each line."""
    context = f"the context of {cost.context:,} tokens" if cost.context else "the context"
    mean = cost.prompt_tokens / max(1, cost.rows)
    answers = cost.answer_tokens * cost.different
    found = {
        "rows": f"{cost.rows:,}, of which {cost.different:,} differ; {cost.groups:,} prefixes",
        "cannot be judged": f"{cost.failing:,}; {cost.too_long:,} rows exceed {context}",
        "prompts": f"{cost.prompt_tokens:,} tokens, {mean:,.0f} in the mean, {cost.longest:,} the longest",
        "computed": f"{cost.computed:,} of them with a prefix cache",
        "each prompt": "{:,.0f} tokens of all rows, {:,.0f} of its instruction's rows, {:,.0f} of its own, "
        "{:,.0f} of the rubric after it".format(*cost.parts),
        "answers": f"at most {answers:,} tokens, {cost.answer_tokens:,} each",
        "disk": f"{file_size(cost.disk)} while it runs; {file_size(cost.free)} are free",
        "time": f"{hours(cost.seconds)} at this rate" if cost.seconds else _MEASURE,
    }
    found |= {"slow": cost.hint} if cost.hint else {}
    return "\n".join(f"{subject:<17} {said}" for subject, said in found.items())
