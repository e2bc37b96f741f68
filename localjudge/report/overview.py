"""The part of a report above the judgements: tables, charts and notices, in the form that the page reads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.analysis.agreement import Agreement
from localjudge.analysis.interval import Estimate
from localjudge.analysis.ranking import Ranking
from localjudge.analysis.scores import Scores, run_names
from localjudge.audit.findings import Audit
from localjudge.errors import UsageError
from localjudge.report import charts
from localjudge.report.judgements import FAILED, Judgements
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import together
from localjudge.runs.reader import read_notices

_STATISTICS = {
    "pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall", "kappa": "kappa", "exact": "exact",
    "within_one": "within one", "mae": "mean abs. error", "bias": "bias",
}  # fmt: skip
_COMPARED = {
    "integer": "score", "expected": "expected score", "calibrated": "calibrated score",
    "length": "length only", "overlap": "word overlap only", "people": "inter-annotator agreement",
    "judge": "label", "most frequent": "most frequent label",
}  # fmt: skip


def by_series(scores: Scores, judgements: Judgements) -> Scores:
    """Return the scores with the report's series as systems; a system that two runs judged counts as two."""
    folders = judgements.folders
    places = {(folders[series.run], series.system): place for place, series in enumerate(judgements.series)}
    known = []
    for run, system in zip(scores.run.tolist(), scores.system.tolist(), strict=True):
        folder = scores.folders[run]
        known.append(places.get((folder, scores.systems[system]), places.get((folder, None), -1)))
    present, system_of = np.unique(known, return_inverse=True)
    labels = tuple(judgements.series[place].label for place in present.tolist())
    return replace(scores, systems=labels, system=system_of.astype(np.int32))


def head(
    judgements: Judgements,
    title: str | None,
    rankings: Sequence[Ranking],
    agreements: Sequence[tuple[str, Agreement]],
    audit: Path | None,
) -> dict[str, Any]:
    """Return everything that the page shows besides the judgements.

    Args:
        judgements: the judgements of the report.
        title: the title of the report; None for the names of the runs.
        rankings: one ranking for each judge.
        agreements: the name of each run with labels, and its agreement.
        audit: the output of `localjudge audit --json`, if any.

    Raises:
        UsageError: the audit file cannot be read, or is not the output of an audit.
    """
    rubric = judgements.rubric
    means = {system.name: system.means for ranking in rankings for system in ranking.systems}
    return {
        "title": title or ", ".join(run_names(judgements.folders)),
        "about": _about(judgements),
        "notices": _notices(judgements, rankings),
        "foot": f"Made by localjudge {version('localjudge')} on {time.strftime('%Y-%m-%d')}. "
        f"Prompt {', '.join({each.prompt_sha256[:12] for each in judgements.manifests})}. "
        "This file fetches nothing and sends nothing.",
        "aspects": [column.name for column in rubric.score_columns],
        "scale": _ends(rubric),
        "colours": {"score": charts.SCORE_COLOURS},
        "series": [
            {"label": series.label, "colour": charts.series_colour(index)}
            for index, series in enumerate(judgements.series)
        ],
        "table": _systems_table(judgements, rankings),
        "length_lead": _length_lead(rankings),
        "figures": _figures(judgements, means),
        "agreement": _agreement_tables(agreements),
        "audit": _audit_tables(audit),
    }


def _ends(rubric: Rubric) -> list[int]:
    """Return the lowest and the highest score of all columns."""
    columns = rubric.score_columns
    return [min(column.lowest for column in columns), max(column.highest for column in columns)]


def _about(judgements: Judgements) -> str:
    models = dict.fromkeys(manifest.model.name for manifest in judgements.manifests)
    rubrics = dict.fromkeys(manifest.rubric.name for manifest in judgements.manifests)
    days = sorted(start.started[:10] for manifest in judgements.manifests for start in manifest.starts)
    return " · ".join(
        [
            f"{_counted(len(judgements), 'judgement')} of {_counted(len(judgements.series), 'system')} "
            f"on {_counted(len(judgements.snippets), 'instruction', 'instructions')}",
            f"judged by {', '.join(models)}",
            f"rubric {', '.join(rubrics)}",
            days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        ]
    )


