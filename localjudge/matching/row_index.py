"""Match records to judged rows: labels to the rows of a run, and the rows of one run to those of another.

Texts decide where both sides have them: every text that the rubric shows, which are the instruction, each
response, the reference and its own fields. Where a record lacks one of them, its id and its system decide
between rows that differ in it. Equal texts of several systems are told apart by the system, except where a
person saw the texts alone: such a label is of all of them. Without texts, the id and the system decide; an id
alone does so only if it is unique on both sides. A record that contradicts its row, in a text or in the system,
is counted and never matched; a record whose row cannot be determined is refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from localjudge.errors import UsageError
from localjudge.matching.identity import Identity, shared_fields
from localjudge.records import Row
from localjudge.rows.columns import TURN, responses_of

BY_ID_ALONE = "matched by id alone; nothing shows that these labels are of these responses"


class Mismatch(Enum):
    """Why a record matches no row."""

    NO_ROW = "match no judged {noun}{which}"
    OTHER_TEXT = "have the id of a judged {noun}, but another text"
    OTHER_TURN = "are of another turn than their {noun}"
    OTHER_SYSTEM = "have another system than their {noun}"


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a record, by their numbers from 0: none, one, or several with the same texts and systems.

    `is_reversed` is True if the record has the two responses of its rows in the other order.
    """

    rows: tuple[int, ...] = ()
    is_reversed: bool = False


