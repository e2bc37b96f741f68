"""One join of judged rows, labels and texts: what identifies a row or a record, and the systems of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Self

from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Criterion, Row
from localjudge.records.keys import RESPONSE_DIGESTS, response_digest
from localjudge.records.outcome_columns import PAIR_DIGESTS
from localjudge.rows.columns import (
    CRITERION,
    PAIR,
    TURN,
    Columns,
    ReadingFlags,
    column_names,
    own_fields,
    responses_of,
)
from localjudge.rows.decision import decide
from localjudge.rows.field_values import FieldValues
from localjudge.rows.paths import ABSENT, look_up
from localjudge.rows.record import RecordError
from localjudge.rows.row import RowReader, field_text, reference_text


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a response to an instruction, or two responses to it. What is not known is None.

    Attributes:
        where: its place, for a message.
        id: its id.
        systems: the system that wrote each response.
        digests: the `response_digest` of each response.
        group: the digest of all other texts that the rubric shows, as `Row.group`.
        texts: hashes of single texts by the names of their fields, to compare those that both sides have; and
            of the turn of a conversation that is judged.
        of_equal_texts: whether it is of every row with these texts, whatever its id and systems. `localjudge
            label` asks for equal texts once, and shows neither.
    """

    where: str
    id: str | None
    systems: tuple[str | None, ...]
    digests: tuple[str | None, ...]
    group: str | None = None
    texts: Mapping[str, int] = field(default_factory=dict)
    of_equal_texts: bool = False

    @classmethod
    def from_outcome(cls, outcome: RowOutcome) -> Self:
        """Return the identity of an outcome: of a row, of one of its criteria, or of a pair with its responses
        in the input's order."""
        first = outcome.first
        return cls(
            where=first.source,
            id=outcome.id,
            systems=outcome.systems,
            digests=outcome.response_digests,
            group=first.group,
            texts=_hashes(outcome.criterion, first.columns),
        )

    def with_texts(self, row: Row, used: Sequence[str]) -> Self:
        """Return this identity with the texts of its row, whose responses are in its order.

        Args:
            row: the row.
            used: the fields that the template of the rubric uses.
        """
        texts = dict(zip(responses_of(used), row.texts, strict=False)) | row.shared_texts
        return replace(
            self,
            digests=row.response_digests,
            group=row.group,
            texts=_single(texts, texts, responses_of(used)) | _hashes(row.criterion, row.columns),
        )

    def reversed(self) -> Self:
        """Return the identity of the two responses in the other order."""
        other = dict(zip(PAIR, PAIR[::-1], strict=True))
        texts = {other.get(name, name): text for name, text in self.texts.items()}
        return replace(self, systems=self.systems[::-1], digests=self.digests[::-1], texts=texts)

    @property
    def has_texts(self) -> bool:
        """Whether the instruction and every response are known."""
        return None not in self.digests

    @property
    def content(self) -> tuple[object, ...]:
        """What the judge reads: draws of one response have equal contents."""
        return self.digests, self.group, self.texts.get(CRITERION), self.texts.get(TURN)


def label_reader(
    records: Sequence[Mapping[str, Any]],
    columns: Columns,
    used: Sequence[str],
    label_columns: Iterable[str] = (),
    given: Columns | None = None,
) -> RowReader:
    """Return the reader of label records, by a reading of their own.

    Args:
        records: the first records: rows, exported outcomes, or lines of `localjudge label`.
        columns: the column of each field that the run names; it is read if the records have it.
        used: the fields that the template of the run's rubric uses.
        label_columns: the columns with the labels, which do not identify a row.
        given: the column of each field that the user names for these records.

    Raises:
        RecordError: the records can be read in several ways, or lack a column that the user names.
    """
    named: dict[str, str] = {}
    for name, path in columns.items():
        has_column = any(look_up(record, path) is not ABSENT for record in records)
        if not name.startswith("@") and has_column:
            named[name] = path
    named |= given or {}
    flags = ReadingFlags(columns=named)
    reading = decide(
        [dict(record) for record in records], flags, used, label_columns=label_columns, of_labels=True
    )
    return RowReader(reading, used, named)


def identities_of(
    record: Mapping[str, Any], where: str, reader: RowReader
) -> list[tuple[Identity, FieldValues]]:
    """Return the identity of each row in a record, from the columns that the record has, and its fields.

    An empty text of another field than a response counts as not known. A record whose texts cannot be read is
    known by its id and its systems.

    Args:
        record: the columns by name: those of a row, of an exported outcome, or of a line of `localjudge label`.
        where: its place, for a message.
        reader: the reader of these records.
    """
    columns = dict(record)
    try:
        found = list(reader.values(columns))
    except RecordError:
        known = reader.identity(record)
        names = dict(zip(responses_of(reader.used).values(), (known.system, known.opponent), strict=False))
        found = [FieldValues(columns, {"id": known.id, **names}, others=columns)]
    return [(_identity(values, where, reader.used), values) for values in found]


