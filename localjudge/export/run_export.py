"""Export a run to the formats of other tools."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.export import alpaca_eval
from localjudge.export import inspect_log as inspect
from localjudge.export import tabular as tables
from localjudge.outcome_columns import MODEL, NOTICE, TEXTS, AnswerColumns, column_names, to_line
from localjudge.records import Outcome
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.runs.reread_texts import Text, Texts
from localjudge.runs.run_manifest import read_manifest
from localjudge.system.durable import replacing
from localjudge.system.requirements import require

TABLES = {"jsonl": tables.write_jsonl, "csv": tables.write_csv, "parquet": tables.write_parquet}
FORMS = (*TABLES, "alpaca-eval", "inspect")


def export(folder: Path, to: str, out: Path, with_texts: bool = False, baseline: str | None = None) -> int:
    """Write a run in the format of another tool.

    Args:
        folder: the run directory.
        to: one of `FORMS`.
        out: the file to write, or for `inspect` a folder; written completely or not at all.
        with_texts: for a table, include the instruction, the reference and the candidate of each row.
        baseline: for `alpaca-eval`, the system to compare the others with.

    Returns:
        The number of rows written.

    Raises:
        UsageError: there is no such format or run, the texts of its rows cannot be found, or the folder for
            `inspect` contains other files than Inspect's logs.
    """
    if to not in FORMS:
        raise UsageError(f"--to {to}: give one of {', '.join(FORMS)}")
    if to in ("parquet", "inspect"):
        require(f"--to {to}", to)
    if to == "inspect":
        refuse_other_files(out)
    manifest = read_manifest(folder)
    inputs = {name for start in manifest.starts for name in start.inputs}
    if any(same_file(name, out) or Path(name) in out.resolve().parents for name in inputs):
        raise UsageError(f"--out {out}: is an input of this run; choose another name")
    columns = manifest.rubric.columns
    notices = read_notices(folder)
    origin = {MODEL: manifest.model.judge, NOTICE: "\n".join(notices) or None}
    try:
        with replacing(out) as scratch:
            if to in TABLES:
                texts = (*TEXTS, *(name for name in manifest.rubric.fields if name not in TEXTS))
                texts = texts if with_texts else ()
                lines, names = _lines(folder, columns, texts), [*column_names(columns), *texts]
                rows = TABLES[to](lines, names, columns, scratch, origin)
            elif to == "alpaca-eval":
                rows = alpaca_eval.write_annotations(
                    lambda: outcomes_with_texts(folder), manifest, scratch, baseline, origin
                )
            else:
                rows = inspect.write_logs(outcomes_with_texts(folder), manifest, scratch, notices)
            if to == "inspect" and out.is_dir():
                refuse_other_files(out)
                for log in out.iterdir():
                    log.unlink()
                out.rmdir()
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}") from None
    return rows


def same_file(one: str | Path, other: str | Path) -> bool:
    """Return whether two paths are the same existing file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def refuse_other_files(out: Path) -> None:
    """Check that an output folder is new, or contains only Inspect's logs, which are replaced.

    Raises:
        UsageError: it is not a folder, or contains something else.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(f"--out {out}: is not a folder; give a new one")
    others = [each.name for each in out.iterdir() if not _is_log(each)] if out.is_dir() else []
    if others:
        raise UsageError(f"--out {out}: contains {min(others)}, which is not an Inspect log; give a new folder")


def _is_log(file: Path) -> bool:
    return file.suffix == ".eval" and file.is_file() and not file.is_symlink()


def outcomes_with_texts(folder: Path) -> Iterator[tuple[Outcome, Text | None]]:
    """Yield the outcomes of a run, each with the texts of its row (None for a row that could not be read).

    Raises:
        UsageError: the inputs are missing, or a row has changed.
    """
    with Texts(read_manifest(folder), read_outcomes(folder)) as texts:
        if texts.problems:
            raise UsageError(
                f"{folder}: its rows cannot be read again: {'; '.join(texts.problems)}; restore the inputs"
            )
        for outcome in read_outcomes(folder):
            text = texts.get(outcome)
            if text is None and outcome.digest:
                raise UsageError(
                    f"{folder}: {outcome.source} has changed since it was judged; restore the input"
                )
            yield outcome, text


def _lines(folder: Path, columns: AnswerColumns, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    if not texts:
        return (to_line(outcome, columns) for outcome in read_outcomes(folder))
    return (
        to_line(outcome, columns)
        | dict.fromkeys(texts)
        | {name: getattr(text, name, None) for name in TEXTS}
        | dict(text.fields if text else {})
        for outcome, text in outcomes_with_texts(folder)
    )
