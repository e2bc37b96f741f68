"""Signs that a judge does not work on the rows of a run: answers that a working judge gives only for few rows.

A notice says what a run is; a sign is found in its answers, and may have a harmless reason. Each is one line of
the form "kind: counts; what to do".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from math import log

from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Judgement
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect_text import answer_format
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.value_mass import ValueMass
from localjudge.system.quantities import counted

LEAST = 10
"""Least number of judged rows, or of pairs, for a sign: fewer say little."""
COPIED = 0.1
"""Least share of rows whose rationale repeats a placeholder of the prompt; one row is not a sign."""
CUT = 0.25
"""Least share of rows with a rationale that was cut at its limit."""
LEVEL = 0.05
"""Level of the test of equal scores: a judge that chance alone can explain has a sign."""
ONE_VALUE = 0.975
"""Largest share of one score that is expected of a working judge; 97 % of GPT-4's clarity scores are equal."""
_PLACEHOLDER = re.compile(r"[\[<({]your [^\n\[\]<>(){}]{1,60}[\]>)}]", re.IGNORECASE)


class WarningSigns:
    """The signs in the outcomes of a run, which are added one by one.

    Args:
        rubric: the rubric of the run.

    Attributes:
        mass: the mass of the values.
        details: what was counted of rows of the rubric's mode.
    """

    def __init__(self, rubric: Rubric) -> None:
        prompt = f"{rubric.prompt.template}\n{answer_format(rubric.answer_layout, rubric.written_aspects)}"
        self._placeholders = {found.casefold() for found in _PLACEHOLDER.findall(prompt)}
        self.mass = ValueMass()
        self._judged = self._copied = self._cut = 0
        self._scores: defaultdict[str, Counter[object]] = defaultdict(Counter)
        self.details = rubric.mode.details(rubric.aspects)

    def add(self, row: RowOutcome) -> None:
        """Add the outcome of a row."""
        self.details.add(row)
        for prompt in row.judged:
            self._count(prompt)

    def _count(self, outcome: Judgement) -> None:
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
        if equal and not self.details.tells_values_apart:
            them = "this aspect does" if len(equal) == 1 else "these aspects do"
            found.append(f"equal scores: {', '.join(equal)} in all {rows[3:]}; {them} not tell responses apart")
        return [*found, *self.details.signs(LEAST)]
