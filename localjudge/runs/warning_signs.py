"""The warning signs in the outcomes of a run: what a working judge gives only for few rows.

A notice says what a run is; a warning sign is found in its answers, and may have a harmless reason. Each is one
line of the form "kind: counts; what to do".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(slots=True)
class _AspectMass:
    """The mass of the values of an aspect, in all judgements.

    Attributes:
        judgements: number of judgements whose mass is known.
        total: the sum of their masses.
        likeliest: number of them in which the model's likeliest token begins a value.
    """

    judgements: int = 0
    total: float = 0.0
    likeliest: int = 0

    @property
    def mean(self) -> float:
        return self.total / self.judgements


class ValueMass:
    """The mass of the values in each aspect: the share of the model's probability on which scores are based.

    Where a value comes next, the constraint allows only the values. The mass is the share of the model's own
    probability that the values had before the constraint. A low mass says that the model would have written
    something else there. A high mass alone does not make the scores good: a model that copies the prompt has
    it, too.
    """

    def __init__(self) -> None:
        self._aspects: defaultdict[str, _AspectMass] = defaultdict(_AspectMass)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a prompt."""
        if not isinstance(outcome, Judgement):
            return
        for name, mass in outcome.mass.items():
            aspect = self._aspects[name]
            aspect.judgements += 1
            aspect.total += mass
            if outcome.likeliest[name]:
                aspect.likeliest += 1

    @property
    def means(self) -> dict[str, float]:
        """The mean mass in each aspect whose mass is known, from 0 to 1."""
        return {name: round(aspect.mean, 4) for name, aspect in self._aspects.items()}

    def signs(self, least: int, is_lower_bound: bool) -> Iterator[str]:
        """Yield a line on the aspects in which the model's likeliest token is mostly not a value.

        Args:
            least: the least number of judgements for a sign.
            is_lower_bound: whether the masses are lower bounds.
        """
        improbable = []
        for name, aspect in self._aspects.items():
            if aspect.judgements < least or aspect.likeliest >= aspect.judgements / 2:
                continue
            mean = f"{aspect.mean:.2f}"
            if is_lower_bound:
                mean = f"at least {mean}"
            improbable.append(f"{name} {aspect.likeliest:,} of {aspect.judgements:,} ({mean})")
        if improbable:
            yield (
                "improbable answers: the model's likeliest token begins a valid answer in less than half of "
                "the judgements (in brackets, the share of its probability on valid answers): "
                f"{', '.join(improbable)}; change how the prompt shows the answer, ask for the rationale "
                "first, or use another model"
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
