"""The part of a report above the judgements: tables, charts and notices, in the form that the page reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from localjudge import __version__
from localjudge.matching.run_rows import FAILED, run_names
from localjudge.matching.scores import Scores
from localjudge.report import charts, confidence_charts
from localjudge.report.listed_rows import ListedRows
from localjudge.report.report_tables import audit_section, slices_section, systems_table
from localjudge.report.shown_values import (
    decides,
    kind,
    legend,
    mean_is_share,
    value_colours,
    value_texts,
)
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import together
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import RunManifest
from localjudge.runs.summary import read_summary
from localjudge.statistics import Estimate
from localjudge.studies.by_slice import Sliced
from localjudge.studies.rank import Ranking
from localjudge.system.quantities import counted


def by_series(scores: Scores, listed: ListedRows) -> Scores:
    """Return the scores with the report's series as systems."""
    runs = [listed.folders.index(folder) for folder in scores.folders]
    names, _ = listed.rows.names.names()
    known = [
        names[runs[run], identity.systems[0]]
        for run, identity in zip(scores.run.tolist(), scores.identities, strict=True)
    ]
    there = set(known)
    labels = [label for label in listed.series if label in there]
    places = {label: place for place, label in enumerate(labels)}
    return replace(
        scores, systems=tuple(labels), system=np.array([places[label] for label in known], dtype=np.int32)
    )


def score_sections(
    listed: ListedRows, rankings: Sequence[Ranking], slices: Sequence[tuple[str, Sliced]]
) -> dict[str, Any]:
    """Return what the page shows of scores, besides the rows.

    Args:
        listed: the rows of the report.
        rankings: one ranking for each judge.
        slices: the statistics of slices, each with the names of its runs.
    """
    rubric = listed.rubric
    means = {system.name: system.means for ranking in rankings for system in ranking.systems}
    return {
        "aspects": [
            {
                "name": name,
                "kind": kind(aspect),
                "lowest": min(aspect.numbers.values()) if aspect.numbers else 0,
                "values": value_texts(aspect),
                "colours": value_colours(aspect),
            }
            for name, aspect in rubric.aspects.items()
        ],
        "decides": decides(rubric),
        "table": systems_table(listed, rankings),
        "leads": {
            "systems": _systems_lead(rubric, rankings),
            "profile": _profile_lead(rubric),
            "confidence": _confidence_lead(rubric),
            "length": f"Each point is a {rubric.mode.listed[0]} (a sample if there are many); the line "
            "is the mean of all by length.",
        },
        "means": _means_heading(rubric),
        "legend": _common_legend(rubric),
        "figures": _figures(listed, means),
        "slices": slices_section(slices),
    }


def head(
    listed: ListedRows,
    title: str | None,
    notices: Iterable[str],
    sections: Mapping[str, Any],
    audit: Path | None,
) -> dict[str, Any]:
    """Return everything that the page shows besides its rows.

    Args:
        listed: the rows of the report.
        title: the title of the report; None for the names of the runs.
        notices: further notices, after those of the runs.
        sections: what the statistics say.
        audit: the output of `localjudge audit --json`, if any.

    Raises:
        UsageError: the audit file cannot be read, or is not the output of an audit.
    """
    names, (one, _, _) = run_names(listed.folders), listed.kind.listed
    of_runs = together(names, [_notices_and_signs(folder) for folder in listed.folders])
    said = list(dict.fromkeys([*of_runs, *listed.notes, *notices]))
    if missing := len(listed) - listed.found:
        reasons = f" ({'; '.join(listed.problems)})" if listed.problems else ""
        said.append(f"{counted(missing, one)} without text: the input row was not found{reasons}.")
    if failed := int((listed.rows.flags & FAILED > 0).sum()):
        item = listed.kind.item
        said.append(f"{counted(failed, item)} failed; the tables and charts exclude failed {item}s.")
    of = f" of {counted(len(listed.series), 'system')}" if listed.compares_systems else ""
    on = f"{counted(len(listed), one)}{of} on {counted(len(listed.snippets), 'instruction')}"
    return {
        "title": title or ", ".join(names),
        "about": " · ".join(filter(None, (on, _origin(listed.manifests), listed.rows.mass_note))),
        "notices": said,
        "foot": f"Made by localjudge {__version__} on {time.strftime('%Y-%m-%d')}. "
        f"Prompt {', '.join({each.prompt_sha256[:12] for each in listed.manifests})}. "
        "This file fetches nothing and sends nothing.",
        "rationale": any(manifest.rubric.columns.texts for manifest in listed.manifests),
        "series": [
            {"label": label, "colour": charts.series_colour(index)} for index, label in enumerate(listed.series)
        ],
        **sections,
        "audit": audit_section(audit),
    }


def _origin(manifests: Sequence[RunManifest]) -> str:
    """Return who judged, by which rubric, and when."""
    models = dict.fromkeys(manifest.model.judge for manifest in manifests)
    rubrics = dict.fromkeys(manifest.rubric.name for manifest in manifests)
    starts = sorted((start for each in manifests for start in each.starts), key=lambda start: start.instant)
    days = [start.started[:10] for start in starts]
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return f"judged by {', '.join(models)} · rubric {', '.join(rubrics)} · {when}"


