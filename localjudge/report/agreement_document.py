"""The documents of `localjudge agree --json`: of scores and labels without an order, and of pairs.

`localjudge help labels` describes the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localjudge.report.agreement_tables import agreement_notes
from localjudge.report.estimate_document import estimate_document, estimate_documents
from localjudge.report.pair_agreement_tables import pair_agreement_notes
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import Comparison, NominalComparison
from localjudge.statistics.within_instructions import WithinComparison, WithinInstructions
from localjudge.studies.agree import Agreement, AspectAgreement
from localjudge.studies.nominal_agreement import LabelErrors, NominalAgreement
from localjudge.studies.pair_agreement import LabelledPairs, PairAgreement, PairComparison


def agreement_document(agreement: Agreement) -> dict[str, Any]:
    """Return the document of a judge's agreement with labels of single responses."""
    return {
        "aspects": {aspect: _aspect(of_aspect) for aspect, of_aspect in agreement.aspects.items()},
        "nominal": {aspect: _nominal(of_aspect) for aspect, of_aspect in agreement.nominal.items()},
        "notes": agreement_notes(agreement),
        "notices": list(agreement.notices),
    }


def pair_agreement_document(agreement: PairAgreement) -> dict[str, Any]:
    """Return the document of a judge's agreement with labels of pairs."""
    return {
        "aspects": {aspect: _labelled_pairs(pairs) for aspect, pairs in agreement.aspects.items()},
        "notes": pair_agreement_notes(agreement),
        "notices": list(agreement.notices),
    }


def _aspect(agreement: AspectAgreement) -> dict[str, Any]:
    """Return the agreement on an aspect with an order, or on the share of a label."""
    comparisons = {name: _comparison(comparison) for name, comparison in agreement.comparisons.items()}
    return {
        "rows": agreement.rows,
        "instructions": agreement.instructions,
        "annotators": agreement.annotators,
        "comparisons": comparisons,
        "over_baselines": _over_baselines(agreement.over_baselines),
        "within": _within(agreement.within),
        "alpha": estimate_document(agreement.alpha),
        "counts": _counts(agreement.counts),
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "spearman": estimate_document(comparison.spearman),
        "pearson": estimate_document(comparison.pearson),
        "mae": estimate_document(comparison.mae),
        "kappa": estimate_document(comparison.kappa),
        "exact": estimate_document(comparison.exact),
        "within_one": estimate_document(comparison.within_one),
        "bias": estimate_document(comparison.bias),
    }


def _over_baselines(differences: Mapping[str, Mapping[str, Estimate]]) -> dict[str, Any]:
    """Return for each statistic the judge's minus that of each baseline."""
    return {statistic: estimate_documents(baselines) for statistic, baselines in differences.items()}


def _within(within: WithinInstructions | None) -> dict[str, Any] | None:
    """Return the agreement within instructions; None if it is unknown."""
    if within is None:
        return None
    comparisons = {name: _within_comparison(comparison) for name, comparison in within.comparisons.items()}
    return {
        "instructions": within.instructions,
        "pairs": within.pairs,
        "comparisons": comparisons,
        "over_baselines": estimate_documents(within.over_baselines),
    }


def _within_comparison(comparison: WithinComparison) -> dict[str, Any]:
    return {
        "in_order": estimate_document(comparison.in_order),
        "over_chance": estimate_document(comparison.over_chance),
        "epsilon": comparison.epsilon,
    }


def _counts(counts: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return the number of labels with each value, by what the judge gave."""
    return {label: dict(of_judge) for label, of_judge in counts.items()}


def _nominal(agreement: NominalAgreement) -> dict[str, Any]:
    """Return the agreement on an aspect without an order."""
    comparisons = {name: _nominal_comparison(comparison) for name, comparison in agreement.comparisons.items()}
    return {
        "rows": agreement.rows,
        "instructions": agreement.instructions,
        "annotators": agreement.annotators,
        "labels": list(agreement.labels),
        "comparisons": comparisons,
        "over_baselines": _over_baselines(agreement.over_baselines),
        "by_label": {label: _label_errors(errors) for label, errors in agreement.by_label.items()},
        "counts": _counts(agreement.counts),
        "alpha": estimate_document(agreement.alpha),
    }


def _nominal_comparison(comparison: NominalComparison) -> dict[str, Any]:
    return {
        "accuracy": estimate_document(comparison.accuracy),
        "kappa": estimate_document(comparison.kappa),
    }


def _label_errors(errors: LabelErrors) -> dict[str, Any]:
    return {
        "labels": errors.labels,
        "recall": estimate_document(errors.recall),
        "given": errors.predicted,
        "precision": estimate_document(errors.precision),
    }


def _labelled_pairs(pairs: LabelledPairs) -> dict[str, Any]:
    """Return the agreement on the pairs in one aspect."""
    comparisons = {name: _pair_comparison(comparison) for name, comparison in pairs.comparisons.items()}
    return {
        "pairs": pairs.pairs,
        "instructions": pairs.instructions,
        "annotators": pairs.annotators,
        "labels": dict(pairs.labels),
        "comparisons": comparisons,
        "over_baselines": estimate_documents(pairs.over_baselines),
        "consistency": estimate_document(pairs.consistency),
        "alpha": estimate_document(pairs.alpha),
    }


def _pair_comparison(comparison: PairComparison) -> dict[str, Any]:
    return {
        "accuracy": estimate_document(comparison.accuracy),
        "without_ties": estimate_document(comparison.without_ties),
        "decided": comparison.decided,
        "kappa": estimate_document(comparison.kappa),
        "auc": estimate_document(comparison.auc),
    }
