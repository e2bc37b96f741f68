"""Match records to judged rows: labels to the rows of a run, and the rows of one run to those of another.

Texts decide where both sides have them: every text that the rubric shows, which are the instruction, each
response, the reference and its own fields. Where a record lacks one of them, its id and its system decide
between rows that differ in it. Equal texts of several systems are told apart by the system, except where a
person saw the texts alone: such a label is of all of them. Without texts, the id and the system decide; an id
alone does so only if it is unique on both sides. A record that contradicts its row, in a text or in the system,
is counted and never matched; a record whose row cannot be determined is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.matching import Identity, shared_fields
from localjudge.records import Row
from localjudge.rows.columns import TURN, responses_of
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.run_manifest import RunManifest

Place = int
"""The number of a judged row, from 0."""

BY_ID_ALONE = "matched by id alone; nothing shows that these labels are of these responses"
_PROBLEMS = _NO_ROW, _OTHER_TEXT, _OTHER_TURN, _OTHER_SYSTEM = (
    "no row",
    "another text",
    "another turn",
    "another system",
)


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a record: none, one, or several with the same texts and systems.

    `is_reversed` is True if the record has the two responses of its rows in the other order.
    """

    rows: tuple[Place, ...] = ()
    is_reversed: bool = False


class RowIndex:
    """Judged rows, to be found by records from elsewhere.

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
        texts_again: Callable[[], Iterable[tuple[Place, Row]]] = tuple,
        noun: str = "row",
    ) -> None:
        self._rows, self._used, self._texts_again, self.noun = list(rows), used, texts_again, noun
        self._by_digests: dict[tuple[str | None, ...], list[Place]] = defaultdict(list)
        self._by_id: dict[str | None, list[Place]] = defaultdict(list)
        self._is_read_again = False
        self._alone: dict[Place, tuple[str | None, ...]] = {}
        self._examples: dict[str, str] = {}
        self._counts: dict[str, int] = defaultdict(int)
        for place, row in enumerate(self._rows):
            self._by_id[row.id].append(place)
            if row.has_texts:
                self._by_digests[row.digests].append(place)

    def find(self, record: Identity) -> Match:
        """Return the rows of a record, and count it.

        Raises:
            UsageError: several rows fit, and the record or the rows lack the column that would tell which.
        """
        self._counts["records"] += 1
        of_digests = {"instruction", *responses_of(self._used)}
        if record.texts and not record.has_texts:
            self._read_again()
        elif record.group is None and (record.texts.keys() & set(shared_fields(self._used)) - of_digests):
            self._read_again()  # it has some of the texts that all responses to an instruction share
        problem = _NO_ROW
        for ordered in (record, record.reversed()) if len(record.digests) > 1 else (record,):
            if record.has_texts:
                # A row whose texts are not known is found as if the record had none.
                unknown = (
                    place for place in self._by_id.get(ordered.id, ()) if not self._rows[place].has_texts
                )
                places = self._by_digests.get(ordered.digests) or list(unknown)
            else:
                places = self._by_id.get(ordered.id, []) if ordered.id is not None else []
            same = [place for place in places if self._has_same_texts(place, ordered)]
            fitting = [
                place
                for place in same
                if ordered.of_equal_texts or _agree(self._rows[place].systems, ordered.systems)
            ]
            if fitting:
                return Match(tuple(self._told_apart(fitting, ordered)), ordered is not record)
            problem = _OTHER_SYSTEM if same else problem
        if problem is _NO_ROW and record.id is not None and record.id in self._by_id:
            turns = {self._rows[place].texts.get(TURN) for place in self._by_id[record.id]}
            problem = _OTHER_TEXT if {None, record.texts.get(TURN)} & turns else _OTHER_TURN
        self._counts[problem] += 1
        self._examples.setdefault(problem, f"{record.where}, id {record.id}" if record.id else record.where)
        return Match()

    def _read_again(self) -> None:
        if self._is_read_again:
            return
        self._is_read_again = True
        for place, row in self._texts_again():
            self._rows[place] = self._rows[place].with_texts(row, self._used)

    def _has_same_texts(self, place: Place, record: Identity) -> bool:
        row = self._rows[place]
        return _agree((*row.digests, row.group), (*record.digests, record.group)) and all(
            row.texts[name] == text for name, text in record.texts.items() if name in row.texts
        )

    def _told_apart(self, places: list[Place], record: Identity) -> list[Place]:
        """Return the rows of a record among those that fit it: several only if they have the same content.

        Raises:
            UsageError: they differ.
        """
        rows = self._rows
        if record.of_equal_texts and len({rows[place].content for place in places}) == 1:
            return places
        # Without a column of ids, the id of a row is its place in the file.
        places = [place for place in places if rows[place].id in (record.id, record.where)] or places
        places = [place for place in places if rows[place].systems == record.systems] or places
        first = rows[places[0]]
        by_text = record.has_texts and first.has_texts
        what = "the texts" if by_text else "the id"
        if len({rows[place].systems for place in places}) > 1:
            self._refuse(record, len(places), what, self._system_columns)
        if len(places) > 1 and (not first.has_texts or len({rows[place].content for place in places}) > 1):
            turn = [TURN] if any(TURN in rows[place].texts for place in places) else []
            lacks = [name for name in (*shared_fields(self._used), *turn) if name not in record.texts]
            texts = ", ".join(lacks if by_text else [*lacks, *responses_of(self._used)])
            columns = [texts, "id"] if by_text else [self._system_columns, texts]
            self._refuse(record, len(places), what, ", or ".join(filter(None, columns)))
        if not by_text:
            self._note_how(places, record)
        return places

    def _note_how(self, places: Sequence[Place], record: Identity) -> None:
        first = self._rows[places[0]]
        self._counts["unread"] += bool(record.texts) and record.texts.keys().isdisjoint(first.texts)
        is_compared = any(name in first.texts and name in record.texts for name in responses_of(self._used))
        if is_compared or (None not in record.systems and None not in first.systems):
            return
        self._counts["alone"] += 1
        for place in places:
            if self._alone.setdefault(place, record.systems) != record.systems:
                raise UsageError(
                    f"{record.where}: an earlier record has the id {record.id} and another system, but the "
                    f"{self.noun}s of the run name no system; add the column {self._system_columns} to them"
                )

    @property
    def _system_columns(self) -> str:
        return " and ".join(responses_of(self._used).values())

    def _refuse(self, record: Identity, count: int, what: str, columns: str) -> None:
        raise UsageError(
            f"{record.where}: {count} judged {self.noun}s have {what} of this record ({record.id}); add the "
            f"column {columns}, which tells them apart"
        )

    @property
    def has_matched(self) -> bool:
        """Whether a record has found a row."""
        return self._counts["records"] > sum(self._counts[why] for why in _PROBLEMS)

    def notes(self, records: str, which: str = "") -> tuple[str, ...]:
        """Return remarks on the records that were searched for.

        Args:
            records: their name, such as "rows".
            which: which rows were searched, such as " that counts"; by default all.
        """
        counts, noun = self._counts, self.noun
        of = f"of {counts['records']} {records}"
        in_words = {
            _NO_ROW: f"{counts[_NO_ROW]} {of} match no judged {noun}{which}",
            _OTHER_TEXT: f"{counts[_OTHER_TEXT]} {of} have the id of a judged {noun}, but another text",
            _OTHER_TURN: f"{counts[_OTHER_TURN]} {of} are of another turn than their {noun}",
            _OTHER_SYSTEM: f"{counts[_OTHER_SYSTEM]} {of} have another system than their {noun}",
        }
        notes = [in_words[_NO_ROW]] * bool(counts[_NO_ROW])
        notes += [
            f"{in_words[why]}, and are not used (first: {self._examples[why]})"
            for why in (_OTHER_TEXT, _OTHER_TURN, _OTHER_SYSTEM)
            if counts[why]
        ]
        notes += [f"{counts['alone']} {of} are {BY_ID_ALONE}"] * bool(counts["alone"])
        notes += [
            f"the texts of {counts['unread']} {of} were not compared with those of their {noun}s, because the "
            "inputs of the run cannot be read"
        ] * bool(counts["unread"])
        return tuple(notes)


def _agree(known: Sequence[str | None], given: Sequence[str | None]) -> bool:
    """Return whether two sequences are equal where both are known."""
    return all(one is None or other is None or one == other for one, other in zip(known, given, strict=True))


def identities(folder: Path) -> list[Identity]:
    """Return the identity of each line of a run of one response."""
    return [Identity.from_outcome(row) for row in read_row_outcomes(folder)]


def align_runs(
    runs: Sequence[Sequence[Identity]], manifests: Sequence[RunManifest], names: Sequence[str] = ()
) -> tuple[list[tuple[Place, ...]], tuple[str, ...]]:
    """Match the rows of several runs.

    Args:
        runs: the identities of the rows of each run.
        manifests: the manifests of the runs.
        names: the names of the runs in the remarks; without names they say only "rows".

    Returns:
        The places of each row that all runs have, [rows, runs], in the order of the first run; and remarks.

    Raises:
        UsageError: rows cannot be told apart.
    """
    used = manifests[0].rubric.fields
    if len({frozenset(manifest.rubric.fields) for manifest in manifests}) > 1:
        # Rubrics that show other texts have other groups; those of the first run still tell its rows apart.
        runs = [runs[0], *([replace(identity, group=None) for identity in run] for run in runs[1:])]
    members: dict[Place, list[Place]] = {place: [place] for place in range(len(runs[0]))}
    notes: list[str] = []
    for number, run in enumerate(runs[1:], 1):
        first, taken = RowIndex(runs[0], used), dict[Place, Identity]()
        repeated: list[tuple[Place, Identity, Identity]] = []
        for place, record in enumerate(run):
            rows = first.find(record).rows
            free = [row for row in rows if row not in taken]
            if rows and not free and taken[rows[-1]].systems != record.systems:
                raise UsageError(
                    f"{record.where}: has the texts of {taken[rows[-1]].where}, of another system, and "
                    f"{runs[0][rows[-1]].where} names no system; judge it again with --column system=COLUMN"
                )
            for row in free[:1]:
                taken[row] = record
                members[row].append(place)
            if rows and not free:
                repeated.append((place, record, runs[0][rows[0]]))
        # Where an id is there twice, equal texts of the same system are left under other ids.
        equal: dict[tuple[object, ...], list[Place]] = defaultdict(list)
        for row, identity in enumerate(runs[0]) if repeated else ():
            if row not in taken and identity.has_texts:
                equal[identity.systems, identity.content].append(row)
        for place, record, like in repeated:
            if places := equal[like.systems, like.content]:
                taken[places[0]] = record
                members[places.pop(0)].append(place)
        if names:
            notes += first.notes(f"rows of {names[number]}", f" of {names[0]}")
        else:
            notes += first.notes("rows")
    common = [tuple(places) for places in members.values() if len(places) == len(runs)]
    return common, tuple(dict.fromkeys(notes))
