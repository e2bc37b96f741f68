"""The mass of the values: the share of the model's own probability on which the scores of a run are based.

Where a value comes next, the constraint allows only the values. The mass is the share of the model's own
probability that the values had before the constraint. A low mass says that the model would have written
something else there. A high mass alone does not make the scores good: a model that copies the prompt has it,
too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from localjudge.records import Judgement, Outcome


class ValueMass:
    """The mass in each aspect, over the judgements that are added."""

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
