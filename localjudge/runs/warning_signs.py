"""Signs that a judge does not work on the rows of a run: what a working judge gives for few of them.

A notice says what a run is; a sign is found in its answers, and may have a harmless reason. Each is one line of
the form "kind: counts; what to do".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

from localjudge.pair_outcome import PairJoin
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect_text import answer_format
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.reader import read_outcomes
from localjudge.runs.run_manifest import read_manifest
from localjudge.system.quantities import counted

LEAST = 10
"""Least number of judged rows, or of pairs, for a sign: fewer say little."""
COPIED = 0.1
"""Least share of rows whose rationale repeats a placeholder of the prompt."""
CUT = 0.25
"""Least share of rows with a rationale that was cut at its limit."""
_PLACEHOLDER = re.compile(r"[\[<({]your [^\n\[\]<>(){}]{1,60}[\]>)}]", re.IGNORECASE)


class WarningSigns:
    """The signs in the outcomes of a run, which are added one by one.

    Args:
        rubric: the rubric of the run.
        orders: the number of orders in which each pair is judged; 1 for rows of one response.
    """

    def __init__(self, rubric: Rubric, orders: int = 1) -> None:
        prompt = f"{rubric.prompt.template}\n{answer_format(rubric.answer_layout, rubric.aspects)}"
        self._placeholders = {found.casefold() for found in _PLACEHOLDER.findall(prompt)}
        self._aspects = rubric.aspects
        self._join = PairJoin(rubric.aspects, orders) if rubric.compares and orders > 1 else None
        self._judged = self._copied = self._cut = 0
        self._scores: defaultdict[str, Counter[object]] = defaultdict(Counter)
        self._places: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._agree: Counter[str] = Counter()
        self._pairs = 0

    def add(self, outcome: Outcome) -> None:
        pair = self._join.add(outcome) if self._join else None
        if pair is not None and pair.error is None:
            self._pairs += 1
            for aspect, preference in pair.preferences.items():
                self._agree[aspect] += bool(preference.agree)
                numbers = self._aspects[aspect].numbers or {}
                for order in pair.orders:
                    assert isinstance(order, Judgement)
                    number = numbers[order.scores[aspect]]
                    self._places[aspect][(number > 0) - (number < 0)] += 1
        if not isinstance(outcome, Judgement):
            return
        self._judged += 1
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
        if self._copied >= COPIED * self._judged:
            found.append(
                f"copied rationales: {self._copied} {rows} repeat the prompt's placeholder instead of giving "
                "reasons; use a larger model"
            )
        if self._cut >= CUT * self._judged:
            found.append(
                f"cut rationales: {self._cut} {rows} ran into the limit; raise --max-rationale-tokens, or read "
                "some: a small model repeats itself"
            )
        equal = [
            f"{aspect} {shown(score)}"  # type: ignore[arg-type]
            for aspect, scores in self._scores.items()
            for score in scores
            if len(scores) == 1
        ]
        if equal:
            them = "this aspect does" if len(equal) == 1 else "these aspects do"
            found.append(f"equal scores: {', '.join(equal)} in all {rows[3:]}; {them} not tell responses apart")
        if self._pairs >= LEAST:
            found += [line for aspect in self._places if (line := self._order(aspect))]
        return found

    def _order(self, aspect: str) -> str | None:
        """Return the sign of an aspect whose orders agree no more often than by chance; None otherwise.

        Verdicts that ignore the responses, with the shares f, t and s of the first place, of neither and of the
        second, name the same winner in both orders with the probability 2 f s + t².
        """
        shares = {place: count / (2 * self._pairs) for place, count in self._places[aspect].items()}
        chance = 2 * shares.get(1, 0) * shares.get(-1, 0) + shares.get(0, 0) ** 2
        if self._agree[aspect] > chance * self._pairs:
            return None
        return (
            f"order: both orders of {self._pairs} pairs name the same winner in {aspect} {self._agree[aspect]} "
            f"times, no more often than by chance ({chance * self._pairs:.1f}); the response shown first wins "
            f"{shares.get(1, 0):.0%} of the comparisons; do not rely on them"
        )


def read_warning_signs(folder: Path) -> tuple[str, ...]:
    """Return the signs in the outcomes of a run directory.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    manifest = read_manifest(folder)
    signs = WarningSigns(manifest.rubric, manifest.orders)
    for outcome in read_outcomes(folder):
        signs.add(outcome)
    return signs.lines
