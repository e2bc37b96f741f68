"""The texts of judged rows, read again from the inputs of a run.

The lines of a run do not contain the texts of their rows. A row is identified by the digest of its texts, so
the texts that are found are exactly those that were judged; a row that has changed is not found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Self

from localjudge.errors import UsageError
from localjudge.modes import prompt_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Row
from localjudge.records.outcome_columns import MODEL, NOTICE
from localjudge.rows.columns import CONVERSATION, judges_conversation, own_fields
from localjudge.rows.formats import STDIN, can_be_read_twice
from localjudge.rows.inputs import Inputs, find_inputs
from localjudge.rows.reading import Reading
from localjudge.rows.row_store import RowStore
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_manifest import RunManifest, StartRecord


class RowTextStore(AbstractContextManager["RowTextStore"]):
    """The rows of a run with their texts, in a scratch file; memory grows by a few numbers for each row.

    Args:
        manifest: the manifest of the run.
        digests: the digests of the rows whose texts are needed; None for a row that was not readable.
        moved: the files to read, if the inputs were moved or renamed after the run.

    Attributes:
        problems: a message for each input that could not be read.
    """

    def __init__(self, manifest: RunManifest, digests: Iterable[str | None], moved: Iterable[str] = ()) -> None:
        different = list(dict.fromkeys(digests))  # a damaged line ends it before a file is open
        self._stored = RowStore()
        self._number_of: dict[str | None, int] = {}
        self.problems: list[str] = []
        for index, row in rows_found(manifest, different, moved=moved, problems=self.problems):
            self._number_of[different[index]] = len(self._stored)
            self._stored.append(replace(row, columns={}))

    def __exit__(self, *exception: object) -> None:
        self._stored.__exit__(*exception)

    def get(self, digest: str | None) -> Row | None:
        """Return the row with this digest, as its prompt shows it; None if it was not found."""
        number = self._number_of.get(digest)
        if number is None:
            return None
        row = self._stored[number]
        return row if isinstance(row, Row) else None


def rows_found(
    manifest: RunManifest,
    digests: Sequence[str | None],
    moved: Iterable[str] = (),
    problems: list[str] | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yield the index of each of these digests whose row is in the inputs of a run, and the row.

    Equal digests get rows of their own, such as those of systems that answered alike, as far as there are some.

    Args:
        manifest: the manifest of the run.
        digests: the digests of rows; None for none.
        moved: the files to read, if the inputs were moved or renamed after the run.
        problems: receives a message for each input that cannot be read.
    """
    if problems is None:
        problems = []
    waiting: dict[str, list[int]] = defaultdict(list)  # the indices of each digest that have no row yet
    for index, digest in enumerate(digests):
        if digest is not None:
            waiting[digest].append(index)
    last_rows: dict[str, Row] = {}
    for row in rows_again(manifest, moved, problems=problems):
        if not waiting:
            return
        digest = row.digest.hex()
        if digest not in waiting:
            continue
        yield waiting[digest].pop(0), row
        last_rows[digest] = row
        if not waiting[digest]:
            del waiting[digest]
            del last_rows[digest]
    for digest, row in last_rows.items():
        for index in waiting[digest]:
            yield index, row


def rows_again(manifest: RunManifest, moved: Iterable[str], problems: list[str]) -> Iterator[Row]:
    """Yield the rows of all inputs of all starts of a run; inputs that cannot be read are skipped.

    Args:
        manifest: the manifest of the run.
        moved: the files to read, if the inputs were moved or renamed after the run.
        problems: receives a message for each input that cannot be read.
    """
    moved = list(moved)
    starts: dict[tuple[object, ...], StartRecord] = {}  # of starts that read the same in the same way, the last
    for start in manifest.starts:
        # Pairs are formed of the rows of all files, and answers are joined with the questions of another file.
        names = moved or start.inputs
        columns = tuple(sorted(start.columns.items()))
        starts[tuple(names), columns, start.max_row_bytes, start.pairing] = start
    for start in starts.values():
        files_of_inputs = [
            _readable_files(name, is_moved=bool(moved), problems=problems) for name in moved or start.inputs
        ]
        yield from _rows_of_start(start, files_of_inputs, used=manifest.rubric.fields, problems=problems)


def _rows_of_start(
    start: StartRecord, files_of_inputs: Sequence[Sequence[str]], *, used: Sequence[str], problems: list[str]
) -> Iterator[Row]:
    """Yield the rows of the inputs of a start, read by its stored readings.

    Args:
        start: the start.
        files_of_inputs: the files of each input, or those that are read instead.
        used: the fields that the rubric's template uses.
        problems: receives a message if the rows cannot be read.
    """
    readings = _readings_of(start, files_of_inputs)
    files = _joined(files_of_inputs)
    needed = used if start.pairing is None else start.pairing.used(used)
    try:
        inputs = Inputs(files, start.columns, used=needed, max_row_bytes=start.max_row_bytes, readings=readings)
        for row in prompt_rows(lambda _: inputs.rows(), used, pairing=start.pairing):
            if isinstance(row, Row):
                yield row
    except UsageError as error:  # without some of the files, no pairs can be formed
        problems.append(str(error))


