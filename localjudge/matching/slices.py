"""Slices of runs: the rows with the same value in a column of the input, such as a topic or a language."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.arrays import Integers
from localjudge.errors import UsageError
from localjudge.rows.columns import names_of, responses_of
from localjudge.rows.row import record_of
from localjudge.runs.reader import numbered_row_outcomes
from localjudge.runs.reread_texts import rows_found
from localjudge.runs.run_manifest import RunManifest
from localjudge.runs.summary import system_value

MOST = 50
"""Largest number of slices; a column with more values tells rows apart, and does not group them."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of n judged rows: their names, and the slice of each row, [n]; -1 if it has no value."""

    column: str
    names: tuple[str, ...]
    of_row: Integers


def read_slices(
    folders: Sequence[Path], manifests: Sequence[RunManifest], column: str, inputs: Iterable[str] = ()
) -> Slices:
    """Return the slices of the judged rows of runs, in the order in which the statistics read them.

    The systems are a column, too. A column that the prompt used is not in the lines of a run, so it is read
    again from the inputs.

    Args:
        folders: the run directories.
        manifests: their manifests.
        column: the column.
        inputs: the input files, if they were moved.

    Raises:
        UsageError: no row has the column, or it has too many values.
    """
    rows: list[tuple[int, str | None, Any]] = []  # the run, the digest and the value of each row
    seen: dict[str, None] = {}
    for run, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
        of_systems = system_value(manifest, column)
        for _, outcome in numbered_row_outcomes(folder, manifest):
            if outcome.error is None:
                seen |= dict.fromkeys(outcome.first.columns)
                value = outcome.first.columns.get(column)
                value = of_systems(outcome.systems) if value is None else value
                rows.append((run, outcome.first.digest, value))
    values = [value for *_, value in rows]
    if all(value is None for value in values):
        start = 0
        for run, of_run in groupby(rows, lambda row: row[0]):
            digests, manifest = [digest for _, digest, _ in of_run], manifests[run]
            used, columns = manifest.rubric.fields, manifest.last_start.columns
            for place, row in rows_found(manifest, digests, inputs):
                record = record_of(row, responses_of(used))
                field = next((name for name in record if column in names_of(name, columns, used)), column)
                values[start + place] = record.get(field)
            start += len(digests)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    names = sorted({text for text in texts if text is not None})
    if not 0 < len(names) <= MOST:
        why = f"has {len(names):,} values; give one with at most {MOST}" if names else "no row has this column"
        there = ", ".join(["system", *seen])
        raise UsageError(f"`by_column` {column}: {why}; the other columns of these rows are {there}")
    places = {name: place for place, name in enumerate(names)}
    return Slices(column, tuple(names), np.array([-1 if text is None else places[text] for text in texts]))