class RowIndex:
    """Judged rows, to be found by records from elsewhere. A row is its number, from 0.

    Args:
        rows: the identity of each row. Rows with the same texts and systems are draws of one response.
        texts_again: yields the number of each row whose texts are found in the inputs, and the row with its
            responses in their order; it is called only if texts are needed that the identities lack.
        used: the fields that the template of the rows' rubric uses.
        noun: "row" or "pair", for messages.
    """

    def __init__(
        self,
        rows: Sequence[Identity],
        used: Sequence[str],
        texts_again: Callable[[], Iterable[tuple[int, Row]]] = tuple,
        noun: str = "row",
    ) -> None:
        self.noun = noun
        self._rows = list(rows)
        self._used = used
        self._responses = responses_of(used)
        self._shared_fields = shared_fields(used)
        self._texts_again = texts_again
        self._is_read_again = False
        self._systems_of_records: dict[int, tuple[str | None, ...]] = {}  # of rows matched by id alone
        self._records = 0
        self._matched_by_id = 0
        self._matched_unread = 0
        self._mismatches = Counter[Mismatch]()
        self._first_mismatch: dict[Mismatch, str] = {}
        self._by_digests: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
        self._by_id: dict[str | None, list[int]] = defaultdict(list)
        for row, identity in enumerate(self._rows):
            self._by_id[identity.id].append(row)
            if identity.has_digests:
                self._by_digests[identity.digests].append(row)

    def find(self, record: Identity) -> Match:
        """Return the rows of a record, and count it.

        Raises:
            UsageError: several rows fit, and the record or the rows lack the column that would tell which.
        """
        self._records += 1
        if self._needs_texts(record):
            self._read_again()
        orders = [record]
        if len(record.digests) > 1:
            orders.append(record.reversed())
        has_same_texts = False
        for ordered in orders:
            same_texts = [
                row for row in self._with_digests_or_id(ordered) if self._has_same_texts(row, ordered)
            ]
            fitting = [row for row in same_texts if self._has_same_systems(row, ordered)]
            if fitting:
                rows = self._told_apart(fitting, ordered)
                return Match(tuple(rows), is_reversed=ordered is not record)
            if same_texts:
                has_same_texts = True
        mismatch = Mismatch.OTHER_SYSTEM if has_same_texts else self._mismatch_of_texts(record)
        self._mismatches[mismatch] += 1
        where = f"{record.where}, id {record.id}" if record.id else record.where
        self._first_mismatch.setdefault(mismatch, where)
        return Match()

    def _needs_texts(self, record: Identity) -> bool:
        """Return whether a record must be compared by single texts, which the rows get from the inputs."""
        if not record.has_digests and record.text_hashes:
            return True
        if record.group is not None:
            return False
        return any(name in record.text_hashes for name in self._shared_fields if name != "instruction")

    def _read_again(self) -> None:
        """Give the rows their texts from the inputs, if this was not tried before."""
        if self._is_read_again:
            return
        self._is_read_again = True
        for row, input_row in self._texts_again():
            self._rows[row] = self._rows[row].with_texts(input_row, self._used)

    def _with_digests_or_id(self, record: Identity) -> list[int]:
        """Return the rows with the digests of a record; where they are not known on both sides, with its id."""
        if not record.has_digests:
            return [] if record.id is None else self._by_id.get(record.id, [])
        rows = self._by_digests.get(record.digests)
        if rows is not None:
            return rows
        return [row for row in self._by_id.get(record.id, ()) if not self._rows[row].has_digests]

    def _has_same_texts(self, row: int, record: Identity) -> bool:
        """Return whether a row and a record have the same texts, as far as both have them."""
        identity = self._rows[row]
        if not _agree(identity.digests + (identity.group,), record.digests + (record.group,)):
            return False
        for name, text in record.text_hashes.items():
            if name in identity.text_hashes and identity.text_hashes[name] != text:
                return False
        return True

    def _has_same_systems(self, row: int, record: Identity) -> bool:
        """Return whether a row has the systems of a record, or the record is of all with its texts."""
        return record.of_equal_texts or _agree(self._rows[row].systems, record.systems)

    def _mismatch_of_texts(self, record: Identity) -> Mismatch:
        """Return why no row has the texts of a record."""
        if record.id is None or record.id not in self._by_id:
            return Mismatch.NO_ROW
        turns = {self._rows[row].text_hashes.get(TURN) for row in self._by_id[record.id]}
        if None in turns or record.text_hashes.get(TURN) in turns:
            return Mismatch.OTHER_TEXT
        return Mismatch.OTHER_TURN

    def _told_apart(self, rows: list[int], record: Identity) -> list[int]:
        """Return the rows of a record among those that fit it: several only if they have the same content.

        Raises:
            UsageError: they differ.
        """
        if record.of_equal_texts and self._have_equal_contents(rows):
            return rows
        # Without a column of ids, the id of a row is its file and line.
        with_id = [row for row in rows if self._rows[row].id in (record.id, record.where)]
        if with_id:
            rows = with_id
        with_systems = [row for row in rows if self._rows[row].systems == record.systems]
        if with_systems:
            rows = with_systems
        first = self._rows[rows[0]]
        by_text = record.has_digests and first.has_digests
        if any(self._rows[row].systems != first.systems for row in rows):
            self._refuse(record, len(rows), by_text=by_text, columns=self._system_columns)
        if len(rows) > 1 and not (first.has_digests and self._have_equal_contents(rows)):
            columns = self._missing_columns(rows, record, by_text=by_text)
            self._refuse(record, len(rows), by_text=by_text, columns=columns)
        if not by_text:
            self._note_how(rows, record)
        return rows

    def _have_equal_contents(self, rows: Sequence[int]) -> bool:
        contents = {self._rows[row].content for row in rows}
        return len(contents) == 1

    def _missing_columns(self, rows: Sequence[int], record: Identity, *, by_text: bool) -> str:
        """Return the columns that would tell the rows of a record apart, for a message.

        Args:
            rows: the rows.
            record: the record.
            by_text: whether the texts of its responses are compared with theirs.
        """
        fields = list(self._shared_fields)
        if any(TURN in self._rows[row].text_hashes for row in rows):
            fields.append(TURN)
        missing = [name for name in fields if name not in record.text_hashes]
        if not by_text:
            texts = ", ".join(missing + list(self._responses))
            return f"{self._system_columns}, or {texts}"
        if not missing:
            return "id"
        return f"{', '.join(missing)}, or id"

    def _note_how(self, rows: Sequence[int], record: Identity) -> None:
        """Count a record that was matched without the texts of the responses.

        Raises:
            UsageError: another record with this id names another system.
        """
        first = self._rows[rows[0]]
        compared = first.text_hashes.keys() & record.text_hashes.keys()
        if record.text_hashes and not compared:
            self._matched_unread += 1
        is_compared = any(name in compared for name in self._responses)
        has_systems = None not in record.systems and None not in first.systems
        if is_compared or has_systems:
            return
        self._matched_by_id += 1
        for row in rows:
            systems = self._systems_of_records.setdefault(row, record.systems)
            if systems != record.systems:
                raise UsageError(
                    f"{record.where}: an earlier record has the id {record.id} and another system, but the "
                    f"{self.noun}s of the run name no system; add the column {self._system_columns} to them"
                )

    @property
    def _system_columns(self) -> str:
        return " and ".join(self._responses.values())

    def _refuse(self, record: Identity, count: int, *, by_text: bool, columns: str) -> None:
        what = "the texts" if by_text else "the id"
        raise UsageError(
            f"{record.where}: {count} judged {self.noun}s have {what} of this record ({record.id}); add the "
            f"column {columns}, which tells them apart"
        )

    @property
    def has_matched(self) -> bool:
        """Whether a record has found a row."""
        return self._records > self._mismatches.total()

    def notes(self, records: str, which: str = "") -> tuple[str, ...]:
        """Return remarks on the records that were searched for.

        Args:
            records: their name, such as "rows".
            which: which rows were searched, such as " that counts"; by default all.
        """
        total = f"of {self._records} {records}"
        notes = []
        for mismatch in Mismatch:
            count = self._mismatches[mismatch]
            if not count:
                continue
            note = f"{count} {total} {mismatch.value.format(noun=self.noun, which=which)}"
            if mismatch is not Mismatch.NO_ROW:
                note += f", and are not used (first: {self._first_mismatch[mismatch]})"
            notes.append(note)
        if self._matched_by_id:
            notes.append(f"{self._matched_by_id} {total} are {BY_ID_ALONE}")
        if self._matched_unread:
            notes.append(
                f"the texts of {self._matched_unread} {total} were not compared with those of their "
                f"{self.noun}s, because the inputs of the run cannot be read"
            )
        return tuple(notes)


def _agree(one_side: Sequence[str | None], other_side: Sequence[str | None]) -> bool:
    """Return whether two sequences are equal where both are known."""
    for value, other in zip(one_side, other_side, strict=True):
        if value is not None and other is not None and value != other:
            return False
    return True