def score_notices(listed: ListedRows, rankings: Sequence[Ranking]) -> Iterator[str]:
    """Yield the notices of calibrated scores, and of empty responses."""
    for ranking in rankings:
        if ranking.of == "calibrated":
            yield from ranking.notices
    if empty := _empty_responses(listed):
        yield empty


def _notices_and_signs(folder: Path) -> tuple[str, ...]:
    """Return the notices of a run, and the warning signs in its outcomes."""
    return *read_notices(folder), *read_summary(folder).signs.lines


def _empty_responses(listed: ListedRows) -> str | None:
    """Return a warning if empty responses have a higher mean score than the others; None otherwise."""
    columns, name = listed.columns, decides(listed.rubric)
    judged = ~np.isnan(columns.overall)
    empty = columns.overall[judged & (columns.length[0] == 0)]
    others = columns.overall[judged & (columns.length[0] > 0)]
    if not len(empty) or not len(others) or empty.mean() <= others.mean():
        return None
    return (
        f"empty responses: {counted(len(empty), 'response')} without text, with a mean score of "
        f"{empty.mean():.2f} in {name}; the others have {others.mean():.2f}; read some"
    )


def _means_heading(rubric: Rubric) -> str:
    """Return the heading of the charts of means, some or all of which can be shares."""
    shares = [mean_is_share(column) for column in rubric.row_columns]
    return "Shares" if all(shares) else "Means and shares" if any(shares) else "Means"


def _systems_lead(rubric: Rubric, rankings: Sequence[Ranking]) -> str:
    every = {ranking.of for ranking in rankings}
    of = rankings[0].of if every in ({"expected"}, {"calibrated"}) else ""
    named = f"{of} scores" if of and not all(map(mean_is_share, rubric.row_columns)) else "scores"
    ordered = any(column.weight for column in rubric.row_columns)
    lead = f"{_means_heading(rubric)} of the {named} with 95 % intervals from resampling instructions."
    if of and any(map(mean_is_share, rubric.row_columns)):
        lead += " A share is the mean probability of the score."
    if ordered:
        lead += (
            " A rank is a range if the differences between systems on the same instructions are not "
            "significant."
        )
    return lead


def _profile_lead(rubric: Rubric) -> str:
    if "criteria" in rubric.mode.gives:
        return (
            "Means of the scores of rows with 95 % intervals (the axis shows only a part of the scale), and "
            "below them the distribution of the answers to criteria, also of rows with another criterion that "
            "failed. Select a part of a bar to read its rows."
        )
    return (
        f"{_means_heading(rubric)} of each aspect with 95 % intervals (each axis shows only a part of the "
        "scale), and below them the distribution of the scores. Select a system to highlight it; select a part "
        "of a bar to read its judgements."
    )


def _confidence_lead(rubric: Rubric) -> str:
    guess = "A chosen score with a low probability is nearly a guess."
    if not any(kind(aspect) in ("scale", "ordered") for aspect in rubric.aspects.values()):
        return f"The judge gives a score, and a probability for each score that it could give. {guess}"
    return (
        "The judge gives a score and a probability for each score of the scale; the expected score is their "
        "mean. If one score has a wide range of expected scores, the scores hide differences between "
        f"candidates. {guess}"
    )


def _common_legend(rubric: Rubric) -> list[tuple[str, str]]:
    """Return the legend of the colours of scores; empty if the aspects do not have the same."""
    first, *others = (legend(aspect) for aspect in rubric.aspects.values())
    return first if all(other == first for other in others) else []


def _figures(
    listed: ListedRows, means: Mapping[str, Mapping[str, Estimate]]
) -> dict[str, list[dict[str, Any]]]:
    columns, rubric = listed.columns, listed.rubric
    sections = ("means", "distribution", "expected", "confidence")
    figures: dict[str, list[dict[str, Any]]] = {section: [] for section in sections}
    for column in rubric.row_columns:
        found = {label: own[column.name] for label, own in means.items() if column.name in own}
        if any(mean.value is not None for mean in found.values()):
            figures["means"].append(figure(column.name, charts.means(listed, column, found)))
    for name, aspect in rubric.aspects.items():
        own = [] if _common_legend(rubric) else legend(aspect)
        figures["distribution"].append(figure(name, charts.distribution(listed, name), own))
        if spec := confidence_charts.expected_against_score(listed, name):
            figures["expected"].append(figure(name, spec))
    if not np.isnan(columns.confidence).all():
        title = "Probability of the chosen score"
        figures["confidence"].append(figure(title, confidence_charts.confidence(listed)))
    if ((columns.length[0] >= 0) & ~np.isnan(columns.overall)).any():
        figures["length"] = [figure(None, charts.length_against_score(listed))]
    return figures


def figure(title: str | None, spec: charts.Spec, legend: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    return {"title": title, "legend": legend, "spec": spec}
