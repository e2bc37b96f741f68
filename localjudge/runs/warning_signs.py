"""The warning signs in the outcomes of a run: what a working judge gives only for few rows.

A notice says what a run is; a warning sign is found in its answers, and may have a harmless reason. Each is one
line of the form "kind: counts; what to do".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from math import log

from localjudge.modes.row_outcome import RowOutcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect import answer_format
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
        mass_is_lower_bound: whether the masses are sums over the few tokens that a server lists.

    Attributes:
        mass: the mass of the values.
        details: what was counted of rows of the rubric's mode.
    """

    def __init__(self, rubric: Rubric, mass_is_lower_bound: bool = False) -> None:
        prompt = f"{rubric.prompt.template}\n{answer_format(rubric.answer_layout, rubric.aspects)}"
        self._placeholders = {placeholder.casefold() for placeholder in _PLACEHOLDER.findall(prompt)}
        self.mass = ValueMass()
        self._mass_is_lower_bound = mass_is_lower_bound
        self._judged = 0
        self._copied = 0
        self._cut = 0
        self._scores: defaultdict[str, Counter[object]] = defaultdict(Counter)
        self.details = rubric.mode.details(rubric.aspects)

    def add(self, row: RowOutcome) -> None:
        """Add the outcome of a row."""
        self.details.add(row)
        for prompt in row.judged:
            self._judged += 1
            self.mass.add(prompt)
            if prompt.rationale_cut:
                self._cut += 1
            if any(self._is_copied(text) for text in prompt.texts.values()):
                self._copied += 1
            for aspect, score in prompt.scores.items():
                self._scores[aspect][score] += 1

    def _is_copied(self, text: str) -> bool:
        """Return whether a rationale repeats a placeholder, or is one without its brackets."""
        folded = text.casefold()
        for placeholder in self._placeholders:
            if placeholder in folded or placeholder[1:-1] == folded.strip():
                return True
        return False

    @property
    def lines(self) -> tuple[str, ...]:
        """The signs, one line each; none below `LEAST` judged rows or pairs."""
        if self._judged < LEAST:
            return ()
        rows = counted(self._judged, "judged row")
        lines = []
        if self._copied >= max(2, COPIED * self._judged):
            lines.append(
                f"copied rationales: {self._copied:,} of {rows} repeat the prompt's placeholder instead of "
                "giving reasons; use a larger model"
            )
        if self._cut >= CUT * self._judged:
            lines.append(
                f"cut rationales: {self._cut} of {rows} ran into the limit; raise --max-rationale-tokens, or "
                "read some: a small model repeats itself"
            )
        lines += self.mass.signs(LEAST, is_lower_bound=self._mass_is_lower_bound)
        equal_scores = self._equal_scores()
        if equal_scores and not self.details.tells_values_apart:
            aspects = "this aspect does" if len(equal_scores) == 1 else "these aspects do"
            lines.append(
                f"equal scores: {', '.join(equal_scores)} in all {rows}; {aspects} not tell responses apart"
            )
        lines += self.details.signs(LEAST)
        return tuple(lines)

    def _equal_scores(self) -> list[str]:
        """Return each aspect whose scores are all equal with its score, if chance does not explain it."""
        if self._judged * log(ONE_VALUE) > log(LEVEL):
            return []
        equal_scores = []
        for aspect, scores in self._scores.items():
            if len(scores) == 1:
                (score,) = scores
                equal_scores.append(f"{aspect} {shown(score)}")  # type: ignore[arg-type]
        return equal_scores
