"""Signs that a judge does not work on the rows of a run: answers that a working judge gives only for few rows.

A notice says what a run is; a sign is found in its answers, and may have a harmless reason. Each is one line of
the form "kind: counts; what to do".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from math import log

from localjudge.records import Judgement, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect_text import answer_format
from localjudge.rubrics.mode import RowOutcome
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.pair_summary import OrderEffect
from localjudge.runs.value_mass import ValueMass
from localjudge.system.quantities import counted

LEAST = 10
"""Least number of judged rows, or of pairs, for a sign: fewer say little."""
COPIED = 0.1
"""Least share of rows whose rationale repeats a placeholder of the prompt; one row is not a sign."""
CUT = 0.25
"""Least share of rows with a rationale that was cut at its limit."""
LEVEL = 0.05
"""Level of the tests: a judge that chance alone can explain has a sign."""
PLACE_LEVEL = 0.01
"""Level of the test of the place: it is lower, because nearly every judge prefers a place a little."""
ONE_VALUE = 0.975
"""Largest share of one score that is expected of a working judge; 97 % of GPT-4's clarity scores are equal."""
_PLACEHOLDER = re.compile(r"[\[<({]your [^\n\[\]<>(){}]{1,60}[\]>)}]", re.IGNORECASE)


class WarningSigns:
    """The signs in the outcomes of a run, which are added one by one.

    Args:
        rubric: the rubric of the run.

    Attributes:
        mass: the mass of the values.
    """

    def __init__(self, rubric: Rubric) -> None:
        prompt = f"{rubric.prompt.template}\n{answer_format(rubric.answer_layout, rubric.written_aspects)}"
        self._placeholders = {found.casefold() for found in _PLACEHOLDER.findall(prompt)}
        self.mass = ValueMass()
        self._judged = self._copied = self._cut = 0
        self._scores: defaultdict[str, Counter[object]] = defaultdict(Counter)
        self._orders: defaultdict[str, OrderEffect] = defaultdict(OrderEffect)

    def add(self, row: RowOutcome) -> None:
        """Add the outcome of a row, or of a pair."""
        if isinstance(row, PairOutcome):
            for aspect, preference in row.preferences.items():
                self._orders[aspect].add(preference.places)
        for prompt in row.of_prompts:
            self._count(prompt)

    def _count(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Judgement):
            return
        self._judged += 1
        self.mass.add(outcome)
        self._cut += outcome.rationale_cut
        self._copied += any(map(self._is_copied, outcome.texts.values()))
        for aspect, score in outcome.scores.items():
            self._scores[aspect][score] += 1

    def _is_copied(self, text: str) -> bool:
        said = text.casefold()
        return any(found in said or found[1:-1] == said.strip() for found in self._placeholders)

    @property
    def lines(self) -> tuple[str, ...]:
        """The signs, one line each; none below `LEAST` judged rows or pairs."""
        return tuple(self._of_rows()) if self._judged >= LEAST else ()

    def _of_rows(self) -> list[str]:
        rows = f"of {counted(self._judged, 'judged row')}"
        found = []
        if self._copied >= max(2, COPIED * self._judged):
            found.append(
                f"copied rationales: {self._copied} {rows} repeat the prompt's placeholder instead of giving "
                "reasons; use a larger model"
            )
        if self._cut >= CUT * self._judged:
            found.append(
                f"cut rationales: {self._cut} {rows} ran into the limit; raise --max-rationale-tokens, or read "
                "some: a small model repeats itself"
            )
        found += self.mass.signs(LEAST)
        equal = [
            f"{aspect} {shown(score)}"  # type: ignore[arg-type]
            for aspect, scores in self._scores.items()
            for score in scores
            if len(scores) == 1 and self._judged * log(ONE_VALUE) <= log(LEVEL)
        ]
        has_orders = any(effect.in_both_orders for effect in self._orders.values())
        if equal and not has_orders:  # in pairs, the orders show more
            them = "this aspect does" if len(equal) == 1 else "these aspects do"
            found.append(f"equal scores: {', '.join(equal)} in all {rows[3:]}; {them} not tell responses apart")
        for aspect, effect in self._orders.items():
            if effect.in_both_orders >= LEAST:
                found += _order_signs(aspect, effect)
        return found


def _order_signs(aspect: str, effect: OrderEffect) -> list[str]:
    """Return the signs of an aspect whose orders do not agree beyond chance, or whose place decides."""
    found = []
    pairs, decided, same = effect.in_both_orders, effect.decided, effect.same_response
    if not decided:
        found.append(f"order: in {aspect}, none of {pairs} pairs has a label for a response in both orders")
    elif (p := effect.agreement_p()) > LEVEL:
        found.append(
            f"order: nothing shows that the judge compares the responses in {aspect}: both orders name "
            f"the same response in {same} of {decided} pairs without a tie, and "
            f"{effect.same_by_chance:.1f} are expected if only the place decides ({_p(p)}); "
            "judge more pairs, or use a larger model"
        )
    if (p := effect.place_p()) < PLACE_LEVEL:
        first, second = effect.by_place
        wins, comparisons = effect.shown_first
        found.append(
            f"place: in {aspect}, {max(first, second)} of {first + second} pairs whose orders differ favour "
            f"the {'first' if first > second else 'second'} place ({_p(p)}); the response shown first wins "
            f"{wins} of {comparisons} comparisons without a tie"
        )
    return found


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value >= 0.001 else "p < 0.001"
