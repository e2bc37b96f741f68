"""Reading a run directory: its files, its lines, whether it is complete, and its notices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from localjudge.errors import RunMismatchError, UsageError
from localjudge.line_format import arrow_schema, from_line, to_json
from localjudge.records import Outcome, row_key, settings_digest
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.journal import read_journal
from localjudge.runs.notices import notices
from localjudge.runs.run_manifest import MANIFEST, read_manifest

JUDGEMENTS = "judgements.jsonl"
SET_ASIDE = "set-aside.jsonl"
SUMMARY = "summary.json"
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run directory as a program reads it: iterate it for its outcomes, in the order of its lines.

        run = load_run("runs/monday")
        print(run.notices)
        table = run.to_pandas()

    Attributes:
        folder: the run directory.
        rubric: the rubric that it was judged by.
        notices: what a reader must know before the numbers.
        complete: whether every row has its line, in the input's order.
    """

    folder: Path
    rubric: Rubric
    notices: tuple[str, ...]
    complete: bool

    def __iter__(self) -> Iterator[Outcome]:
        return (from_line(line, self.rubric.aspects) for line in read_lines(self.folder))

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with a row for each line; what the input had besides is under `columns`.

        Raises:
            UsageError: pandas is not installed.
        """
        return _library("pandas").DataFrame.from_records(list(read_lines(self.folder)))

    def to_polars(self) -> Any:
        """Return a Polars DataFrame with a row for each line; `columns` is JSON text.

        Raises:
            UsageError: Polars is not installed.
        """
        return _library("polars").DataFrame(list(self._flat()), infer_schema_length=None)

    def to_arrow(self) -> Any:
        """Return an Arrow table with a row for each line; `columns` is JSON text.

        Raises:
            UsageError: PyArrow is not installed.
        """
        return _library("pyarrow").Table.from_pylist(list(self._flat()), arrow_schema(self.rubric.aspects))

    def _flat(self) -> Iterator[dict[str, Any]]:
        return (line | {"columns": to_json(line["columns"], line)} for line in read_lines(self.folder))


def load_run(folder: str | Path) -> RecordedRun:
    """Open a run directory for reading.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    folder = Path(folder)
    rubric = Rubric.model_validate(read_manifest(folder)["rubric"])
    return RecordedRun(folder, rubric, read_notices(folder), is_complete(folder))


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed: pip install {name}") from None


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run, a torn last one left out.

    Raises:
        RunMismatchError: the folder holds no run, or there is a line that is none of this run: damaged, off the
            scale, or made with other settings than those in `run.json`.
    """
    manifest = read_manifest(folder)
    return _own_lines(folder / JUDGEMENTS, manifest)


def _own_lines(file: Path, manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    aspects, scale = manifest["rubric"]["aspects"], manifest["rubric"]["scale"]
    settings = settings_digest(manifest["settings"])
    has_row_keys = "jury" not in manifest  # a jury's keys follow from its jurors'
    for number, (_, line) in enumerate(read_journal(file, aspects), 1):
        if has_row_keys and line["digest"] and line["key"] != _key(settings, line["digest"]):
            raise RunMismatchError(
                f"{file}:{number}: not made with the settings in {MANIFEST}: one of the two is another "
                "run's, or was edited; where it is this line, delete it, and the same score command judges its "
                "row again"
            )
        if line["status"] == "judged" and not all(_is_on(scale, line, aspect) for aspect in aspects):
            raise RunMismatchError(
                f"{file}:{number}: a score off the scale {scale['lowest']} to {scale['highest']}; delete this "
                "line, and the same score command judges its row again"
            )
        yield line


def _key(settings: bytes, digest: Any) -> str | None:
    try:
        return row_key(settings, bytes.fromhex(digest))
    except (TypeError, ValueError):
        return None


def _is_on(scale: Mapping[str, int], line: Mapping[str, Any], aspect: str) -> bool:
    """Return whether an aspect's score, and the expected one but for rounding, are on the scale."""
    lowest, highest, expected = scale["lowest"], scale["highest"], line[f"{aspect}_expected"]
    on = bool(lowest <= line[aspect] <= highest)
    return on and (expected is None or lowest - _ROUNDING <= expected <= highest + _ROUNDING)


def is_marked_complete(folder: Path) -> bool:
    """Return whether the summary, written last, says that every row has its line, in the input's order."""
    return _rows_if_complete(folder) is not None


def is_complete(folder: Path) -> bool:
    """Return whether the summary says so and counts as many rows as there are lines."""
    try:
        return _rows_if_complete(folder) == _count_lines(folder / JUDGEMENTS)
    except OSError:
        return False


def _rows_if_complete(folder: Path) -> int | None:
    try:
        if not (folder / SUMMARY).is_file():
            return None
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        return int(summary["rows"]) if summary["complete"] is True else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _count_lines(file: Path) -> int:
    if not file.is_file():
        return 0
    with file.open("rb") as stream:
        return sum(piece.count(b"\n") for piece in iter(lambda: stream.read(2**20), b""))


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