def _notices(judgements: Judgements, rankings: Sequence[Ranking]) -> list[str]:
    folders = judgements.folders
    of_runs = together(run_names(folders), [read_notices(folder) for folder in folders])
    calibrated = (notice for ranking in rankings if ranking.of == "calibrated" for notice in ranking.notices)
    notices = list(dict.fromkeys([*of_runs, *calibrated]))
    if missing := len(judgements) - judgements.found:
        reasons = f" ({'; '.join(judgements.problems)})" if judgements.problems else ""
        notices.append(f"{_counted(missing, 'judgement')} without text: the input row was not found{reasons}.")
    if failed := int((judgements.columns.flags & FAILED).sum()):
        notices.append(f"{_counted(failed, 'row')} failed; the means and charts exclude failed rows.")
    return notices


def _systems_table(judgements: Judgements, rankings: Sequence[Ranking]) -> dict[str, Any]:
    index_of = {series.label: index for index, series in enumerate(judgements.series)}
    failures = judgements.columns.series[(judgements.columns.flags & FAILED) > 0]
    failed = np.bincount(failures, minlength=len(index_of)).tolist()
    systems = [system for ranking in rankings for system in ranking.systems]
    columns_of = rankings[0].columns  # with a calibration, only the calibrated aspects
    whole = columns_of[-1]
    shown = dict.fromkeys((whole, *columns_of))
    held = any(system.length_held for system in systems)
    human = any(system.human for system in systems)
    columns = [("system", "text"), *((name, "estimate") for name in shown)]
    columns += [("mean at equal length", "estimate")] * held + [(f"human, {whole}", "estimate")] * human
    columns += [("rank", "number"), ("rows", "number")] + [("failed", "number")] * any(failed)
    rows = []
    for system in systems:
        best, worst = system.ranks[whole]
        row: list[Any] = [system.name, *(_estimate(system.means[name]) for name in shown)]
        row += [_estimate((system.length_held or {}).get(whole))] * held
        row += [_estimate((system.human or {}).get(whole))] * human
        row += [str(best) if best == worst else f"{best} to {worst}", system.rows]
        rows.append(row + [failed[index_of[system.name]]] * any(failed))
    for label in index_of.keys() - {system.name for system in systems}:
        rows.append([label, *[None] * (len(columns) - 3), 0, failed[index_of[label]]])
    notes = [
        f"No significant difference ({whole}): {', '.join(group)}."
        for ranking in rankings
        for group in ranking.groups[whole]
        if len(group) > 1
    ]
    notes += dict.fromkeys(note for ranking in rankings for note in ranking.notes)
    if len(rankings) > 1:
        notes.append("The runs have several judges: a rank compares only the systems of one judge.")
    every = {ranking.of for ranking in rankings}
    scores = f"{rankings[0].of} scores" if every in ({"expected"}, {"calibrated"}) else "scores"
    if every == {"calibrated"}:
        notes.append("The charts of single judgements show uncalibrated scores.")
    return {
        "lead": f"Means of the {scores} with 95 % intervals from resampling instructions. A rank is a range if "
        "the differences between systems on the same instructions are not significant.",
        "columns": [{"name": name, "kind": kind} for name, kind in columns],
        "rows": rows,
        "dots": [index_of[row[0]] for row in rows],
        "bounds": _ends(judgements.rubric),
        "notes": notes,
    }


def _length_lead(rankings: Sequence[Ranking]) -> str:
    lead = "Each point is a judgement (a sample if there are many); the line is the mean of all by length."
    if len(rankings) != 1:
        return lead
    shares = {name: share for name, share in rankings[0].length_explains.items() if share is not None}
    if not shares:
        return lead
    explained = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return f"{lead} Length explains this share of the variance within instructions: {explained}."


