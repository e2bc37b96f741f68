"""The part of a report above the rows: the findings and notices, in the form that the page reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from localjudge import __version__
from localjudge.matching.run_rows import FAILED, run_names
from localjudge.report.findings_document import findings_document
from localjudge.report.listed_rows import ListedRows
from localjudge.report.shown_values import aspect_kind, deciding_score, value_colours, value_texts
from localjudge.report.tables import Findings
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.run_manifest import RunManifest
from localjudge.system.quantities import counted


def page_head(
    listed: ListedRows,
    title: str | None,
    sections: Mapping[str, Findings | None],
    notices: Iterable[str],
) -> dict[str, Any]:
    """Return everything that the page shows besides its rows.

    Args:
        listed: the rows of the report.
        title: the title of the report; None for the names of the runs.
        sections: the findings of each section; None for a section that is not shown.
        notices: further notices, after those of the runs.
    """
    manifests = listed.manifests
    rubric = listed.rubric
    all_notices = _notices(listed, notices)
    return {
        "title": title or ", ".join(run_names(listed.folders)),
        "about": f"{_size(listed)} · {_origin(manifests)}",
        "notices": list(dict.fromkeys(all_notices)),
        "foot": _foot(manifests),
        "rationale": any(manifest.rubric.columns.texts for manifest in manifests),
        "series": listed.series,
        "aspects": [_aspect_document(name, aspect) for name, aspect in rubric.aspects.items()],
        "decides": deciding_score(rubric),
        "sections": {name: _section_document(name, findings) for name, findings in sections.items()},
    }


def _size(listed: ListedRows) -> str:
    """Return the numbers of rows, systems, runs and instructions."""
    size = counted(len(listed), listed.mode.list_words.one)
    if listed.compares_systems:
        size += f" of {counted(_number_of_systems(listed), 'system')}"
    if len(listed.folders) > 1:
        size += f" in {len(listed.folders)} runs"
    return f"{size} on {counted(len(listed.snippets), 'instruction')}"


def _number_of_systems(listed: ListedRows) -> int:
    """Return the number of systems that have a name, as their runs call them."""
    systems: set[str | None] = set()
    for identity in listed.rows.identities:
        systems.update(identity.systems)
    return len(systems - {None, ""})


def _origin(manifests: Sequence[RunManifest]) -> str:
    """Return who judged, by which rubric, and when."""
    models = dict.fromkeys(manifest.model.name for manifest in manifests)
    rubrics = dict.fromkeys(manifest.rubric.name for manifest in manifests)
    return f"judged by {', '.join(models)} · rubric {', '.join(rubrics)} · {_days(manifests)}"


def _days(manifests: Sequence[RunManifest]) -> str:
    """Return the days of the first and the last start of the runs."""
    starts = []
    for manifest in manifests:
        starts += manifest.starts
    starts.sort(key=lambda start: start.instant)
    first_day = starts[0].started[:10]
    last_day = starts[-1].started[:10]
    if first_day == last_day:
        return first_day
    return f"{first_day} to {last_day}"


def _notices(listed: ListedRows, further: Iterable[str]) -> Iterator[str]:
    """Yield what a reader must know before the numbers."""
    yield from listed.rows.notices
    yield from listed.notes
    yield from further
    missing = len(listed) - listed.rows_with_text
    if missing:
        reasons = ""
        if listed.problems:
            reasons = f" ({'; '.join(listed.problems)})"
        rows = counted(missing, listed.mode.list_words.one)
        yield f"{rows} without text: the input row was not found{reasons}."
    failed = int((listed.rows.flags & FAILED > 0).sum())
    if failed:
        noun = listed.mode.item
        yield f"{counted(failed, noun)} failed; the tables exclude failed {noun}s."


def _foot(manifests: Sequence[RunManifest]) -> str:
    """Return what made the page, and by which prompts."""
    today = time.strftime("%Y-%m-%d")
    prompts = dict.fromkeys(manifest.prompt_sha256[:12] for manifest in manifests)
    return (
        f"Made by localjudge {__version__} on {today}. Prompt {', '.join(prompts)}. "
        "This file fetches nothing and sends nothing."
    )


def _aspect_document(name: str, aspect: Aspect) -> dict[str, Any]:
    """Return an aspect and its values."""
    lowest: float = 0
    if aspect.numbers:
        lowest = min(aspect.numbers.values())
    return {
        "name": name,
        "kind": aspect_kind(aspect),
        "lowest": lowest,
        "values": value_texts(aspect),
        "colours": value_colours(aspect),
        "labels": list(aspect.values.values()),
    }


def _section_document(name: str, findings: Findings | None) -> dict[str, Any] | None:
    """Return the findings of a section; None if it is not shown."""
    if findings is None:
        return None
    opened = 0
    if name == "systems":
        opened = 1  # the first details of the systems are their means in the other columns
    return findings_document(findings, opened)
