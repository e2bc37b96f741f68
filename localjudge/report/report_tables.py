"""The tables of a report, in the form that the page reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.run_rows import FAILED
from localjudge.records.outcome_columns import OVERALL
from localjudge.report.listed_rows import ListedRows
from localjudge.report.shown_values import mean_is_share, scale_text
from localjudge.report.tables import Cell, Findings, slice_table
from localjudge.report.tables.agreement_tables import agreement_findings, pair_agreement_findings
from localjudge.report.tables.audit_tables import audit_findings
from localjudge.report.tables.ranking_tables import ranks
from localjudge.rubrics.rubric import Rubric
from localjudge.statistics import Estimate, two_decimals
from localjudge.statistics.system_order import differences_in_words
from localjudge.studies.agree import Agreement, PairAgreement
from localjudge.studies.audit.audit_findings import Audit
from localjudge.studies.by_slice import Sliced
from localjudge.studies.rank import Ranking, comparison_lines


def systems_table(listed: ListedRows, rankings: Sequence[Ranking]) -> dict[str, Any]:
    """Return the table of the systems: their means and shares, and their ranks by the mean of all aspects.

    There is no rank without an ordered aspect: whether a label is good or bad is not known.
    """
    index_of = {label: index for index, label in enumerate(listed.series)}
    failures = listed.columns.series[0, (listed.columns.flags & FAILED) > 0]
    failed = np.bincount(failures, minlength=len(index_of)).tolist()
    systems = [system for ranking in rankings for system in ranking.systems]
    known = _mean_columns(listed.rubric, rankings[0].columns)
    names = [name for name in known if name in rankings[0].columns]  # with a calibration, only those calibrated
    whole = _whole(listed.rubric, names)
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
            row.append(ranks(system.ranks[whole], " to "))
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
    untested: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
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
        for column in rubric.row_columns
    }
    if OVERALL in ranked:
        of = next(column for column in rubric.score_columns if column.weight and column.name in ranked)
        columns[OVERALL] = columns[of.name] | {"name": OVERALL}
    if len({column["note"] for column in columns.values()}) == 1:
        return {name: column | {"note": None} for name, column in columns.items()}
    return columns


def _whole(rubric: Rubric, names: Sequence[str]) -> str | None:
    """Return the column of the mean of all aspects, or of the first ordered aspect; None without any."""
    ordered = [column.name for column in rubric.row_columns if column.weight and column.name in names]
    return OVERALL if OVERALL in names else ordered[0] if ordered else None


def agreement_section(
    agreements: Sequence[tuple[str, Agreement]] | Sequence[tuple[str, PairAgreement]],
) -> dict[str, Any] | None:
    """Return the agreement of each run, by its name, with people; None without labels."""
    if not agreements:
        return None
    (_, first), several = agreements[0], len(agreements) > 1
    notes = dict.fromkeys(note for _, each in agreements for note in each.notes)
    joined: dict[str, Any] = {"notes": tuple(notes)}
    for name in ("aspects", "nominal") if isinstance(first, Agreement) else ("aspects", "subsets"):
        own = [(f"{run}, " * several, getattr(each, name)) for run, each in agreements]
        joined[name] = {prefix + aspect: found for prefix, each in own for aspect, found in each.items()}
    if isinstance(first, Agreement):
        return section(agreement_findings(replace(first, **joined)))
    return section(pair_agreement_findings(replace(first, **joined)))


def audit_section(file: Path | None) -> dict[str, Any] | None:
    """Return the output of `localjudge audit --json`; None without a file.

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
    return section(audit_findings(audit), audit.leads())


def slices_section(found: Sequence[tuple[str, Sliced]]) -> dict[str, Any] | None:
    """Return the statistics of slices, each with the names of its runs."""
    several = len({name for name, _ in found}) > 1
    tables = [
        replace(slice_table(sliced), title=sliced.title + f" · {name}" * several) for name, sliced in found
    ]
    return section(Findings([found[0][1].note], tables)) if found else None


def section(found: Findings, leads: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a statistic says in the form that the page reads, its details folded.

    Args:
        found: what it says.
        leads: paragraphs after its answer.
    """
    tables: list[dict[str, Any]] = []
    shown = [*found.first, *found.main]
    for parts, folded in ((shown, False), *((parts, True) for parts in found.details.values())):
        for part in parts:
            if isinstance(part, str):
                tables[-1]["notes"].append(part)
            else:
                kinds = ["text", *("word" if name in part.words else "estimate" for name in part.columns[1:])]
                columns = [
                    (name.replace("\n", " "), kind) for name, kind in zip(part.columns, kinds, strict=True)
                ]
                rows = [[*map(_shown, row)] for row in (*part.rows, *part.totals)]
                tables.append(table(part.title, columns, rows, folded))
    return {"leads": [*found.answer, *leads, *dict.fromkeys(found.notes)], "tables": tables}


def _shown(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        return estimate_value(cell)
    if isinstance(cell, str):
        return cell.replace("\n", ", ")
    return two_decimals(cell) if isinstance(cell, float) else cell


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
    return {"caption": caption, "columns": named, "rows": rows, "folded": folded, "notes": []}


def estimate_value(estimate: Estimate | None) -> dict[str, float | None] | None:
    """Return an estimate in the form that the page reads."""
    return None if estimate is None or estimate.value is None else estimate.as_dict()
