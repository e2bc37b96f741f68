"""The tables of agreement with labels of pairs; all fit 80 characters."""

from __future__ import annotations

from collections.abc import Iterator

from localjudge.report.agreement_parts import alpha_lines, aspect_title
from localjudge.report.agreement_verdicts import Verdict, verdict_lines
from localjudge.report.best_baseline import BASELINE_COLUMNS, baseline_cells, comparison_name
from localjudge.report.tables import Cells, Findings, Table
from localjudge.studies.pair_agreement import LabelledPairs, PairAgreement
from localjudge.system.quantities import counted


def pair_agreement_findings(agreement: PairAgreement) -> Findings:
    """Return whether the judge is better than its baselines, and a table with a row for each aspect.

    The details are the tables of each aspect.
    """
    columns = ("aspect", "pairs", "accuracy", "without ties", "kappa") + BASELINE_COLUMNS
    rows: list[Cells] = []
    details: list[Table | str] = []
    verdicts: dict[str, list[Verdict]] = {}
    for aspect, pairs in agreement.aspects.items():
        verdict = Verdict.of_pairs(pairs)
        verdicts[aspect] = [verdict]
        judge = next(iter(pairs.comparisons.values()))
        cells: Cells = (aspect, pairs.pairs, judge.accuracy, judge.without_ties, judge.kappa)
        rows.append(cells + baseline_cells(verdict.baseline))
        details.append(_comparisons(aspect, pairs))
        details += _lines(pairs)
    main = Table("Agreement with the labels", columns, rows=rows, apart=BASELINE_COLUMNS)
    return Findings(
        list(verdict_lines(verdicts)),
        [main],
        details={"each order": details},
        notices=agreement.notices,
        notes=pair_agreement_notes(agreement),
    )


def pair_agreement_notes(agreement: PairAgreement) -> list[str]:
    """Return the remarks on the labels of pairs, on verdicts without a tie, and on pairs that failed."""
    notes = list(agreement.label_notes)
    if agreement.without_tie:
        notes.append(
            f"no label for a tie in {', '.join(agreement.without_tie)}: the verdict of both orders is the "
            "response with the higher averaged preference"
        )
    if agreement.failed:
        notes.append(f"pairs that could not be judged, and are left out: {agreement.failed:,}")
    return notes


def _comparisons(aspect: str, pairs: LabelledPairs) -> Table:
    """Return the statistics of the verdicts of both orders, of each order and of each baseline."""
    title = aspect_title(
        aspect,
        counted(pairs.pairs, "pair"),
        instructions=pairs.instructions,
        annotators=pairs.annotators,
    )
    rows: list[Cells] = []
    for name, comparison in pairs.comparisons.items():
        cells: Cells = (
            comparison_name(name),
            comparison.accuracy,
            comparison.without_ties,
            comparison.decided,
            comparison.kappa,
            comparison.auc,
        )
        rows.append(cells)
    return Table(title, ("", "accuracy", "without ties", "pairs", "kappa", "AUC"), rows)


def _lines(pairs: LabelledPairs) -> Iterator[str]:
    """Yield the labels, how often both orders name the same response, and the alpha of the annotators."""
    labels = ", ".join(f"{result} {count}" for result, count in pairs.labels.items())
    yield f"Labels: {labels}. If only the label or only the verdict is a tie, the accuracy counts one half."
    if pairs.consistency.value is not None:
        share = pairs.consistency.in_words()
        yield f"Both orders name the same response in {share} of the pairs where each names one"
    yield from alpha_lines("nominal", pairs.alpha)
