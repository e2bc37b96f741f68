"""What a comparison of two judges says in sentences: which agrees better with people, and who is contrary."""

from __future__ import annotations

from collections.abc import Iterator

from localjudge.report.changed_row_lines import first_few
from localjudge.studies.compare import Changes
from localjudge.studies.compare.label_agreement import Labelled, Measure
from localjudge.studies.compare.two_judges import TwoJudges
from localjudge.system.quantities import counted

MEASURE_NAMES = {
    Measure.IN_ORDER: "share in order",
    Measure.SPEARMAN: "Spearman",
    Measure.ERROR: "mean absolute error",
    Measure.EXACT: "exact agreement",
}
"""The names of the measures of agreement with labels, for people."""


def better_judge(changes: Changes) -> str:
    """Return which of two judges agrees better with people, by all measures of each aspect together."""
    old, new = changes.runs.names
    aspects = [f"{aspect}: {_measures(labelled)}" for aspect, labelled in changes.labelled.items()]
    return f"Agreement of {new} with people, compared with that of {old}, in {'; '.join(aspects)}."


def _measures(labelled: Labelled) -> str:
    """Return in how many measures of an aspect NEW is better, worse, and not clearly different, and which."""
    by_verdict: dict[str, list[str]] = {"better": [], "worse": [], "no clear difference": [], "unknown": []}
    for measure, agreement in labelled.measures.items():
        gain = agreement.difference
        if measure is Measure.ERROR:  # of two errors, the smaller one is better
            gain = gain.negative()
        size = "by" if gain.verdict in ("better", "worse") else "difference"
        why = gain.no_interval if gain.verdict == "unknown" else ""
        text = f"{MEASURE_NAMES[measure]}, {size} {gain.size_in_words()}{why}"
        by_verdict[gain.verdict].append(text)
    total = counted(len(labelled.measures), "measure")
    parts: list[str] = []
    for verdict, measures in by_verdict.items():
        if measures:
            of_all = "" if parts else f" of {total}"
            parts.append(f"{verdict} in {len(measures)}{of_all} ({'; '.join(measures)})")
    return ", ".join(parts)


def contrary_to_people(changes: Changes) -> Iterator[str]:
    """Yield where a judge puts two systems in the opposite order of people."""
    for aspect, labelled in changes.labelled.items():
        for judge, order in labelled.order.items():
            contrary = [
                f"{pair.first} minus {pair.second} {pair.old.in_words()} by people, {pair.new.in_words()} by it"
                for pair in order.contrary
            ]
            if contrary:
                pairs = counted(len(contrary), "pair")
                listed = first_few(contrary, between="; ")
                yield f"In {aspect}, {judge} contradicts people in {pairs} of systems: {listed}."


def contrary_to_each_other(judges: TwoJudges) -> Iterator[str]:
    """Yield where two judges put two systems in opposite order."""
    for column, order in judges.order.items():
        contrary = [
            f"{pair.first} minus {pair.second} {pair.old.in_words()} → {pair.new.in_words()}"
            for pair in order.contrary
        ]
        if contrary:
            pairs = counted(len(contrary), "pair")
            listed = first_few(contrary, between="; ")
            yield f"In {column}, the judges put {pairs} of systems in opposite order: {listed}."
