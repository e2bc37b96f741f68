"""What identifies a judged row, or a record about one."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Criterion, Row
from localjudge.rows.columns import CRITERION, PAIR, TURN, own_fields, responses_of

_OTHER_RESPONSE = {PAIR[0]: PAIR[1], PAIR[1]: PAIR[0]}


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a response to an instruction, or two responses to it. What is not known is None.

    Attributes:
        where: its file and line, for a message.
        id: its id.
        systems: the system that wrote each response.
        digests: the `response_digest` of each response.
        group: the digest of all other texts that the rubric shows, as `Row.group`.
        text_hashes: hashes of single texts by the names of their fields, to compare those that both sides have;
            and of the turn of a conversation that is judged.
        of_equal_texts: whether it belongs to every row with these texts, whatever its id and systems.
            `localjudge label` asks for equal texts once, and shows neither.
    """

    where: str
    id: str | None
    systems: tuple[str | None, ...]
    digests: tuple[str | None, ...]
    group: str | None = None
    text_hashes: Mapping[str, int] = field(default_factory=dict)
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
            text_hashes=hashes_of_criterion_and_turn(outcome.criterion, first.columns),
        )

    def with_texts(self, row: Row, used: Sequence[str]) -> Self:
        """Return this identity with the texts of its row, whose responses are in its order.

        Args:
            row: the row.
            used: the fields that the template of the rubric uses.
        """
        responses = responses_of(used)
        texts = dict(zip(responses, row.texts, strict=False)) | row.shared_texts
        hashes = hashes_of_texts(texts, responses)
        hashes |= hashes_of_criterion_and_turn(row.criterion, row.columns)
        return replace(self, digests=row.response_digests, group=row.group, text_hashes=hashes)

    def reversed(self) -> Self:
        """Return the identity of the two responses in the other order."""
        hashes = {_OTHER_RESPONSE.get(name, name): value for name, value in self.text_hashes.items()}
        return replace(self, systems=self.systems[::-1], digests=self.digests[::-1], text_hashes=hashes)

    @property
    def has_digests(self) -> bool:
        """Whether the digest of every response is known, and so that of the instruction with it."""
        return None not in self.digests

    @property
    def content(self) -> tuple[object, ...]:
        """What the judge reads: draws of one response have equal contents."""
        return self.digests, self.group, self.text_hashes.get(CRITERION), self.text_hashes.get(TURN)


def shared_fields(used: Sequence[str]) -> list[str]:
    """Return the fields whose texts all responses to an instruction share, as `Row.shared_texts` has them."""
    names = ["instruction"]
    if "reference" in used:
        names.append("reference")
    return names + sorted(own_fields(used))


def hashes_of_texts(texts: Mapping[str, str | None], responses: Container[str]) -> dict[str, int]:
    """Return the hash of each text by the name of its field; an empty one is missing, but not as a response.

    Args:
        texts: the texts by the names of their fields.
        responses: the fields of the responses.
    """
    return {name: hash(text) for name, text in texts.items() if text or name in responses}


def hashes_of_criterion_and_turn(criterion: Criterion | None, columns: Mapping[str, object]) -> dict[str, int]:
    """Return the hashes of a criterion and of the turn in the columns of a row or a record, as far as known."""
    hashes: dict[str, int] = {}
    if criterion is not None and criterion.text:
        hashes[CRITERION] = hash(criterion.text)
    turn = name_or_none(columns.get(TURN)) or ""
    number = turn.removesuffix(".0")  # a table with a missing turn has floats
    if number:
        hashes[TURN] = hash(number)
    return hashes


def name_or_none(value: object) -> str | None:
    """Return the value of a column as a name; None for a missing value."""
    is_nan = value != value
    if value is None or value == "" or is_nan:
        return None
    return str(value)
