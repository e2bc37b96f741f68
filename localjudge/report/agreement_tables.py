"""The tables of agreement with labels of single responses; on a terminal they fit a width of 100 characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from localjudge.report.agreement_parts import alpha_lines, aspect_title
from localjudge.report.agreement_verdicts import Verdict, verdict_lines, verdicts_on
from localjudge.report.best_baseline import (
    BASELINE_COLUMNS,
    BestBaseline,
    baseline_cells,
    best_baseline,
    comparison_name,
)
from localjudge.report.nominal_tables import nominal_details, nominal_table, small_confusion_tables
from localjudge.report.tables import Cell, Cells, Findings, Table
from localjudge.statistics import EQUAL_EVERYWHERE, Estimate
from localjudge.statistics.agreement_statistics import Comparison
from localjudge.statistics.within_instructions import JUDGED, NOT_WITHIN, WithinInstructions
from localjudge.studies.agree import Agreement, AspectAgreement
from localjudge.system.quantities import counted

_IN_ORDER = (
    "In order: how often scores and labels rank two responses to one instruction the same way, ties included"
)
_OVER_CHANCE = "Over chance: how much larger the share in order is than that of the same scores in random order"


def agreement_findings(agreement: Agreement) -> Findings:
    """Return whether the judge is better than its baselines, and a table with a row for each aspect.

    One aspect alone has a row for each statistic. The details are the tables of each aspect: the scores and
    trivial baselines, also within instructions, and how often each score was given to each label.
    """
    ordered = agreement.aspects
    nominal = agreement.nominal
    ordered_verdicts = {aspect: verdicts_on(of_aspect) for aspect, of_aspect in ordered.items()}
    nominal_verdicts = {aspect: Verdict.of_labels(of_aspect) for aspect, of_aspect in nominal.items()}
    verdicts: dict[str, list[Verdict]] = dict(ordered_verdicts)
    for aspect, verdict in nominal_verdicts.items():
        verdicts[aspect] = [verdict]
    answer = list(verdict_lines(verdicts))
    answer += _blind_lines(ordered)

    has_within = any(of_aspect.within for of_aspect in ordered.values())
    main: list[Table | str] = []
    if len(ordered) == 1:
        [(aspect, of_aspect)] = ordered.items()
        main.append(_one_aspect(aspect, of_aspect))
    elif ordered:
        main.append(_ordered_aspects(ordered, ordered_verdicts))
    if has_within:
        main.append(_IN_ORDER)
    if nominal:
        main.append(nominal_table(nominal, nominal_verdicts))
    main += small_confusion_tables(nominal)

    details: list[Table | str] = []
    for aspect, of_aspect in ordered.items():
        details += _ordered_details(aspect, of_aspect)
    if has_within:
        details.append(_OVER_CHANCE)
    for aspect, of_labels in nominal.items():
        details += nominal_details(aspect, of_labels)
    return Findings(
        answer,
        main,
        details={"details of each aspect": details},
        notices=agreement.notices,
        notes=agreement_notes(agreement),
    )


def agreement_notes(agreement: Agreement) -> list[str]:
    """Return the remarks on the labels and the scores, and the aspects with labels outside the scale."""
    notes = list(agreement.input_notes)
    for aspect, of_aspect in agreement.aspects.items():
        outside = of_aspect.outside
        if outside is not None:
            lowest, highest = outside.scale
            notes.append(
                f"{aspect}: labels from {outside.lowest:g} to {outside.highest:g} are outside the scale "
                f"{lowest} to {highest}; only Spearman's correlation is defined"
            )
    return notes


def _blind_lines(aspects: Mapping[str, AspectAgreement]) -> Iterator[str]:
    """Yield in which aspects nothing shows that the judge reads the responses."""
    blind: list[str] = []
    for aspect, agreement in aspects.items():
        if agreement.within is None:
            continue
        over_chance = agreement.within.comparisons[agreement.kind].over_chance
        if _is_at_chance(over_chance):
            blind.append(f"{aspect} {over_chance.in_words()}")
    if blind:
        yield (
            "Nothing shows that this judge reads the responses: its scores order pairs no better than the same "
            f"scores in random order do, in {', '.join(blind)}."
        )


def _is_at_chance(over_chance: Estimate) -> bool:
    """Whether the interval includes chance, or the share in order is nowhere above it."""
    if over_chance.low is not None and over_chance.low <= 0:
        return True
    is_above = over_chance.value is not None and over_chance.value > 0
    return over_chance.why == EQUAL_EVERYWHERE and not is_above


def _ordered_aspects(
    aspects: Mapping[str, AspectAgreement], verdicts: Mapping[str, Sequence[Verdict]]
) -> Table:
    """Return the agreement on each aspect, beside the best baseline: within instructions, or over all rows."""
    columns = ("aspect", "rows", "in order", "Spearman", "mean abs.\nerror") + BASELINE_COLUMNS
    rows: list[Cells] = []
    for aspect, agreement in aspects.items():
        judge = agreement.comparisons[agreement.kind]
        in_order: Estimate | None = None
        if agreement.within is not None:
            in_order = agreement.within.comparisons[agreement.kind].in_order
        leading = verdicts[aspect][0]
        cells: Cells = (aspect, agreement.rows, in_order, judge.spearman, judge.mae)
        rows.append(cells + baseline_cells(leading.baseline))
    return Table("Agreement with the labels", columns, rows=rows, apart=BASELINE_COLUMNS)


_STATISTIC_ROWS = {
    "spearman": "Spearman's rank correlation",
    "mae": "mean absolute error\n(less is better)",
    "kappa": "kappa, quadratic weights",
    "exact": "exact agreement",
    "within_one": "within one",
    "bias": "bias (judge minus label)",
}
"""The statistics over all rows that have a row in the table of one aspect alone."""


def _one_aspect(aspect: str, agreement: AspectAgreement) -> Table:
    """Return a row for each statistic of an aspect: of the judge's scores and of the best baseline."""
    kinds = [kind for kind in JUDGED if kind in agreement.comparisons]
    rows: list[list[Cell]] = []
    if agreement.within is not None:
        cells: list[Cell] = ["in order"]
        for kind in kinds:
            cells.append(agreement.within.comparisons[kind].in_order)
        cells += baseline_cells(Verdict.of_within(agreement.within).baseline)
        rows.append(cells)
    for statistic, name in _STATISTIC_ROWS.items():
        estimates = [_by_statistic(agreement.comparisons[kind])[statistic] for kind in kinds]
        if all(estimate.value is None for estimate in estimates):
            continue
        cells = [name]
        for estimate in estimates:
            cells.append(None if estimate.value is None else estimate)
        cells += baseline_cells(_best_baseline_over_rows(agreement, statistic))
        rows.append(cells)
    columns = ["statistic"] + kinds
    columns += BASELINE_COLUMNS
    return Table(_title(aspect, agreement), columns, rows)


