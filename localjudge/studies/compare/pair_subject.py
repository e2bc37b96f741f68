"""The system of each pair whose preference counts where two runs of pairs are compared."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

Systems = tuple[str | None, ...]
"""The systems of the two responses of a pair; None for one without a name."""


class UnclearSubject(Enum):
    """Why nothing tells whose preference must not fall."""

    UNNAMED_PAIRS = auto()
    """The pairs name no systems."""
    SEVERAL_SYSTEMS = auto()
    """Both systems of a pair could be the one."""


@dataclass(frozen=True, slots=True)
class SubjectProblem:
    """Why nothing tells whose preference must not fall, and the systems that could be the one."""

    reason: UnclearSubject
    systems: tuple[str, ...] = ()


class PairSubject:
    """The system of each pair whose preference counts, and the order of the two that follows from it.

    It is the chosen system; or else the one that is not the baseline, which a run records, or which is in every
    pair of both runs. Where both systems of a pair are possible, it is the first by its name, and `problem`
    says why a gate cannot use that.

    Args:
        pairs: the systems of the pairs of both runs that name both.
        baselines: the baselines that the runs record.
        chosen: the systems that were chosen; empty if none was.

    Attributes:
        problem: why a gate does not know whose preference it reads; None if it does.
    """

    def __init__(self, pairs: Collection[Systems], baselines: Collection[str], chosen: Collection[str]) -> None:
        self._chosen = frozenset(chosen)
        self._baseline = None
        if not chosen:
            self._baseline = _baseline(pairs, frozenset(baselines))
        self._opponents = {self._opponent(systems) for systems in pairs if self.counts(systems)}
        self.problem: SubjectProblem | None = None
        if not chosen and self._baseline is None:
            self.problem = SubjectProblem(UnclearSubject.SEVERAL_SYSTEMS, names_of(pairs))

    def counts(self, systems: Systems) -> bool:
        """Return whether a pair counts: exactly one of its systems is chosen, if any is."""
        if not self._chosen:
            return True
        return sum(name in self._chosen for name in systems) == 1

    def is_reversed(self, systems: Systems) -> bool:
        """Return whether the second system of a pair is the one whose preference counts."""
        if self._chosen:
            return systems[0] not in self._chosen
        if self._baseline is not None:
            return systems[0] == self._baseline
        return str(systems[0]) > str(systems[1])

    def name(self, systems: Systems) -> str:
        """Return the name of a preference: its system and the other one, such as "new over old".

        Args:
            systems: both systems, that whose preference counts first.
        """
        if self._chosen and len(self._opponents) > 1:
            return f"{systems[0]} over {len(self._opponents)} others"
        return f"{systems[0]} over {systems[1]}"

    def _opponent(self, systems: Systems) -> str | None:
        """Return the system of a pair whose preference does not count."""
        if self.is_reversed(systems):
            return systems[0]
        return systems[1]


def _baseline(pairs: Collection[Systems], recorded: frozenset[str]) -> str | None:
    """Return the one system that all pairs have, that which the runs record first; None if nothing tells it."""
    if not pairs:
        return None
    in_every_pair = frozenset.intersection(*map(frozenset, pairs))
    if len(recorded) == 1 and recorded <= in_every_pair:
        [baseline] = recorded
        return baseline
    if len(in_every_pair) == 1:
        [common] = in_every_pair
        return common
    return None


def names_of(pairs: Collection[Systems]) -> tuple[str, ...]:
    """Return the names of the systems of some pairs, sorted."""
    names: set[str] = set()
    for systems in pairs:
        names.update(map(str, systems))
    return tuple(sorted(names))
