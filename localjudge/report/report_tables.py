"""The tables of a report, in the form that the page reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.analysis.agreement import Agreement
from localjudge.analysis.agreement.alternative_annotator import NO_TEST, AnnotatorTest
from localjudge.analysis.agreement.within_instructions import NOT_WITHIN, WITHIN_NOTE
from localjudge.analysis.audit.findings import Audit
from localjudge.analysis.by_slice import Sliced
from localjudge.analysis.matching.run_rows import FAILED
from localjudge.analysis.ranking import Ranking, comparison_lines
from localjudge.analysis.ranking.system_order import differences_in_words
from localjudge.analysis.statistics import Estimate
from localjudge.errors import UsageError
from localjudge.records.outcome_columns import OVERALL
from localjudge.report.judgements import Judgements
from localjudge.report.shown_values import mean_columns, mean_is_share, scale_text
from localjudge.rubrics.rubric import Rubric

_STATISTICS = {
    "pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall", "kappa": "kappa", "exact": "exact",
    "within_one": "within one", "mae": "mean abs. error", "bias": "bias",
}  # fmt: skip
_NOMINAL_STATISTICS = {"accuracy": "accuracy", "kappa": "kappa", "brier": "Brier score"}
_COMPARED = {
    "integer": "score", "expected": "expected score", "calibrated": "calibrated score",
    "length": "length only", "overlap": "word overlap only",
    "judge": "label", "most frequent": "most frequent label", "equal": "equal scores",
}  # fmt: skip


def systems_table(judgements: Judgements, rankings: Sequence[Ranking]) -> dict[str, Any]:
    """Return the table of the systems: their means and shares, and their ranks by the mean of all aspects.

    There is no rank without an ordered aspect: whether a label is good or bad is not known.
    """
    index_of = {label: index for index, label in enumerate(judgements.series)}
    failures = judgements.columns.series[(judgements.columns.flags & FAILED) > 0]
    failed = np.bincount(failures, minlength=len(index_of)).tolist()
    systems = [system for ranking in rankings for system in ranking.systems]
    known = _mean_columns(judgements.rubric, rankings[0].columns)
    names = [name for name in known if name in rankings[0].columns]  # with a calibration, only those calibrated
    whole = _whole(judgements.rubric, names)
    columns = [known[name] for name in dict.fromkeys([whole, *names] if whole else names)]
    held = whole is not None and any(system.length_held for system in systems)
    human = [
        name
        for name in ([whole] if whole else names)
        if any(estimate_value((system.human or {}).get(name)) for system in systems)
    ]
    rows = []
    for system in systems:
        row: list[Any] = [system.name, *(estimate_value(system.means[column["name"]]) for column in columns)]
        if held and whole is not None:
            row.append(estimate_value((system.length_held or {}).get(whole)))
        row += [estimate_value((system.human or {}).get(name)) for name in human]
        if whole is not None:
            best, worst = system.ranks[whole]
            row.append(str(best) if best == worst else f"{best} to {worst}")
        row.append(system.rows)
        rows.append(row + [failed[index_of[system.name]]] * any(failed))
    if held and whole is not None:
        columns.append(known[whole] | {"name": "mean at equal length"})
    columns += [known[name] | {"name": f"human, {name}"} for name in human]
    if whole is not None:
        columns.append({"name": "rank", "kind": "number"})
    columns = [{"name": "system", "kind": "text"}, *columns, {"name": "rows", "kind": "number"}]
    columns += [{"name": "failed", "kind": "number"}] * any(failed)
    for label in index_of.keys() - {system.name for system in systems}:
        rows.append([label, *[None] * (len(columns) - 3), 0, failed[index_of[label]]])
    notes = []
    for ranking in rankings:
        if whole is not None and len(ranking.systems) > 1:
            notes += [f"{line.removesuffix('.')}." for line in comparison_lines(ranking)]
    if whole is None:
        notes += _alike_in_labels(rankings, names)
    notes += dict.fromkeys(note for ranking in rankings for note in ranking.notes)
    if len(rankings) > 1 and whole is not None:
        notes.append("The runs have several judges: a rank compares only the systems of one judge.")
    if {ranking.of for ranking in rankings} == {"calibrated"}:
        notes.append("The charts of single judgements show uncalibrated scores.")
    return {
        "columns": columns,
        "rows": rows,
        "dots": [index_of[row[0]] for row in rows],
        "notes": notes,
    }


def _alike_in_labels(rankings: Sequence[Ranking], names: Sequence[str]) -> Iterator[str]:
    """Yield which systems do not differ significantly, or are not tested, in the shares of labels."""
    alike: dict[tuple[str, ...], list[str]] = {}
    untested: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for ranking in rankings:
        for name in names:
            for group in ranking.groups[name]:
                alike.setdefault(group, []).append(name)
            if ranking.untested[name]:
                untested.setdefault(ranking.untested[name], []).append(name)
    for members, of in alike.items():
        if len(members) > 1:
            sizes = [ranking.detectable[name] for ranking in rankings for name in of]
            found = max((size for size in sizes if size is not None), default=None)
            where = f"in {', '.join(dict.fromkeys(of))}"
            yield from (f"{line}." for line in differences_in_words(where, [members], (), found))
    for pairs, of in untested.items():
        yield from (
            f"{line}." for line in differences_in_words(f"in {', '.join(dict.fromkeys(of))}", (), pairs)
        )


def _mean_columns(rubric: Rubric, ranked: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the table columns of the means by their names. A note says what a mean is on, if that differs."""
    columns = {
        column.name: {
            "name": column.name,
            "kind": "share" if mean_is_share(column) else "estimate",
            "bounds": [column.lowest, column.highest],
            "note": scale_text(column),
        }
        for column in mean_columns(rubric)
    }
    if OVERALL in ranked:
        of = next(column for column in rubric.score_columns if column.weight and column.name in ranked)
        columns[OVERALL] = columns[of.name] | {"name": OVERALL}
    if len({column["note"] for column in columns.values()}) == 1:
        return {name: column | {"note": None} for name, column in columns.items()}
    return columns