def _by_statistic(comparison: Comparison) -> dict[str, Estimate]:
    """Return the statistics over all rows by the names that `AspectAgreement.over_baselines` has for them."""
    return {
        "spearman": comparison.spearman,
        "mae": comparison.mae,
        "kappa": comparison.kappa,
        "exact": comparison.exact,
        "within_one": comparison.within_one,
        "bias": comparison.bias,
    }


def _best_baseline_over_rows(agreement: AspectAgreement, statistic: str) -> BestBaseline | None:
    """Return the best baseline by a statistic over all rows; None if none has the statistic."""
    if statistic == "kappa":  # it is 0 of one label for all rows, so that the difference is the kappa
        kappa = agreement.comparisons["integer"].kappa
        if kappa.value is None:
            return None
        return BestBaseline("any label", 0.0, difference=kappa)
    differences = agreement.over_baselines.get(statistic, {})
    values: dict[str, float | None] = {}
    for name in differences:
        values[name] = _by_statistic(agreement.comparisons[name])[statistic].value
    return best_baseline(values, differences, least=statistic == "mae")


def _title(aspect: str, agreement: AspectAgreement) -> str:
    return aspect_title(
        aspect,
        counted(agreement.rows, "row"),
        instructions=agreement.instructions,
        annotators=agreement.annotators,
    )


def _ordered_details(aspect: str, agreement: AspectAgreement) -> Iterator[Table | str]:
    """Yield all statistics of an aspect and its baselines, and how often each label had each score."""
    yield _all_statistics(aspect, agreement)
    if agreement.counts:
        yield _counts_of_integers(aspect, agreement.counts)
    if agreement.within is None:
        yield NOT_WITHIN
    else:
        yield _within_table(aspect, agreement.within, kind=agreement.kind)
    yield from alpha_lines("ordinal", agreement.alpha)


def _all_statistics(aspect: str, agreement: AspectAgreement) -> Table:
    """Return the statistics over all rows of each kind of scores and of each baseline."""
    columns = [
        "",
        "Spearman",
        "Pearson",
        "mean abs.\nerror",
        "kappa\n(quadratic)",
        "exact",
        "within\none",
        "bias",
    ]
    rows: list[Cells] = []
    for name, comparison in agreement.comparisons.items():
        cells: Cells = (
            comparison_name(name),
            comparison.spearman,
            comparison.pearson,
            comparison.mae,
            comparison.kappa,
            comparison.exact,
            comparison.within_one,
            comparison.bias,
        )
        rows.append(cells)
    return Table(_title(aspect, agreement), columns, rows)


def _counts_of_integers(aspect: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
    """Return how often the judge gives each integer to each label.

    Args:
        aspect: the aspect.
        counts: the number of labels with each value, by the judge's integer.
    """
    first_counts = next(iter(counts.values()))
    columns = ["label"]
    for integer in first_counts:
        columns.append(f"judge says\n{integer}")
    rows: list[Cells] = []
    for label, by_integer in counts.items():
        cells: Cells = (label,)
        rows.append(cells + tuple(by_integer.values()))
    return Table(f"{aspect}: how often the judge gives each integer to each label", columns, rows)


def _within_table(aspect: str, within: WithinInstructions, *, kind: str) -> Table:
    """Return the share in order of each kind of scores and of each baseline, and how far it exceeds chance.

    Args:
        aspect: the aspect.
        within: its agreement within instructions.
        kind: the judge's scores that the baselines are compared with.
    """
    instructions = counted(within.instructions, "instruction")
    pairs = counted(within.pairs, "response pair")
    difference_columns = ("over chance", f"{kind} minus\nthis row")
    rows: list[Cells] = []
    for name, comparison in within.comparisons.items():
        difference = within.over_baselines.get(name, "")
        rows.append((comparison_name(name), comparison.in_order, comparison.over_chance, difference))
    return Table(
        f"{aspect} within instructions · {instructions}, {pairs}",
        ("", "in order") + difference_columns,
        rows=rows,
        apart=difference_columns,
    )