def _joined(lists: Iterable[Sequence[str]]) -> list[str]:
    """Return the texts of all lists, in order."""
    return list(chain.from_iterable(lists))


def _readings_of(start: StartRecord, files_of_inputs: Sequence[Sequence[str]]) -> dict[str, Reading] | None:
    """Return the stored reading of each file that is read again; None if the start has none.

    Args:
        start: the start.
        files_of_inputs: the files of each input, or those that are read instead.
    """
    if not start.readings:
        return None
    names = [files[0] if len(files) == 1 else "" for files in files_of_inputs]
    if "" in names and len(names) == len(start.inputs):
        return {name: reading for name, reading in start.reading_of(names).items() if name}
    return start.reading_of(_joined(files_of_inputs))


def _readable_files(name: str, *, is_moved: bool, problems: list[str]) -> list[str]:
    """Return the files of an input that can be read again.

    Args:
        name: the name of the input.
        is_moved: whether it is given now, in place of an input of the run.
        problems: receives a message if there is none.
    """
    if name == STDIN:
        problems.append("the rows came from stdin")
        return []
    if not is_moved and not can_be_read_twice(name):
        problems.append(f"{name}: No such file, or none that can be read twice")
        return []
    try:
        return find_inputs([name])
    except UsageError as error:
        problems.append(str(error))
        return []


@dataclass(frozen=True, slots=True)
class _TextColumns:
    """The columns of a row's texts in a table.

    Attributes:
        texts: the columns of the instruction, the reference and the responses, by which these can be read as a
            row again.
        column_of_field: the column of each further field of the template.
    """

    texts: Sequence[str]
    column_of_field: Mapping[str, str]

    @classmethod
    def of_rubric(cls, rubric: Rubric, other_columns: Iterable[str]) -> Self:
        """Return the columns for a rubric; a field with the name of another column gets a prefix."""
        texts = list(rubric.mode.texts)
        if judges_conversation(rubric.fields):
            texts = [CONVERSATION if name == "candidate" else name for name in texts]
        used = set(other_columns) | set(texts) | {MODEL, NOTICE}
        column_of_field: dict[str, str] = {}
        for field in sorted(own_fields(rubric.fields), key=used.__contains__):  # free names are kept
            column = field
            while column in used:
                column = f"input_{column}"
            column_of_field[field] = column
            used.add(column)
        return cls(texts=texts, column_of_field=column_of_field)

    @property
    def names(self) -> list[str]:
        return list(self.texts) + list(self.column_of_field.values())

    def values(self, row: Row, *, swapped: bool) -> dict[str, str | None]:
        """Return the texts of a row, by column.

        Args:
            row: the row.
            swapped: whether its responses stand in the reverse of the input's order.
        """
        texts = (row.instruction, row.reference, *row.texts_in_input_order(swapped))
        values: dict[str, str | None] = dict(zip(self.texts, texts, strict=True))
        for field, text in row.fields.items():
            if field in self.column_of_field:
                values[self.column_of_field[field]] = text
        return values


def with_text_columns(
    folder: Path,
    manifest: RunManifest,
    *,
    rows: Callable[[], Iterable[RowOutcome]],
    other_columns: Iterable[str],
) -> tuple[list[str], Iterator[tuple[RowOutcome, dict[str, str | None]]]]:
    """Return the names of the columns of texts in a table, and each outcome with these columns.

    A field of the template with the name of another column gets a prefix.

    Args:
        folder: the run directory, for messages.
        manifest: the manifest of the run.
        rows: returns the outcomes of its rows; it is called twice.
        other_columns: the other columns of the table.

    Raises:
        UsageError: the inputs are missing, or a row has changed.
    """
    columns = _TextColumns.of_rubric(manifest.rubric, other_columns)
    return columns.names, _with_texts(folder, manifest, rows=rows, columns=columns)


def _with_texts(
    folder: Path, manifest: RunManifest, *, rows: Callable[[], Iterable[RowOutcome]], columns: _TextColumns
) -> Iterator[tuple[RowOutcome, dict[str, str | None]]]:
    """Yield each outcome with the texts of its row, by column; of a row that was not readable, none.

    Raises:
        UsageError: the inputs are missing, or a row has changed.
    """
    with RowTextStore(manifest, (outcome.first.digest for outcome in rows())) as store:
        if store.problems:
            problems = "; ".join(store.problems)
            raise UsageError(f"{folder}: its rows cannot be read again: {problems}; restore the inputs")
        for outcome in rows():
            first = outcome.first
            row = store.get(first.digest)
            if row is None and first.digest:
                raise UsageError(f"{folder}: {first.source} has changed since it was judged; restore the input")
            if row is None:
                yield outcome, {}
            else:
                yield outcome, columns.values(row, swapped=first.swapped)