def _figures(
    judgements: Judgements, means: Mapping[str, Mapping[str, Estimate]]
) -> dict[str, list[dict[str, Any]]]:
    columns = judgements.columns
    aspects = [column.name for column in judgements.rubric.score_columns]
    sections = ("means", "distribution", "expected", "confidence")
    figures: dict[str, list[dict[str, Any]]] = {section: [] for section in sections}
    if means:
        for place, aspect in enumerate(aspects):
            found = {label: own[aspect] for label, own in means.items() if aspect in own}
            if any(mean.value is not None for mean in found.values()):
                figures["means"].append(_figure(aspect, charts.means(judgements, place, found)))
            figures["distribution"].append(_figure(aspect, charts.distribution(judgements, place)))
    if not np.isnan(columns.confidence).all():
        for place, aspect in enumerate(aspects):
            figures["expected"].append(_figure(aspect, charts.expected_against_integer(judgements, place)))
        title = "Probability of the chosen score"
        figures["confidence"].append(_figure(title, charts.confidence(judgements)))
    if ((columns.length >= 0) & ~np.isnan(columns.overall)).any():
        figures["length"] = [_figure(None, charts.length_against_score(judgements))]
    return figures


def _figure(title: str | None, spec: charts.Spec) -> dict[str, Any]:
    return {"title": title, "spec": spec}


def _agreement_tables(agreements: Sequence[tuple[str, Agreement]]) -> dict[str, Any] | None:
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
        if found.ceiling:
            compared[_COMPARED["people"]] = found.ceiling.rest
        for name, comparison in compared.items():
            figures = [_estimate(getattr(comparison, statistic)) for statistic in _STATISTICS]
            every.append([f"{aspect}: {name}", found.rows, *figures])
        correlations = [_estimate(compared[name].spearman) if name in compared else None for name in names]
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
    return {
        "leads": [
            "The agreement of the judge's scores with the labels, compared with two trivial baselines (length "
            "only, word overlap only) and with the inter-annotator agreement, which no judge is likely to "
            "exceed by much.",
            *dict.fromkeys(note for _, agreement in agreements for note in agreement.notes),
        ],
        "tables": [
            *_nominal_tables(agreements),
            *[
                _table("Spearman's correlation with the labels", columns, brief),
                _table("All statistics", details, every, folded=True),
            ]
            * bool(read),
        ],
    }


def _nominal_tables(agreements: Sequence[tuple[str, Agreement]]) -> list[dict[str, Any]]:
    """Return the agreement on aspects without an order, and the confusion matrix of each."""
    tables, compared = [], []
    for run, agreement in agreements:
        for aspect, found in agreement.nominal.items():
            name = f"{run}, {aspect}" if len(agreements) > 1 else aspect
            people = {"people": found.rest} if found.rest else {}
            for kind, each in {**found.comparisons, **people}.items():
                figures = [_estimate(each.accuracy), _estimate(each.kappa), _estimate(each.brier)]
                compared.append([f"{name}: {_COMPARED[kind]}", found.rows, *figures])
            columns = [("human label", "text"), *((f"judge: {label}", "number") for label in found.labels)]
            counts = [[label, *row] for label, row in zip(found.labels, found.confusion, strict=True)]
            tables.append(_table(f"{name}: number of human labels and the judge's", columns, counts))
    columns = [("compared with the labels", "text"), ("rows", "number")]
    columns += [(heading, "estimate") for heading in ("accuracy", "kappa", "Brier score")]
    return [_table("Agreement on labels", columns, compared), *tables] if tables else []


def _audit_tables(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        audit = Audit.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--audit {file}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"--audit {file}: not the output of `localjudge audit --json`") from None
    columns = [("check", "text"), ("a sound judge", "word"), ("held", "number"), ("verdict", "word")]
    columns += [("shift", "estimate"), ("rows", "number"), ("not tested", "word")]
    rows: list[list[Any]] = [
        [
            f"{check.name}: {check.does}",
            check.expected,
            check.held_text,
            check.verdict,
            _estimate(check.shift),
            check.rows,
            check.not_tested,
        ]
        for check in audit.checks
    ]
    moved = [
        [check.name, *(_estimate(check.aspects[aspect].shift) for aspect in audit.aspects)]
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
            _table("Checks", columns, rows),
            _table("Shift of each aspect", [("check", "text"), *shifts], moved, folded=True),
            _table("Correlation of the aspects", [("aspect", "text"), *numbers], halo),
        ],
    }


def _table(
    caption: str, columns: Sequence[tuple[str, str]], rows: list[list[Any]], folded: bool = False
) -> dict[str, Any]:
    named = [{"name": name, "kind": kind} for name, kind in columns]
    return {"caption": caption, "columns": named, "rows": rows, "folded": folded}


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    return None if estimate is None or estimate.value is None else estimate.as_dict()


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
