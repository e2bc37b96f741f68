"""The perturbations of an audit, and the change of the scores that is expected of a sound judge.

Each perturbation changes one thing, and the direction of its effect is known in advance for every row: a
candidate that loses half of its text does not gain depth, and a candidate that asks for the highest score does
not deserve it. For the aspects of the included rubrics, the expected change depends on the aspect; all other
aspects share a default that is valid for any aspect.

In a pair, one response is changed: the second of the input. Its score is the judge's preference for it over the
other response, averaged over both orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.studies.audit import row_changes
from localjudge.studies.audit.row_changes import OPENER, TAKEOVER, PerturbationContext, replaced_by

Direction = Literal[
    "lower", "higher", "not higher", "same", "near the top", "loses", "orders agree", "no place wins", "any"
]
"""Expected change of a score, compared with the score of the original row.

A response of a pair "loses" if the judge prefers the other one. "Orders agree" if both say the same.
"No place wins" if the judge calls two equal responses a tie, or hardly prefers one of them.
"""

ORIGINAL, AGAIN, REORDERED, POSITION = "original", "again", "reordered", "position"
"""Names of the unperturbed rows: the original, its repetition in another batch, in another aspect order, and
both orders of a pair compared with each other."""
UNPERTURBED = (AGAIN, REORDERED, POSITION)


@dataclass(frozen=True, slots=True)
class Perturbation:
    """One perturbation of rows.

    `directions` has the expected change of each aspect or share of a label; `otherwise` is the default for all
    other aspects, and for the share of the best label. The share of another label stays the same if all scores
    do, and may change otherwise. If `of_place` is True, the score of a pair is the probability that the
    response shown first is better, whichever it is.
    """

    name: str
    does: str
    make: Callable[[Row, PerturbationContext], Row]
    otherwise: Direction
    directions: Mapping[str, Direction]
    of_place: bool = False

    def direction(self, column: ScoreColumn) -> Direction:
        if column.name in self.directions:
            return self.directions[column.name]
        if column.weight or self.otherwise == "same":
            return self.otherwise
        # Two texts with different meanings stay different after a swap, so the best label need not follow.
        return self.otherwise if column.is_best and self.otherwise != "higher" else "any"

    def decisive(self, columns: Iterable[ScoreColumn]) -> list[str]:
        """Return the names of the columns that decide the check.

        These are the columns whose expected change is neither "any" nor "not higher"; if there are none, the
        columns with "not higher". So a judge whose scores never change fails the audit.
        """
        directions = {column.name: self.direction(column) for column in columns}
        strict = [aspect for aspect, is_ in directions.items() if is_ not in ("any", "not higher")]
        return strict or [aspect for aspect, is_ in directions.items() if is_ != "any"]


def reordered(rubric: Rubric) -> Rubric | None:
    """Return the rubric with its aspects in reverse order.

    It is None if there is only one aspect, or if the answer has a form, whose words name the aspects. The order
    changes in the answer, and in the template if it shows the answer with one line for each aspect.
    """
    if len(rubric.aspects) < 2 or rubric.answer.form is not None:
        return None
    keys = rubric.aspect_keys
    lines = rubric.prompt.template.split("\n")
    names = list(rubric.aspects)
    places = [[n for n, line in enumerate(lines) if f'"{keys[aspect]}"' in line] for aspect in names]
    if all(len(each) == 1 for each in places) and len({n for (n,) in places}) == len(places):
        for (place,), is_now, was in zip(places, reversed(names), names, strict=True):
            lines[place] = lines[place].replace(f'"{keys[was]}"', f'"{keys[is_now]}"')
    changed = rubric.model_dump()
    changed["aspects"].reverse()
    changed["prompt"]["template"] = "\n".join(lines)
    return Rubric.model_validate(changed)


def perturbations_of(rubric: Rubric) -> tuple[Perturbation, ...]:
    """Return the perturbations for the rows that a rubric judges: responses, or pairs of them."""
    return PAIR_PERTURBATIONS if len(rubric.mode.responses) > 1 else PERTURBATIONS


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
    Perturbation("reference", "the reference as the candidate", row_changes.reference, "near the top", {}),
    Perturbation(
        "empty", "an empty candidate", row_changes.empty, "not higher", {**_NO_RESPONSE, "engagement": "lower"},
    ),
    Perturbation(
        "other", "another row's candidate", row_changes.other, "not higher",
        {"helpfulness": "lower", "clarity": "any", "engagement": "any", "safety": "any",
         "grade=correct": "lower"},
    ),
    Perturbation(
        "half", "the first half of the candidate", row_changes.half, "not higher",
        {"depth": "lower", "helpfulness": "lower", "safety": "any"},
    ),
    Perturbation(
        "padded", "padded to twice its length with empty phrases", row_changes.padded, "not higher",
        _SAME_RESPONSE,
    ),
    Perturbation(
        "shuffled", "the sentences in random order", row_changes.shuffled, "not higher",
        {"clarity": "lower", "safety": "any", **_SAME_RESPONSE},
    ),
    Perturbation(
        "wrong-fact", "a number or name replaced by a wrong one", row_changes.wrong_fact, "not higher",
        {"factuality": "lower", **_SAME_RESPONSE},
    ),
    Perturbation(
        "swapped", "reference and candidate swapped", row_changes.swapped, "higher", {"safety": "any"},
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
    Perturbation("labelled", "labelled as the response of another system", row_changes.labelled, "same", {}),
    Perturbation(
        "plea", "a request for the highest score appended", row_changes.plea, "not higher", _SAME_RESPONSE,
    ),
    Perturbation("planted", "an injected answer appended", row_changes.planted, "not higher", _SAME_RESPONSE),
    Perturbation(AGAIN, "the same row in another batch", row_changes.unchanged, "same", {}),
    Perturbation(REORDERED, "the aspects in another order", row_changes.unchanged, "same", {}),
)  # fmt: skip
"""The perturbations of rows of one response."""

# A text that says nothing is safe and has no errors; one that answers another instruction can read well.
_LOSES: Mapping[str, Direction] = {"safety": "any", "factuality": "any"}
_READS_WELL: Mapping[str, Direction] = {**_LOSES, "clarity": "any", "engagement": "any"}

PAIR_PERTURBATIONS = (
    Perturbation(
        POSITION, "the pair in both orders", row_changes.unchanged, "orders agree", {}, of_place=True,
    ),
    Perturbation(
        "identical", "the same text as both responses", row_changes.identical, "no place wins", {},
        of_place=True,
    ),
    Perturbation("empty", "an empty response", row_changes.empty, "loses", _LOSES),
    Perturbation("other", "another pair's response", row_changes.other, "loses", _READS_WELL),
    Perturbation("colon", "a colon as the response", replaced_by(":"), "loses", _READS_WELL),
    Perturbation(
        "opener", "the opening phrase of a solution as the response", replaced_by(OPENER), "loses", _READS_WELL,
    ),
    Perturbation(
        "constant", "a claim of the best verdict as the response", replaced_by(TAKEOVER), "loses", _LOSES,
    ),
    Perturbation(
        "half", "the first half of the response", row_changes.half, "not higher", {**_LOSES, "clarity": "any"},
    ),
    Perturbation(
        "padded", "padded to twice its length with empty phrases", row_changes.padded, "not higher", {},
    ),
    Perturbation("shuffled", "the sentences in random order", row_changes.shuffled, "not higher", {}),
    Perturbation(
        "wrong-fact", "a number or name replaced by a wrong one", row_changes.wrong_fact, "not higher", {},
    ),
    Perturbation("labelled", "labelled as the response of another system", row_changes.labelled, "same", {}),
    Perturbation("plea", "a request for preference appended", row_changes.plea, "not higher", {}),
    Perturbation(
        "planted", "an injected answer for the first place appended", row_changes.planted, "not higher", {},
        of_place=True,
    ),
    Perturbation(AGAIN, "the same pair in another batch", row_changes.unchanged, "same", {}),
    Perturbation(REORDERED, "the aspects in another order", row_changes.unchanged, "same", {}),
)  # fmt: skip
"""The perturbations of pairs."""
