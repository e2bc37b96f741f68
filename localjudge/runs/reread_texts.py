"""The texts of judged rows, read again from the inputs of a run.

The lines of a run do not contain the texts of their rows. A row is identified by the digest of its texts, so
the texts that are found are exactly those that were judged; a row that has changed is not found.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Row
from localjudge.records.outcome_columns import MODEL, NOTICE
from localjudge.rows.columns import CRITERION, NUMBERED_CRITERIA
from localjudge.rows.formats import STDIN
from localjudge.rows.inputs import can_be_read_twice, find_inputs
from localjudge.rows.pairs import paired_rows
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_manifest import RunManifest, StartRecord
from localjudge.system.durable import LineStore


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The texts of one row; `fields` has those of further columns that the rubric uses.

    `candidate` is the response that the judge reads first, and `opponent` the other one of a pair.
    """

    instruction: str
    reference: str | None
    candidate: str
    opponent: str | None
    fields: Mapping[str, str]

    def responses(self, swapped: bool) -> tuple[str, str | None]:
        """Return the response, or both of a pair, in the input's order.

        Args:
            swapped: whether the judge read the responses in the reverse of that order.
        """
        return (self.opponent or "", self.candidate) if swapped else (self.candidate, self.opponent)

    def columns(
        self, names: Sequence[str], swapped: bool, column_of: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the columns of a table.

        Args:
            names: the names of the columns of the instruction, the reference and the responses.
            swapped: as for `responses`.
            column_of: the column of each further field.
        """
        said = (self.instruction, self.reference, *self.responses(swapped))
        fields = {column_of[field]: text for field, text in self.fields.items() if field in column_of}
        return dict(zip(names, said, strict=False)) | fields


class RowTextStore(AbstractContextManager["RowTextStore"]):
    """The texts of a run's rows, in a scratch file; memory grows by a few numbers for each row.

    Args:
        manifest: the manifest of the run.
        digests: the digests of the rows whose texts are needed; None for a row that was not readable.
        moved: the files to read, if the inputs were moved or renamed after the run.

    Attributes:
        problems: a message for each input that could not be read.
    """

    def __init__(self, manifest: RunManifest, digests: Iterable[str | None], moved: Iterable[str] = ()) -> None:
        wanted = set(digests) - {None}  # a damaged line ends it before a file is open
        self._stored = LineStore.scratch()
        self._places: dict[str, int] = {}
        self.problems: list[str] = []
        for row in rows_again(manifest, moved, self.problems):
            digest = row.digest.hex()
            if digest in wanted:
                wanted.remove(digest)
                self._places[digest] = len(self._stored)
                opponent = row.responses[1].text if len(row.responses) > 1 else None
                texts = [row.instruction, row.reference, row.candidate, opponent, dict(row.fields)]
                self._stored.append(json.dumps(texts).encode())
            if not wanted:
                break

    def __exit__(self, *exception: object) -> None:
        self._stored.__exit__(*exception)

    def get(self, digest: str | None) -> RowTexts | None:
        """Return the texts of the row with this digest; None if they were not found."""
        place = None if digest is None else self._places.get(digest)
        return None if place is None else RowTexts(*json.loads(self._stored[place]))


def rows_found(
    manifest: RunManifest, digests: Sequence[str | None], moved: Iterable[str] = ()
) -> Iterator[tuple[int, Row]]:
    """Yield the place of each of these digests whose row is in the inputs of a run, and the row.

    Equal digests get rows of their own, such as those of systems that answered alike, as far as there are some.

    Args:
        manifest: the manifest of the run.
        digests: the digests of rows; None for none.
        moved: the files to read, if the inputs were moved or renamed after the run.
    """
    places: dict[str | None, list[int]] = defaultdict(list)
    for place, digest in enumerate(digests):
        places[digest].append(place)
    places.pop(None, None)
    last: dict[str, Row] = {}
    for row in rows_again(manifest, moved, problems=[]) if places else ():
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
    fields = manifest.rubric.fields
    sources: dict[tuple[object, ...], tuple[list[str], StartRecord]] = {}
    for start in manifest.starts:
        # Pairs are formed of the rows of all files, and answers are joined with the questions of another file.
        names = moved or start.inputs
        how = (tuple(names), tuple(sorted(start.columns.items())), start.max_row_bytes, start.pairing)
        sources[how] = names, start
    for names, start in sources.values():
        found = [file for name in names for file in _readable(name, bool(moved), problems)]
        rows = paired_rows(found, start.columns, start.max_row_bytes, fields, start.pairing)
        try:
            yield from (row for row in rows if isinstance(row, Row))
        except UsageError as error:  # without some of the files, no pairs can be formed
            problems.append(str(error))


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


def rows_with_texts(
    folder: Path, manifest: RunManifest, rows: Callable[[], Iterable[RowOutcome]]
) -> Iterator[tuple[RowOutcome, RowTexts | None]]:
    """Yield each outcome with the texts that its first prompt shows; None for a row that was not readable.

    Args:
        folder: the run directory, for messages.
        manifest: the manifest of the run.
        rows: returns the outcomes of its rows; it is called twice.

    Raises:
        UsageError: the inputs are missing, or a row has changed.
    """
    with RowTextStore(manifest, (row.first.digest for row in rows())) as texts:
        if texts.problems:
            why = "; ".join(texts.problems)
            raise UsageError(f"{folder}: its rows cannot be read again: {why}; restore the inputs")
        for row in rows():
            text = texts.get(row.first.digest)
            if text is None and row.first.digest:
                source = row.first.source
                raise UsageError(f"{folder}: {source} has changed since it was judged; restore the input")
            yield row, text


def text_columns(rubric: Rubric, taken: Iterable[str]) -> dict[str, str]:
    """Return the column of each field of a template in a table with texts; a name that is taken gets a prefix.

    Args:
        rubric: the rubric.
        taken: the other columns of the table.
    """
    used = {*taken, *rubric.mode.texts, MODEL, NOTICE}
    column_of: dict[str, str] = {}
    for field in sorted(rubric.fields, key=lambda field: field in used):  # free names are kept
        if field not in (*rubric.mode.texts, CRITERION, NUMBERED_CRITERIA):
            column_of[field] = field
            while column_of[field] in used:
                column_of[field] = f"input_{column_of[field]}"
            used.add(column_of[field])
    return column_of
