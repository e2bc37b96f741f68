"""The section of a report on the agreement of a judge with labels of pairs, in the form that the page reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localjudge.analysis.pairs.pair_agreement import LabelledPairs, PairAgreement, PairComparison
from localjudge.report.report_tables import annotator_leads, estimate_value, table

_LEAD = (
    "The agreement of the judge's verdicts with the labels: of both orders averaged, and of each order alone. "
    "If only the label or only the verdict is a tie, the accuracy counts one half. Trivial judges are for "
    "comparison."
)
_COMPARED = [
    ("compared with the labels", "text"), ("accuracy", "estimate"), ("without ties", "estimate"),
    ("decided", "number"), ("kappa", "estimate"), ("AUC", "estimate"),
]  # fmt: skip
_SETS = [
    ("aspect", "text"), ("pairs", "number"), ("label a", "number"), ("tie", "number"), ("label b", "number"),
    ("same response in both orders", "estimate"),
    ("gain of averaging", "estimate"), ("Krippendorff's alpha", "estimate"),
]  # fmt: skip


def pair_agreement_section(agreements: Sequence[tuple[str, PairAgreement]]) -> dict[str, Any] | None:
    """Return the tables of the agreement of each run, by its name, with people; None without labels."""
    if not agreements:
        return None
    several = len(agreements) > 1
    compared, sets, tables, tests = [], [], [], []
    for run, agreement in agreements:
        for aspect, found in agreement.aspects.items():
            name = f"{run}, {aspect}" if several else aspect
            compared += [
                [f"{name}: {by}", *_figures(comparison)] for by, comparison in found.comparisons.items()
            ]
            tests.append((name, found.annotator_test))
            counts = [found.pairs, *found.labels.values()]
            sets.append([name, *counts, *map(estimate_value, (found.consistency, found.gain, found.alpha))])
            if subsets := agreement.subsets[aspect]:
                tables.append(_by_subset(f"Accuracy by {agreement.by}: {name}", found, subsets))
    return {
        "leads": [
            _LEAD,
            *annotator_leads(tests),
            *dict.fromkeys(note for _, each in agreements for note in each.notes),
        ],
        "tables": [
            table("Agreement on pairs", _COMPARED, compared),
            table("Labels and orders", _SETS, sets),
            *tables,
        ],
    }


def _figures(each: PairComparison) -> list[Any]:
    accuracies = map(estimate_value, (each.accuracy, each.without_ties))
    return [*accuracies, each.decided, *map(estimate_value, (each.kappa, each.auc))]


def _by_subset(caption: str, found: LabelledPairs, subsets: Mapping[str, LabelledPairs]) -> dict[str, Any]:
    names = [*found.comparisons]
    rows = [
        [
            subset,
            part.pairs,
            *(
                estimate_value(part.comparisons[name].accuracy) if name in part.comparisons else None
                for name in names
            ),
        ]
        for subset, part in subsets.items()
    ]
    columns = [("subset", "text"), ("pairs", "number"), *((name, "estimate") for name in names)]
    return table(caption, columns, rows)
