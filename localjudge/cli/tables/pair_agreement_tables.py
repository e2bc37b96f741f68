"""Terminal tables of the agreement on pairs; they fit a width of 80 characters.

Each value has its 95 % interval below it. An en dash means that a value is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.agreement.alternative_annotator import annotator_lines
from localjudge.analysis.pairs.pair_agreement import LabelledPairs, PairAgreement, PairComparison
from localjudge.analysis.statistics import UNDEFINED_SIGN
from localjudge.cli.tables.table_parts import (
    headed,
    note_lines,
    plain_table,
    spaced,
    stacked,
    title_line,
)
from localjudge.system.quantities import counted


def pair_agreement_tables(agreement: PairAgreement) -> Group:
    """Return the tables of each aspect: of all pairs, and of the subsets."""
    parts: list[RenderableType] = []
    for aspect, found in agreement.aspects.items():
        size = [(found.pairs, "pair"), (found.instructions, "instruction"), (found.annotators, "annotator")]
        text = f"{aspect} · {', '.join(counted(*each) for each in size)}"
        parts += [title_line(text, agreement.notices), _comparisons(found), *map(Text, _lines(found))]
        if subsets := agreement.subsets[aspect]:
            title = f"Accuracy in {aspect} by {agreement.by}"
            parts += [title_line(title, agreement.notices), _subsets(found, subsets)]
    return headed(agreement.notices, *spaced(parts), *note_lines(agreement.notes))


def _comparisons(found: LabelledPairs) -> Table:
    table = plain_table("", "accuracy", "without ties", "pairs", "kappa", "AUC")
    for name, comparison in found.comparisons.items():
        table.add_row(name, *_cells(comparison))
    return table


def _cells(comparison: PairComparison) -> Iterator[Text | str]:
    yield from map(stacked, (comparison.accuracy, comparison.without_ties))
    yield str(comparison.decided)
    yield from map(stacked, (comparison.kappa, comparison.auc))


def _lines(found: LabelledPairs) -> Iterator[str]:
    labels = ", ".join(f"{result} {count}" for result, count in found.labels.items())
    yield f"Labels: {labels}. If only the label or only the verdict is a tie, the accuracy counts one half."
    if found.consistency.value is not None:
        yield f"Both orders name the same response in {found.consistency.in_words()} of the pairs without a tie"
    if found.gain.value is not None:
        yield f"Gain in accuracy from averaging both orders: {found.gain.in_words()}"
    yield from annotator_lines(f"nominal {found.alpha.in_words()}" if found.alpha else "", found.annotator_test)


def _subsets(all_pairs: LabelledPairs, subsets: Mapping[str, LabelledPairs]) -> Table:
    names = [*all_pairs.comparisons]
    table = plain_table("subset", "pairs", *(name.replace(" ", "\n") for name in names))
    for subset, found in subsets.items():
        known = found.comparisons
        accuracies = (stacked(known[name].accuracy) if name in known else UNDEFINED_SIGN for name in names)
        table.add_row(subset, str(found.pairs), *accuracies)
    return table
