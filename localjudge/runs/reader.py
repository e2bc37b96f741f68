"""Reading a run directory: its files, its lines, whether it is complete, and its notices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localjudge.runs.journal import read_journal
from localjudge.runs.notices import notices
from localjudge.runs.run_manifest import read_manifest

JUDGEMENTS = "judgements.jsonl"


SET_ASIDE = "set-aside.jsonl"


SUMMARY = "summary.json"


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run, a torn last one left out.

    Raises:
        RunMismatchError: the folder holds no run, or there is a line that is none of a run.
    """
    aspects = read_manifest(folder)["rubric"]["aspects"]
    return (line for _, line in read_journal(folder / JUDGEMENTS, aspects))


def is_complete(folder: Path) -> bool:
    """Return whether every row has its line, in the input's order: the summary, written last, says so."""
    try:
        return json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["complete"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_notices(folder: Path) -> tuple[str, ...]:
    """Return what a reader must know of a run before its numbers (`localjudge.runs.notices`).

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    manifest, complete = read_manifest(folder), is_complete(folder)
    rows = truncated = 0
    if not complete or manifest["settings"].get("on_overflow") == "truncate-candidate":
        for line in read_lines(folder):
            rows += 1
            truncated += bool(line["candidate_cut"])
    return notices(manifest, complete, rows, truncated)