def _whole(rubric: Rubric, names: Sequence[str]) -> str | None:
    """Return the column of the mean of all aspects, or of the first ordered aspect; None without any."""
    ordered = [column.name for column in mean_columns(rubric) if column.weight and column.name in names]
    return OVERALL if OVERALL in names else ordered[0] if ordered else None


def agreement_tables(agreements: Sequence[tuple[str, Agreement]]) -> dict[str, Any] | None:
    """Return the tables of the agreement of each run, by its name, with people; None without labels."""
    if not agreements:
        return None
    every, brief, names = [], [], dict.fromkeys(_COMPARED.values())
    several = len(agreements) > 1
    read = [
        (f"{run}, {aspect}" if several else aspect, found)
        for run, agreement in agreements
        for aspect, found in agreement.aspects.items()
    ]
    for aspect, found in read:
        compared = {_COMPARED[name]: comparison for name, comparison in found.comparisons.items()}
        for name, comparison in compared.items():
            figures = [estimate_value(getattr(comparison, statistic)) for statistic in _STATISTICS]
            every.append([f"{aspect}: {name}", found.rows, *figures])
        correlations = [estimate_value(compared[name].spearman) if name in compared else None for name in names]
        brief.append([aspect, *correlations, found.rows])
    known = [place for place, _ in enumerate(names, 1) if any(row[place] for row in brief)]
    brief = [[row[0], *(row[place] for place in known), row[-1]] for row in brief]
    columns = [
        ("aspect", "text"),
        *((list(names)[place - 1], "estimate") for place in known),
        ("rows", "number"),
    ]
    details = [("compared with the labels", "text"), ("rows", "number")]
    details += [(heading, "estimate") for heading in _STATISTICS.values()]
    tables = [table("Spearman's correlation with the labels", columns, brief)] * bool(brief)
    tables += [table("All statistics", details, every, folded=True)] * bool(every)
    within = [
        [
            f"{aspect}: {_COMPARED[name]}",
            *map(estimate_value, (each.in_order, each.pearson)),
            found.within.pairs,
        ]
        for aspect, found in read
        if found.within
        for name, each in found.within.comparisons.items()
    ]
    columns = [("compared with the labels", "text"), ("in order", "estimate"), ("Pearson", "estimate")]
    tables += [table("Within instructions", [*columns, ("pairs", "number")], within)] * bool(within)
    return {
        "leads": [
            "The agreement of the judge's scores with the labels, compared with trivial baselines (such as "
            "length only, word overlap only).",
            *([WITHIN_NOTE] * bool(within)),
            *([NOT_WITHIN] * any(found.within is None for _, found in read)),
            *annotator_leads(
                (f"{run}, {aspect}" if several else aspect, found.annotator_test)
                for run, agreement in agreements
                for found_in in (agreement.aspects, agreement.nominal)
                for aspect, found in found_in.items()
            ),
            *dict.fromkeys(note for _, agreement in agreements for note in agreement.notes),
        ],
        "tables": _nominal_tables(agreements) + tables,
    }


def annotator_leads(tests: Iterable[tuple[str, AnnotatorTest | None]]) -> list[str]:
    """Return the lines that compare the judge with single annotators, by the name of what was labelled."""
    known = dict(tests)
    missing = ", ".join(name for name, test in known.items() if test is None)
    lines = [f"{name}: {test.in_words}" for name, test in known.items() if test]
    return lines + [f"{missing}: {NO_TEST}"] * bool(missing)


