"""The command `sample-size`: how many instructions and labels a comparison needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.options import AsJson, print_json, print_table
from localjudge.cli.statistics_options import LabelOptions, compare_responses, labels_option
from localjudge.errors import UsageError
from localjudge.system.quantities import counted

_RESPONSES: tuple[int, ...] = (1, 2, 4, 8)
_DEVIATIONS = (0.25, 0.5, 1.0, 1.5)
"""Standard deviations of paired differences to choose from without a pilot."""


def sample_size(
    *,
    difference: Annotated[
        float, typer.Option(min=0, metavar="D", help="The smallest difference that must be found.")
    ],
    pilot: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A run of two systems or more, or one that compares two responses; several of one judge.",
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to compare.")] = None,
    power: Annotated[
        float, typer.Option(min=0.5, max=0.99, metavar="P", help="The probability to find it.")
    ] = 0.8,
    systems: Annotated[int, typer.Option(min=2, metavar="N", help="The number of systems to compare.")] = 2,
    labels: Annotated[
        list[str] | None, labels_option("Labels of the pilot's rows, to plan labels, too.")
    ] = None,
    people: LabelOptions,
    as_json: AsJson = False,
) -> None:
    """Compute how many instructions, responses and labels a comparison needs, from a pilot run."""
    people.require("sample-size")
    if not difference:
        raise UsageError("--difference 0: must be above 0")
    if labels and not pilot:
        raise UsageError("--labels: are of the rows of a pilot; give --pilot")
    from localjudge.analysis.matching.scores import read_scores
    from localjudge.analysis.pilot import Pilot, labels_in_words
    from localjudge.analysis.statistics.sample_size import instructions_needed
    from localjudge.cli.printed_tables import printed_table
    from localjudge.report.tables import Cells, Table

    basis = {f"standard deviation {each:g} (assumed)": each**2 for each in _DEVIATIONS}
    inflation, responses, column, notes = 1.0, _RESPONSES[:1], "a column", ["--pilot measures the deviation"]
    if pilot:
        scores = None if compare_responses(pilot, labels=labels) else read_scores(pilot)
        found = Pilot.from_pairs(pilot, by) if scores is None else Pilot.from_scores(scores, by)
        inflation, column, notes = found.inflation, found.column, [*found.notes]
        if labels and scores is not None:
            notes += labels_in_words(people.labels_of(scores), scores, column, difference)
        responses = _RESPONSES if found.variances.within is not None else responses
        basis = {
            counted(each, "response") + " of each system": found.variances.of_difference(each)
            for each in responses
        }
    tests = systems * (systems - 1) // 2
    needed = {
        name: [instructions_needed(difference, each, power, tests) for each in (variance, inflation * variance)]
        for name, variance in basis.items()
    }
    if as_json:
        print_json({"column": column, "instructions": needed, "notes": notes})
        return
    print(
        f"Instructions to find a difference of {difference:g} in {column} between {systems} systems with a "
        f"probability of {power:.0%}, each with a response of every system:"
    )
    rows: list[Cells] = [(name, *counts[: 1 + bool(pilot)]) for name, counts in needed.items()]
    columns = ("", "instructions", *["at most (95 %)"] * bool(pilot))
    print_table(printed_table(Table("", columns, rows)))
    print("\n".join(notes))
