"""The part of a report above the rows: the findings and notices, in the form that the page reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from localjudge import __version__
from localjudge.matching.run_rows import FAILED, run_names
from localjudge.report.listed_rows import ListedRows
from localjudge.report.shown_values import decides, kind, value_colours, value_texts
from localjudge.report.tables import Findings
from localjudge.runs.run_manifest import RunManifest
from localjudge.system.quantities import counted


def head(
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
    one, rubric = listed.mode.list_words.one, listed.rubric
    systems = {name for each in listed.rows.identities for name in each.systems if name}
    of = f" of {counted(len(systems), 'system')}" * listed.compares_systems
    of += f" in {len(listed.folders)} runs" * (len(listed.folders) > 1)
    on = f"{counted(len(listed), one)}{of} on {counted(len(listed.snippets), 'instruction')}"
    return {
        "title": title or ", ".join(run_names(listed.folders)),
        "about": f"{on} · {_origin(listed.manifests)}",
        "notices": [*dict.fromkeys(_notices(listed, notices))],
        "foot": f"Made by localjudge {__version__} on {time.strftime('%Y-%m-%d')}. "
        f"Prompt {', '.join({each.prompt_sha256[:12] for each in listed.manifests})}. "
        "This file fetches nothing and sends nothing.",
        "rationale": any(manifest.rubric.columns.texts for manifest in listed.manifests),
        "series": listed.series,
        "aspects": [
            {
                "name": name,
                "kind": kind(aspect),
                "lowest": min(aspect.numbers.values()) if aspect.numbers else 0,
                "values": value_texts(aspect),
                "colours": value_colours(aspect),
                "labels": [*aspect.values.values()],
            }
            for name, aspect in rubric.aspects.items()
        ],
        "decides": decides(rubric),
        # The first details of the systems are their means in the other columns.
        "sections": {name: found and found.for_page(name == "systems") for name, found in sections.items()},
    }


def _notices(listed: ListedRows, more: Iterable[str]) -> Iterator[str]:
    """Yield what a reader must know before the numbers."""
    one, item = listed.mode.list_words.one, listed.mode.item
    yield from listed.rows.notices
    yield from listed.notes
    yield from more
    if missing := len(listed) - listed.found:
        reasons = f" ({'; '.join(listed.problems)})" if listed.problems else ""
        yield f"{counted(missing, one)} without text: the input row was not found{reasons}."
    if failed := int((listed.rows.flags & FAILED > 0).sum()):
        yield f"{counted(failed, item)} failed; the tables exclude failed {item}s."


def _origin(manifests: Sequence[RunManifest]) -> str:
    """Return who judged, by which rubric, and when."""
    models = dict.fromkeys(manifest.model.name for manifest in manifests)
    rubrics = dict.fromkeys(manifest.rubric.name for manifest in manifests)
    starts = sorted((start for each in manifests for start in each.starts), key=lambda start: start.instant)
    when = dict.fromkeys(starts[place].started[:10] for place in (0, -1))
    return f"judged by {', '.join(models)} · rubric {', '.join(rubrics)} · {' to '.join(when)}"
