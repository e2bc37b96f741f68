"""The rows of a run, from files or from a Python program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from localjudge.modes import prompt_rows
from localjudge.records import Failure, Row
from localjudge.rows.columns import CRITERION, JOIN, USED_FIELDS, Columns
from localjudge.rows.formats import can_be_read_twice, count_lines_of, sha256_of
from localjudge.rows.inputs import Inputs, find_inputs
from localjudge.rows.pairs import PairedRows, Pairing
from localjudge.rows.program_rows import rows_of_program
from localjudge.rows.reading import Reading
from localjudge.rows.record import MAX_ROW_BYTES
from localjudge.rows.row_limit import RowLimit


def _unknown() -> None:
    """Return no number of rows."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """The rows of a run, and their origin.

    Attributes:
        rows: the rows, in order; they are read once.
        inputs: the names of the files, for `run.json`; empty for rows of a Python program.
        columns: the column of each field whose column has a custom name.
        max_row_bytes: size limit of a row in bytes.
        pairing: how rows of two responses are made; None for rows of one.
        empty: names of the files without rows.
        readings: the reading of each file of rows by its name.
        checked: the files with what their first records show; None for rows of a Python program.
        limit: how many rows or pairs are used.
        count_all: returns the number of all rows of the files, if it is known before they are read.
    """

    rows: Iterable[Row | Failure] = ()
    inputs: Sequence[str] = ()
    columns: Columns = field(default_factory=dict)
    max_row_bytes: int = MAX_ROW_BYTES
    pairing: Pairing | None = None
    empty: Sequence[str] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)
    checked: Inputs | None = None
    limit: RowLimit = field(default_factory=RowLimit)
    count_all: Callable[[], int | None] = _unknown

    @property
    def files(self) -> list[str]:
        """The names of all files that are read: the inputs, and the one that they are joined with."""
        files = list(self.inputs)
        if JOIN in self.columns:
            files.append(self.columns[JOIN])
        return files

    @property
    def missing(self) -> dict[str, int]:
        """The number of instructions that a system has no response to, after the rows are read."""
        return self.rows.missing if isinstance(self.rows, PairedRows) else {}

    @property
    def recorded_readings(self) -> dict[str, Any]:
        """The fields of a `StartRecord` that say how the files were read."""
        if not self.readings:
            return {}
        recorded: dict[str, Any] = {
            "input_sha256": [sha256_of(name) for name in self.inputs],
            "readings": reading_records(self.inputs, self.readings),
        }
        if self.checked is not None and self.checked.late.lines:
            recorded["late_columns"] = self.checked.late.lines
        return recorded

    @classmethod
    def from_files(
        cls,
        names: Sequence[str],
        columns: Columns | None = None,
        *,
        used: Sequence[str],
        max_row_bytes: int = MAX_ROW_BYTES,
        limit: int | None = None,
        pairing: Pairing | None = None,
        readings: Mapping[str, Reading] | None = None,
    ) -> Self:
        """Find input files, and decide their readings from their first records.

        Args:
            names: files and globs; `-` is stdin, `examples` the included rows.
            columns: the column of each field whose column has a custom name.
            used: the fields that the rubric's template uses.
            max_row_bytes: size limit of a row in bytes; a larger row becomes a failure.
            limit: largest number of rows or pairs; None for all.
            pairing: how rows of two responses are made; by default each row holds both, and both orders are
                judged.
            readings: the stored reading of each file; None to decide them.

        Raises:
            UsageError: there is no such file, no file has rows, or a file has no reading.
        """
        if columns is None:
            columns = {}
        if pairing is None:
            pairing = Pairing.usual(used)
        files = find_inputs(names)
        needed = used if pairing is None else pairing.used(used)
        inputs = Inputs(files, columns, used=needed, shown=used, max_row_bytes=max_row_bytes, readings=readings)
        inputs.check()
        row_limit = RowLimit(limit, reads_on=all(can_be_read_twice(file) for file in files))
        has_one_prompt = pairing is None and CRITERION not in used
        return cls(
            rows=prompt_rows(lambda _: inputs.rows(), used, pairing=pairing, limit=row_limit),
            inputs=files,
            columns=columns,
            max_row_bytes=max_row_bytes,
            pairing=pairing,
            empty=inputs.empty,
            readings=inputs.readings,
            checked=inputs,
            limit=row_limit,
            count_all=partial(count_lines_of, files) if has_one_prompt else _unknown,
        )

    def count(self) -> int | None:
        """Return the number of rows, if it is known before they are read; None otherwise."""
        if self.limit.count is not None:
            return None
        return self.count_all()

    @classmethod
    def from_rows(cls, rows: object, used: Sequence[str] = USED_FIELDS, pairing: Pairing | None = None) -> Self:
        """Return a source of dicts, `Row`s, a pandas, Polars or Arrow table, or a `datasets.Dataset`.

        Args:
            rows: the rows.
            used: the fields that the rubric's template uses.
            pairing: as for `from_files`.

        Raises:
            UsageError: the argument is a single row, or not a collection of rows.
        """
        if pairing is None:
            pairing = Pairing.usual(used)
        return cls(prompt_rows(partial(rows_of_program, rows), used, pairing=pairing), pairing=pairing)


def reading_records(inputs: Sequence[str], readings: Mapping[str, Reading]) -> list[dict[str, Any]]:
    """Return the readings of inputs as a `StartRecord` has them: each once, with the indices of its inputs."""
    records: list[dict[str, Any]] = []
    for index, name in enumerate(inputs):
        reading = readings.get(name)
        if reading is None:
            continue
        same = [record for record in records if record["reading"] == reading]
        if same:
            same[0]["inputs"].append(index)
        else:
            records.append({"inputs": [index], "reading": reading})
    return records