def _nominal_tables(agreements: Sequence[tuple[str, Agreement]]) -> list[dict[str, Any]]:
    """Return the table of the aspects without an order, and a confusion matrix for each of them."""
    several = len(agreements) > 1
    read = [
        (f"{run}, {aspect}" if several else aspect, found)
        for run, agreement in agreements
        for aspect, found in agreement.nominal.items()
    ]
    rows, matrices = [], []
    for aspect, found in read:
        compared = {_COMPARED.get(name, name): comparison for name, comparison in found.comparisons.items()}
        for name, each in compared.items():
            figures = [estimate_value(getattr(each, statistic)) for statistic in _NOMINAL_STATISTICS]
            rows.append([f"{aspect}: {name}", *figures, found.rows])
        counts = [
            [label, *counts, estimate_value(recall)]
            for label, counts, recall in zip(found.labels, found.confusion, found.recall, strict=True)
        ]
        counts.append(["precision", *map(estimate_value, found.precision), None])
        columns = [("human \\ judge", "text"), *((label, "number") for label in found.labels)]
        matrices.append(table(f"{aspect}: human and judge", [*columns, ("recall", "estimate")], counts))
    if not rows:
        return []
    headings = [(heading, "estimate") for heading in _NOMINAL_STATISTICS.values()]
    columns = [("compared with the labels", "text"), *headings, ("rows", "number")]
    return [table("Agreement on labels", columns, rows), *matrices]


def audit_tables(file: Path | None) -> dict[str, Any] | None:
    """Return the tables of the output of `localjudge audit --json`; None without a file.

    Raises:
        UsageError: the file cannot be read, or is not the output of an audit.
    """
    if file is None:
        return None
    try:
        audit = Audit.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"`audit` {file}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"--audit {file}: not the output of `localjudge audit --json`") from None
    columns = [("check", "text"), ("a sound judge", "word"), ("held", "number"), ("chance", "number")]
    columns += [("verdict", "word"), ("shift", "estimate"), ("rows", "number"), ("not tested", "word")]
    rows: list[list[Any]] = [
        [
            f"{check.name}: {check.does}",
            check.expected,
            check.held_text,
            check.chance_text,
            check.verdict,
            estimate_value(check.shift),
            check.rows,
            check.not_tested,
        ]
        for check in audit.checks
    ]
    moved = [
        [check.name, *(estimate_value(check.aspects[aspect].shift) for aspect in audit.aspects)]
        for check in audit.checks
    ]
    halo = [
        [aspect, *(None if each is None else f"{each:.2f}" for each in audit.halo[place])]
        for place, aspect in enumerate(audit.aspects)
    ]
    shifts, numbers = ([(aspect, kind) for aspect in audit.aspects] for kind in ("estimate", "number"))
    return {
        "leads": audit.leads(),
        "tables": [
            table("Checks", columns, rows),
            table("Shift of each aspect", [("check", "text"), *shifts], moved, folded=True),
            table("Correlation of the aspects", [("aspect", "text"), *numbers], halo),
        ],
    }


def slice_tables(found: Sequence[tuple[str, Sliced]]) -> dict[str, Any] | None:
    """Return the statistics of slices.

    Args:
        found: the statistics, each with the names of its runs.
    """
    several = len({name for name, _ in found}) > 1
    tables = []
    for name, sliced in found:
        columns = [
            (sliced.column, "text"),
            ("instructions", "number"),
            *((of, "estimate") for of in sliced.names),
        ]
        rows = [
            [
                row.name,
                row.instructions,
                *(estimate_value(row.estimates.get(of)) for of in sliced.names),
                ", ".join(row.significant),
            ]
            for row in sliced.rows
        ]
        tables.append(table(sliced.title + f" · {name}" * several, [*columns, ("significant", "word")], rows))
    return {"leads": [found[0][1].note], "tables": tables} if found else None


def table(
    caption: str, columns: Sequence[tuple[str, str]], rows: list[list[Any]], folded: bool = False
) -> dict[str, Any]:
    """Return a table in the form that the page reads.

    Args:
        caption: what is above the table; empty for nothing.
        columns: the name and the kind of each column.
        rows: the values of each row.
        folded: whether the table is closed until it is selected.
    """
    named = [{"name": name, "kind": kind} for name, kind in columns]
    return {"caption": caption, "columns": named, "rows": rows, "folded": folded}


def estimate_value(estimate: Estimate | None) -> dict[str, float | None] | None:
    """Return an estimate in the form that the page reads."""
    return None if estimate is None or estimate.value is None else estimate.as_dict()
