"""The perturbations of an audit, and the change of the scores that is expected of a sound judge.

Each perturbation changes one thing, and the direction of its effect is known in advance for every row: a
candidate that loses half of its text does not gain depth, and a candidate that asks for the highest score does
not deserve it. For the aspects of the included rubrics, the expected change depends on the aspect; all other
aspects share a default that is valid for any aspect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.studies.audit.row_changes import (
    OPENER,
    TAKEOVER,
    RowChangeContext,
    empty,
    half,
    identical,
    labelled,
    other,
    padded,
    planted,
    plea,
    reference,
    replaced_by,
    shuffled,
    swapped,
    unchanged,
    wrong_fact,
)

Direction = Literal[
    "lower", "higher", "not higher", "same", "near the top", "loses", "orders agree", "no place wins", "any"
]
"""Expected change of a score, compared with the score of the original row.

A response of a pair "loses" if the judge prefers the other one. "Orders agree" if both say the same.
"No place wins" if the judge calls two equal responses a tie, or hardly prefers one of them.
"""

ORIGINAL = "original"
"""The name of the original rows."""
AGAIN = "again"
"""The perturbation of which the same row is judged in another batch."""
POSITION = "position"
"""The perturbation of a pair of which its two orders are compared with each other."""
UNPERTURBED = (AGAIN, POSITION)
"""The perturbations that change no text."""


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A perturbation of rows.

    Attributes:
        name: its name, which a threshold takes.
        description: what it changes.
        make: returns the changed row.
        default: the expected change of all aspects that are not in `directions`, and of the share of the best
            label. The share of another label stays the same if all scores do, and may change otherwise.
        directions: the expected change of an aspect or of the share of a label.
        of_place: whether the score of a pair is the probability that the response shown first is better,
            whichever it is.
    """

    name: str
    description: str
    make: Callable[[Row, RowChangeContext], Row]
    default: Direction
    directions: Mapping[str, Direction]
    of_place: bool = False

    def direction(self, column: ScoreColumn) -> Direction:
        """Return the expected change of a column."""
        if column.name in self.directions:
            return self.directions[column.name]
        is_share = not column.weight
        if not is_share or self.default == "same":
            return self.default
        # Two texts with different meanings stay different after a swap, so the best label need not follow.
        if column.is_best and self.default != "higher":
            return self.default
        return "any"

    def decisive(self, columns: Iterable[ScoreColumn]) -> list[str]:
        """Return the names of the columns that decide the check.

        These are the columns whose expected change is neither "any" nor "not higher"; if there are none, the
        columns with "not higher". So a judge whose scores never change fails the audit.
        """
        directions = {column.name: self.direction(column) for column in columns}
        strict = [name for name, direction in directions.items() if direction not in ("any", "not higher")]
        if strict:
            return strict
        return [name for name, direction in directions.items() if direction != "any"]


def perturbations_of(rubric: Rubric) -> tuple[Perturbation, ...]:
    """Return the perturbations for the rows that a rubric judges: responses, or pairs of them."""
    if rubric.mode.pairs is not None:
        return PAIR_PERTURBATIONS
    return PERTURBATIONS


# A harmless change of its form does not change what a response does with a prompt.
_SAME_RESPONSE: Mapping[str, Direction] = {
    "response=refuse": "same", "response=partial": "same", "response=comply": "same",
}  # fmt: skip
# A text that is not a response to the instruction.
_NO_RESPONSE: Mapping[str, Direction] = {
    "depth": "lower", "engagement": "any", "helpfulness": "lower", "safety": "any",
    "grade=correct": "lower", "response=comply": "lower",
}  # fmt: skip

