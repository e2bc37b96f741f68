"""The texts of judged rows, read again from the inputs of a run.

The lines of a run do not contain the texts of their rows. A row is identified by the digest of its texts, so
the texts that are found are exactly those that were judged; a row that has changed is not found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.modes import prompt_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Row
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
        wanted = [*dict.fromkeys(digests)]  # a damaged line ends it before a file is open
        self._stored = RowStore()
        self._places: dict[str | None, int] = {}
        self.problems: list[str] = []
        for place, row in rows_found(manifest, wanted, moved, self.problems):
            self._places[wanted[place]] = len(self._stored)
            self._stored.append(replace(row, columns={}))

    def __exit__(self, *exception: object) -> None:
        self._stored.__exit__(*exception)

    def get(self, digest: str | None) -> Row | None:
        """Return the row with this digest, as its prompt shows it; None if it was not found."""
        row = self._stored[self._places[digest]] if digest in self._places else None
        return row if isinstance(row, Row) else None


def rows_found(
    manifest: RunManifest,
    digests: Sequence[str | None],
    moved: Iterable[str] = (),
    problems: list[str] | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yield the place of each of these digests whose row is in the inputs of a run, and the row.

    Equal digests get rows of their own, such as those of systems that answered alike, as far as there are some.

    Args:
        manifest: the manifest of the run.
        digests: the digests of rows; None for none.
        moved: the files to read, if the inputs were moved or renamed after the run.
        problems: receives a message for each input that cannot be read.
    """
    places: dict[str | None, list[int]] = defaultdict(list)
    for place, digest in enumerate(digests):
        places[digest].append(place)
    places.pop(None, None)
    last: dict[str, Row] = {}
    for row in rows_again(manifest, moved, [] if problems is None else problems):
        if not places:
            return
        digest = row.digest.hex()
        if waiting := places.get(digest):
            yield waiting.pop(0), row
            last[digest] = row
            if not waiting:
                del places[digest], last[digest]
    for digest, row in last.items():
        yield from ((place, row) for place in places[digest])


def rows_again(manifest: RunManifest, moved: Iterable[str], problems: list[str]) -> Iterator[Row]:
    """Yield the rows of all inputs of all starts of a run; inputs that cannot be read are skipped.

    Args:
        manifest: the manifest of the run.
        moved: the files to read, if the inputs were moved or renamed after the run.
        problems: receives a message for each input that cannot be read.
    """
    moved = list(moved)
    used = manifest.rubric.fields
    sources: dict[tuple[object, ...], tuple[list[str], StartRecord]] = {}
    for start in manifest.starts:
        # Pairs are formed of the rows of all files, and answers are joined with the questions of another file.
        names = moved or start.inputs
        how = (tuple(names), tuple(sorted(start.columns.items())), start.max_row_bytes, start.pairing)
        sources[how] = names, start
    for names, start in sources.values():
        files = [_readable(name, bool(moved), problems) for name in names]
        readings = _readings_of(start, files)
        found = [file for matches in files for file in matches]
        needed = used if start.pairing is None else start.pairing.used(used)
        try:
            inputs = Inputs(found, start.columns, needed, max_row_bytes=start.max_row_bytes, readings=readings)
            rows = prompt_rows(partial(_rows_of, inputs), used, start.pairing)
            yield from (row for row in rows if isinstance(row, Row))
        except UsageError as error:  # without some of the files, no pairs can be formed
            problems.append(str(error))


def _rows_of(inputs: Inputs, used: Sequence[str]) -> Iterable[Row | Failure]:
    """Return the rows of inputs that were opened for these fields."""
    return inputs.rows()


def _readings_of(start: StartRecord, files: Sequence[Sequence[str]]) -> dict[str, Reading] | None:
    """Return the stored reading of each file that is read again; None if the start has none.

    Args:
        start: the start.
        files: the files of each input in its place, or those that are read instead.
    """
    if not start.readings:
        return None
    names = [matches[0] if len(matches) == 1 else "" for matches in files]
    if "" in names and len(names) == len(start.inputs):
        return {name: reading for name, reading in start.reading_of(names).items() if name}
    return start.reading_of([name for matches in files for name in matches])


def _readable(name: str, moved: bool, problems: list[str]) -> list[str]:
    """Return the files of an input that can be read again."""
    if name == STDIN:
        problems.append("the rows came from stdin")
    elif not moved and not can_be_read_twice(name):
        problems.append(f"{name}: No such file, or none that can be read twice")
    else:
        try:
            return find_inputs([name])
        except UsageError as error:
            problems.append(str(error))
    return []


def _text_columns(rubric: Rubric) -> tuple[str, ...]:
    """Return the columns of the texts of a row in an export, by which they can be read as a row again."""
    if not judges_conversation(rubric.fields):
        return rubric.mode.texts
    return tuple(CONVERSATION if name == "candidate" else name for name in rubric.mode.texts)


def with_text_columns(
    folder: Path, manifest: RunManifest, rows: Callable[[], Iterable[RowOutcome]], taken: Iterable[str]
) -> tuple[list[str], Iterator[tuple[RowOutcome, dict[str, str | None]]]]:
    """Return the names of the columns of texts in a table, and each outcome with these columns.

    A field of the template with the name of another column gets a prefix.

    Args:
        folder: the run directory, for messages.
        manifest: the manifest of the run.
        rows: returns the outcomes of its rows; it is called twice.
        taken: the other columns of the table.

    Raises:
        UsageError: the inputs are missing, or a row has changed.
    """
    names, column_of = _text_columns(manifest.rubric), dict[str, str]()
    used = {*taken, *names, MODEL, NOTICE}
    for field in sorted(own_fields(manifest.rubric.fields), key=used.__contains__):  # free names are kept
        column_of[field] = field
        while column_of[field] in used:
            column_of[field] = f"input_{column_of[field]}"
        used.add(column_of[field])

    def columns(outcome: RowOutcome, row: Row | None) -> dict[str, str | None]:
        if row is None and outcome.first.digest:
            source = outcome.first.source
            raise UsageError(f"{folder}: {source} has changed since it was judged; restore the input")
        if row is None:  # it was not readable
            return {}
        texts = (row.instruction, row.reference, *row.texts_in_input_order(outcome.first.swapped))
        fields = {column_of[field]: text for field, text in row.fields.items() if field in column_of}
        return dict(zip(names, texts, strict=True)) | fields

    def outcomes() -> Iterator[tuple[RowOutcome, dict[str, str | None]]]:
        with RowTextStore(manifest, (row.first.digest for row in rows())) as texts:
            if texts.problems:
                why = "; ".join(texts.problems)
                raise UsageError(f"{folder}: its rows cannot be read again: {why}; restore the inputs")
            for row in rows():
                yield row, columns(row, texts.get(row.first.digest))

    return [*names, *column_of.values()], outcomes()
