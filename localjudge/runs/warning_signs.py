"""Signs that a judge does not work on the rows of a run: answers that a working judge gives only for few rows.

A notice says what a run is; a sign is found in its answers, and may have a harmless reason. Each is one line of
the form "kind: counts; what to do".
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
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._likeliest: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a prompt."""
        if isinstance(outcome, Judgement):
            for aspect, mass in outcome.mass.items():
                self._sums[aspect] += mass
                self._counts[aspect] += 1
                self._likeliest[aspect] += outcome.likeliest[aspect]

    @property
    def means(self) -> dict[str, float]:
        """The mean mass in each aspect whose mass is known, from 0 to 1."""
        return {aspect: round(self._sums[aspect] / count, 4) for aspect, count in self._counts.items()}

    def in_words(self, is_lower_bound: bool) -> str:
        """Return the means in one line; empty if none is known.

        Args:
            is_lower_bound: the masses are sums over the tokens that a server lists.
        """
        means = {aspect: "at least " * is_lower_bound + f"{mass:.2f}" for aspect, mass in self.means.items()}
        if len(means) > 1 and len(set(means.values())) == 1:
            means = {"in all aspects": means.popitem()[1]}
        said = ", ".join(f"{aspect} {mass}" for aspect, mass in means.items())
        return f"mean mass of the values (see localjudge help runs): {said}" if said else ""

    def signs(self, least: int) -> Iterator[str]:
        """Yield a line for each aspect in which the model's likeliest token is mostly not a value.

        Args:
            least: the least number of judgements for a sign.
        """
        for aspect, count in self._counts.items():
            if count >= least and self._likeliest[aspect] < count / 2:
                yield (
                    f"low mass: in {aspect}, the model's likeliest token begins a value in "
                    f"{self._likeliest[aspect]} of {count} judgements (mean mass {self.means[aspect]:.2f}), so "
                    "the scores stand on a small part of its probability; change how the prompt shows the "
                    "answer, ask for the rationale first, or use another model"
                )


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
