"""The warning signs in the outcomes of a run: what a working judge gives only for few rows.

A notice says what a run is; a warning sign is found in its answers, and may have a harmless reason. Each is one
line of the form "kind: counts; what to do".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import log

from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect import answer_format
from localjudge.rubrics.rubric import Rubric
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


class ValueMass:
    """The mass of the values in each aspect: the share of the model's probability on which scores are based.

    Where a value comes next, the constraint allows only the values. The mass is the share of the model's own
    probability that the values had before the constraint. A low mass says that the model would have written
    something else there. A high mass alone does not make the scores good: a model that copies the prompt has
    it, too.
    """

    def __init__(self) -> None:
        # The sum of the masses in each aspect, their number, and that of likeliest tokens that begin a value.
        self._of: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0, 0])

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a prompt."""
        if isinstance(outcome, Judgement):
            for aspect, mass in outcome.mass.items():
                known = self._of[aspect]
                known[0] += mass
                known[1] += 1
                known[2] += outcome.likeliest[aspect]

    @property
    def means(self) -> dict[str, float]:
        """The mean mass in each aspect whose mass is known, from 0 to 1."""
        return {aspect: round(total / count, 4) for aspect, (total, count, _) in self._of.items()}

    def signs(self, least: int, is_lower_bound: bool) -> Iterator[str]:
        """Yield a line on the aspects in which the model's likeliest token is mostly not a value.

        Args:
            least: the least number of judgements for a sign.
            is_lower_bound: whether the masses are lower bounds.
        """
        named = [
            f"{aspect} {likeliest:,} of {count:,} ({'at least ' * is_lower_bound}{total / count:.2f})"
            for aspect, (total, count, likeliest) in self._of.items()
            if count >= least and likeliest < count / 2
        ]
        if named:
            yield (
                "improbable answers: the model's likeliest token begins a valid answer in less than half of "
                "the judgements (in brackets, the share of its probability on valid answers): "
                f"{', '.join(named)}; change how the prompt shows the answer, ask for the rationale first, or "
                "use another model"
            )


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
        self._placeholders = {found.casefold() for found in _PLACEHOLDER.findall(prompt)}
        self.mass, self._mass_is_lower_bound = ValueMass(), mass_is_lower_bound
        self._judged = self._copied = self._cut = 0
        self._scores: defaultdict[str, Counter[object]] = defaultdict(Counter)
        self.details = rubric.mode.details(rubric.aspects)

    def add(self, row: RowOutcome) -> None:
        """Add the outcome of a row."""
        self.details.add(row)
        for prompt in row.judged:
            self._judged += 1
            self.mass.add(prompt)
            self._cut += prompt.rationale_cut
            self._copied += any(map(self._is_copied, prompt.texts.values()))
            for aspect, score in prompt.scores.items():
                self._scores[aspect][score] += 1

    def _is_copied(self, text: str) -> bool:
        said = text.casefold()
        return any(found in said or found[1:-1] == said.strip() for found in self._placeholders)

    @property
    def lines(self) -> tuple[str, ...]:
        """The signs, one line each; none below `LEAST` judged rows or pairs."""
        if self._judged < LEAST:
            return ()
        rows = f"of {counted(self._judged, 'judged row')}"
        found = []
        if self._copied >= max(2, COPIED * self._judged):
            found.append(
                f"copied rationales: {self._copied:,} {rows} repeat the prompt's placeholder instead of giving "
                "reasons; use a larger model"
            )
        if self._cut >= CUT * self._judged:
            found.append(
                f"cut rationales: {self._cut} {rows} ran into the limit; raise --max-rationale-tokens, or read "
                "some: a small model repeats itself"
            )
        found += self.mass.signs(LEAST, self._mass_is_lower_bound)
        equal = [
            f"{aspect} {shown(score)}"  # type: ignore[arg-type]
            for aspect, scores in self._scores.items()
            for score in scores
            if len(scores) == 1 and self._judged * log(ONE_VALUE) <= log(LEVEL)
        ]
        if equal and not self.details.tells_values_apart:
            them = "this aspect does" if len(equal) == 1 else "these aspects do"
            found.append(f"equal scores: {', '.join(equal)} in all {rows[3:]}; {them} not tell responses apart")
        return (*found, *self.details.signs(LEAST))