def _identity(values: FieldValues, where: str, used: Sequence[str]) -> Identity:
    record = values.record
    found = {name: values.values.get(name) for name in column_names(used)}
    responses, shared = responses_of(used), shared_fields(used)
    read: dict[str, Any] = {name: found[name] for name in ("instruction", *responses)}
    read["reference"] = reference_text(found["reference"])
    read |= {name: field_text(values.values.get(name), name) for name in own_fields(used)}
    texts = {name: text for name, text in read.items() if isinstance(text, str) and (text or name in responses)}
    recorded = PAIR_DIGESTS if len(responses) > 1 else RESPONSE_DIGESTS[:1]
    if "instruction" not in used and not texts.keys().isdisjoint(responses):
        texts.setdefault("instruction", "")  # as in a row without this column
    label, asks = record.get("label"), record.get(CRITERION)
    criterion = Criterion(text=asks) if CRITERION in used and isinstance(asks, str) and asks else None
    group = None
    if texts.keys() >= {*shared}:
        own = {name: texts[name] for name in own_fields(used)}
        row = Row(instruction=texts["instruction"], responses=(), reference=texts.get("reference"), fields=own)
        group = replace(row, reads_reference="reference" in used).group
    elif isinstance(label, Mapping) and label.get("shows") == shared:
        group = _name(label.get("group"))
    return Identity(
        where=where,
        id=_name(found["id"]),
        systems=tuple(_name(found[name]) for name in responses.values()),
        digests=tuple(
            response_digest(texts["instruction"], texts[name])
            if name in texts and "instruction" in texts
            else _name(record.get(digest))
            for name, digest in zip(responses, recorded, strict=True)
        ),
        group=group,
        texts=_single(texts, (*shared, *responses), responses)
        | _hashes(criterion, {**record, **values.others, **values.values}),
        of_equal_texts=group is not None and isinstance(label, Mapping) and "row" in label,
    )


def shared_fields(used: Sequence[str]) -> list[str]:
    """Return the fields whose texts all responses to an instruction share, as `Row.shared_texts` has them."""
    return ["instruction", *(["reference"] if "reference" in used else []), *sorted(own_fields(used))]


def _single(texts: Mapping[str, str | None], names: Iterable[str], responses: Container[str]) -> dict[str, int]:
    """Return the hashes of the texts with these names; an empty one is known only if it is a response."""
    return {
        name: hash(texts[name]) for name in names if texts.get(name) or (name in responses and name in texts)
    }


def _hashes(criterion: Criterion | None, columns: Mapping[str, Any]) -> dict[str, int]:
    """Return the hashes of a criterion and of the turn in the columns of a row or a record, as far as known."""
    turn = _name(columns.get(TURN))
    known = {CRITERION: criterion and criterion.text, TURN: turn and turn.removesuffix(".0")}
    return {name: hash(text) for name, text in known.items() if text}


def _name(value: object) -> str | None:
    is_missing = value is None or value == "" or value != value
    return None if is_missing else str(value)


UNNAMED = "(none)"
"""Name of the system for rows without one."""


class SystemNames:
    """The names of the systems of runs, in tables that have all of them.

    A name stands for a different system in each run if the responses to an instruction differ between the runs
    (last week's and this week's version), or if the runs have different judges; the run's name is then added to
    it. Equal responses that one judge judged in several runs are draws of one system. Runs without a common
    instruction are parts of one run. Rows without a system get the name of their run.

    Args:
        runs: the names of the runs.
        judges: what identifies the judge of each run, as `RunManifest.judge` does.
    """

    def __init__(self, runs: Sequence[str], judges: Sequence[Mapping[str, Any]]) -> None:
        self._runs, self._judges = runs, judges
        self._responses: dict[str | None, dict[int, dict[str, set[str | None]]]] = {}

    def add(self, run: int, row: Identity) -> None:
        """Add the responses of a row of a run, given by its number."""
        for system, digest in zip(row.systems, row.digests, strict=True):
            if system is not None or len(row.systems) == 1:
                of_run = self._responses.setdefault(system, {}).setdefault(run, {})
                if len(self._runs) > 1 and row.group is not None:
                    of_run.setdefault(row.group, set()).add(digest)

    def names(self) -> tuple[dict[tuple[int, str | None], str], tuple[str, ...]]:
        """Return the name of each system by the number of its run and its name there, and remarks."""
        found: dict[tuple[int, str | None], str] = {}
        notes = defaultdict[str, list[str]](list)  # the systems of each remark
        for system, runs in self._responses.items():
            if system is None or len(runs) == 1:
                unnamed = UNNAMED if len(self._runs) == 1 else None
                found |= {(run, system): system or unnamed or self._runs[run] for run in runs}
                continue
            names = ", ".join(self._runs[run] for run in runs)
            drawn = _drawn(list(runs.values()))
            if drawn is None or any(self._judges[run] != self._judges[min(runs)] for run in runs):
                found |= {(run, system): f"{system} · {self._runs[run]}" for run in runs}
                if drawn is None:
                    notes[f"answered the same instructions differently in {names}: a system in each"].append(
                        system
                    )
                continue
            found |= {(run, system): system for run in runs}
            judged = f"gave responses that were judged in several of {names}, {drawn} per system"
            several = f"{judged}; their scores are averaged"
            none = f"answered no instruction in two of {names}; the rows count together"
            notes[several if drawn else none].append(system)
        return found, tuple(f"several runs: {', '.join(those)} {said}" for said, those in notes.items())


def _drawn(runs: Sequence[Mapping[str, set[str | None]]]) -> int | None:
    """Return the number of responses that several runs share; None if two runs differ in one instruction.

    Args:
        runs: the digests of a system's responses to each instruction, in each run.
    """
    shared: set[str | None] = set()
    for one, other in combinations(runs, 2):
        for group in one.keys() & other.keys():
            if one[group] != other[group] or None in one[group]:
                return None
            shared |= one[group]
    return len(shared)