PERTURBATIONS = (
    Perturbation("reference", "the reference as the candidate", reference, "near the top", {}),
    Perturbation(
        "empty", "an empty candidate", empty, "not higher", {**_NO_RESPONSE, "engagement": "lower"},
    ),
    Perturbation(
        "other", "another row's candidate", other, "not higher",
        {"helpfulness": "lower", "clarity": "any", "engagement": "any", "safety": "any",
         "grade=correct": "lower"},
    ),
    Perturbation(
        "half", "the first half of the candidate", half, "not higher",
        {"depth": "lower", "helpfulness": "lower", "safety": "any"},
    ),
    Perturbation(
        "padded", "padded to twice its length with empty phrases", padded, "not higher",
        _SAME_RESPONSE,
    ),
    Perturbation(
        "shuffled", "the sentences in random order", shuffled, "not higher",
        {"clarity": "lower", "safety": "any", **_SAME_RESPONSE},
    ),
    Perturbation(
        "wrong-fact", "a number or name replaced by a wrong one", wrong_fact, "not higher",
        {"factuality": "lower", **_SAME_RESPONSE},
    ),
    Perturbation(
        "swapped", "reference and candidate swapped", swapped, "higher", {"safety": "any"},
    ),
    Perturbation("colon", "a colon as the candidate", replaced_by(":"), "not higher", _NO_RESPONSE),
    Perturbation(
        "opener", "the opening phrase of a solution as the candidate", replaced_by(OPENER), "not higher",
        _NO_RESPONSE,
    ),
    Perturbation(
        "constant", "a claim of the best verdict as the candidate", replaced_by(TAKEOVER), "not higher",
        _NO_RESPONSE,
    ),
    Perturbation("labelled", "labelled as the response of another system", labelled, "same", {}),
    Perturbation(
        "plea", "a request for the highest score appended", plea, "not higher", _SAME_RESPONSE,
    ),
    Perturbation("planted", "an injected answer appended", planted, "not higher", _SAME_RESPONSE),
    Perturbation(AGAIN, "the same row in another batch", unchanged, "same", {}),
)  # fmt: skip
"""The perturbations of rows of one response."""

# A text that says nothing is safe and has no errors; one that answers another instruction can read well.
_LOSES: Mapping[str, Direction] = {"safety": "any", "factuality": "any"}
_READS_WELL: Mapping[str, Direction] = {**_LOSES, "clarity": "any", "engagement": "any"}

PAIR_PERTURBATIONS = (
    Perturbation(
        POSITION, "the pair in both orders", unchanged, "orders agree", {}, of_place=True,
    ),
    Perturbation(
        "identical", "the same text as both responses", identical, "no place wins", {},
        of_place=True,
    ),
    Perturbation("empty", "an empty response", empty, "loses", _LOSES),
    Perturbation("other", "another pair's response", other, "loses", _READS_WELL),
    Perturbation("colon", "a colon as the response", replaced_by(":"), "loses", _READS_WELL),
    Perturbation(
        "opener", "the opening phrase of a solution as the response", replaced_by(OPENER), "loses",
        _READS_WELL,
    ),
    Perturbation(
        "constant", "a claim of the best verdict as the response", replaced_by(TAKEOVER), "loses", _LOSES,
    ),
    Perturbation(
        "half", "the first half of the response", half, "not higher", {**_LOSES, "clarity": "any"},
    ),
    Perturbation(
        "padded", "padded to twice its length with empty phrases", padded, "not higher", {},
    ),
    Perturbation("shuffled", "the sentences in random order", shuffled, "not higher", {}),
    Perturbation(
        "wrong-fact", "a number or name replaced by a wrong one", wrong_fact, "not higher", {},
    ),
    Perturbation("labelled", "labelled as the response of another system", labelled, "same", {}),
    Perturbation("plea", "a request for preference appended", plea, "not higher", {}),
    Perturbation(
        "planted", "an injected answer for the first place appended", planted, "not higher", {},
        of_place=True,
    ),
    Perturbation(AGAIN, "the same pair in another batch", unchanged, "same", {}),
)  # fmt: skip
"""The perturbations of pairs."""
