"""What identifies a judged row, or a record of a file: its texts, its id, and the systems that answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from localjudge.records import Failure, Judgement, Row
from localjudge.records.keys import RESPONSE_DIGESTS, response_digest
from localjudge.records.outcome_columns import PAIR_DIGESTS
from localjudge.rows.columns import Columns, column_names, names_of, responses_of
from localjudge.rows.conversation import with_conversation
from localjudge.rows.criteria import CRITERION
from localjudge.rows.pair_columns import PAIR
from localjudge.rows.record import RecordError
from localjudge.rubrics.mode import RowOutcome
from localjudge.rubrics.pair_outcome import PairOutcome

_GROUP = "group"


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a response to an instruction, or two responses to it. What is not known is None.

    Attributes:
        where: its place, for a message.
        id: its id.
        systems: the system that wrote each response.
        digests: the `response_digest` of each response.
        texts: hashes of single texts by the names of their fields, to compare those that both sides have.
    """

    where: str
    id: str | None
    systems: tuple[str | None, ...]
    digests: tuple[str | None, ...]
    texts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_outcome(cls, outcome: RowOutcome) -> Self:
        """Return the identity of an outcome: of a row, of one of its criteria, or of a pair with its responses
        in the input's order."""
        is_pair = isinstance(outcome, PairOutcome)
        texts = {} if is_pair or outcome.first.group is None else {_GROUP: hash(outcome.first.group)}
        if isinstance(outcome, Judgement | Failure) and outcome.criterion:
            texts[CRITERION] = hash(outcome.criterion.text)
        return cls(outcome.first.source, outcome.id, outcome.systems, outcome.response_digests, texts)

    def reversed(self) -> Self:
        """Return the identity of the two responses in the other order."""
        other = dict(zip(PAIR, PAIR[::-1], strict=True))
        texts = {other.get(name, name): text for name, text in self.texts.items()}
        return replace(self, systems=self.systems[::-1], digests=self.digests[::-1], texts=texts)

    @property
    def has_texts(self) -> bool:
        """Whether the instruction and every response are known."""
        return None not in self.digests


def identity_of(record: Mapping[str, Any], where: str, columns: Columns, used: Sequence[str]) -> Identity:
    """Return the identity of the row in a record, from the columns that the record has.

    Args:
        record: the columns by name: those of a row, or of an exported outcome.
        where: its place, for a message.
        columns: the column of each field whose column has a custom name in the run.
        used: the fields that the template of the run's rubric uses.
    """
    given = record
    with suppress(RecordError):
        given = with_conversation(record, lambda field: names_of(field, columns, used), used)
    found: dict[str, Any] = {
        name: given.get(column_of(name, given, columns, used) or "") for name in column_names(used)
    }
    responses = responses_of(used)
    texts = {name: found[name] for name in ("instruction", "reference", *responses)}
    if CRITERION in used:
        texts[CRITERION] = record.get(CRITERION)
    texts = {
        name: text for name, text in texts.items() if isinstance(text, str) and (text or name in responses)
    }
    recorded = PAIR_DIGESTS if len(responses) > 1 else RESPONSE_DIGESTS[:1]
    return Identity(
        where=where,
        id=_name(found["id"]),
        systems=tuple(_name(found[name]) for name in responses.values()),
        digests=tuple(
            response_digest(texts.get("instruction", ""), texts[name])
            if name in texts and ("instruction" in texts or "instruction" not in used)
            else _name(record.get(digest))
            for name, digest in zip(responses, recorded, strict=True)
        ),
        texts=_hashes(texts, used),
    )


def column_of(name: str, record: Mapping[str, Any], columns: Columns, used: Sequence[str]) -> str | None:
    """Return the column of a record that has a field; None if it has none.

    The field's own column is taken first, even if it is empty: in an export, `system` may be null, and `model`
    is the judge, not the system.
    """
    possible = (columns.get(name, name), *column_names(used)[name])
    return next((column for column in possible if column in record), None)


def texts_of(row: Row, used: Sequence[str]) -> dict[str, int]:
    """Return the hashes of a row's single texts, as `Identity.texts` has them, with its responses in order."""
    responses = dict(zip(responses_of(used), row.texts, strict=False))
    texts = {"instruction": row.instruction, "reference": row.reference, **responses}
    return _hashes(texts | ({CRITERION: row.criterion.text} if row.criterion else {}), used)


def _hashes(texts: Mapping[str, str | None], used: Sequence[str]) -> dict[str, int]:
    known = {name: text for name, text in texts.items() if text or name in responses_of(used)}
    if "reference" not in used:
        known.pop("reference", None)
    return {name: hash(text) for name, text in known.items()}


def _name(value: object) -> str | None:
    is_missing = value is None or value == "" or value != value
    return None if is_missing else str(value)
