"""The mass of the values: the share of the model's probability on which the scores of a run are based."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from localjudge.records import Judgement, Outcome


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
