"""The tables of agreement on aspects whose labels have no order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from localjudge.report.agreement_parts import alpha_lines, aspect_title
from localjudge.report.agreement_verdicts import Verdict
from localjudge.report.best_baseline import (
    BASELINE_COLUMNS,
    DIFFERENCE_COLUMN,
    baseline_cells,
    comparison_name,
)
from localjudge.report.tables import Cells, Table
from localjudge.studies.nominal_agreement import NominalAgreement
from localjudge.system.quantities import counted

_MOST_LABELS = 6
"""The most labels whose confusion matrix stands on the first screen."""


def nominal_table(aspects: Mapping[str, NominalAgreement], verdicts: Mapping[str, Verdict]) -> Table:
    """Return the agreement on each aspect without an order, beside the best baseline."""
    columns = ("aspect", "rows", "kappa") + BASELINE_COLUMNS + ("accuracy", "of the most\nfrequent label")
    rows: list[Cells] = []
    for aspect, agreement in aspects.items():
        judge = agreement.comparisons["judge"]
        most_frequent = agreement.comparisons["most frequent"]
        cells: Cells = (aspect, agreement.rows, judge.kappa)
        cells += baseline_cells(verdicts[aspect].baseline)
        cells += (judge.accuracy, most_frequent.accuracy)
        rows.append(cells)
    title = "Agreement with the labels, aspects without an order"
    return Table(title, columns, rows=rows, apart=[DIFFERENCE_COLUMN])


def small_confusion_tables(aspects: Mapping[str, NominalAgreement]) -> Iterator[Table]:
    """Yield the confusion matrix for the first screen, if there is one aspect and it has few labels."""
    if len(aspects) != 1:
        return
    [(aspect, agreement)] = aspects.items()
    if len(agreement.labels) <= _MOST_LABELS:
        yield _confusion(aspect, agreement)


def nominal_details(aspect: str, agreement: NominalAgreement) -> Iterator[Table | str]:
    """Yield the comparisons of an aspect without an order, and the alpha of the annotators."""
    title = aspect_title(
        aspect,
        counted(agreement.rows, "row"),
        instructions=agreement.instructions,
        annotators=agreement.annotators,
    )
    rows: list[Cells] = []
    for name, comparison in agreement.comparisons.items():
        rows.append((comparison_name(name), comparison.accuracy, comparison.kappa))
    yield Table(title, ("", "accuracy", "kappa"), rows)
    yield _confusion(aspect, agreement)
    yield from alpha_lines("nominal", agreement.alpha)


def _confusion(aspect: str, agreement: NominalAgreement) -> Table:
    """Return for each label how often the judge gives it, and what it gives instead."""
    columns = ["label", "labels", "recall", "precision"]
    for label in agreement.labels:
        columns.append(f"judge says\n{label}")
    rows: list[Cells] = []
    for label, errors in agreement.by_label.items():
        cells: Cells = (label, errors.labels, errors.recall, errors.precision)
        rows.append(cells + tuple(agreement.counts[label].values()))
    return Table(f"{aspect}: each label of people", columns, rows)
