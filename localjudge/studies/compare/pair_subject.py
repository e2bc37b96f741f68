"""Whose preference counts in runs of pairs: the system whose column a comparison, and a gate, speaks of."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Systems = tuple[str | None, ...]


class PairSubject:
    """The system of each pair whose preference counts, and the order of the two that follows from it.

    It is the chosen system; or else the one that is not the baseline, which a run records, or which is in every
    pair of both runs. Where both systems of a pair are possible, it is the first by its name, and `problem`
    says why a gate cannot use that.

    Args:
        pairs: the systems of the pairs of each run that name both.
        baselines: the baselines that the runs record.
        chosen: the systems that were chosen; empty if none was.
    """

    def __init__(
        self, pairs: Sequence[Collection[Systems]], baselines: Collection[str], chosen: Collection[str]
    ) -> None:
        self._chosen, self.problem = frozenset(chosen), ""
        sets = [frozenset(each) for run in pairs for each in run]
        common = frozenset.intersection(*sets) if sets else frozenset()
        recorded = frozenset(baselines)
        opponents = recorded if len(recorded) == 1 and recorded <= common else common
        self._opponent = next(iter(opponents)) if len(opponents) == 1 and not chosen else None
        self._opponents = {
            systems[not self.turns(systems)] for run in pairs for systems in run if self.takes(systems)
        }
        if self._opponent is None and not chosen:
            names = sorted({str(name) for each in sets for name in each})
            possible = ", ".join(names[:12]) + f" and {len(names) - 12} more" * (len(names) > 12)
            self.problem = f"several systems can be the one whose preference must not fall ({possible})"
            self.problem += "; name it with `system`, or judge both runs with the same `baseline`"

    def takes(self, systems: Systems) -> bool:
        """Return whether a pair counts: one of its systems is chosen, if any is."""
        return not self._chosen or sum(name in self._chosen for name in systems) == 1

    def turns(self, systems: Systems) -> bool:
        """Return whether the second system of a pair is the one whose preference counts."""
        if self._chosen:
            return systems[0] not in self._chosen
        if self._opponent is not None:
            return systems[0] == self._opponent
        return str(systems[0]) > str(systems[1])

    def name(self, systems: Systems) -> str:
        """Return whose preference that of a pair is, in words.

        Args:
            systems: both systems, that whose preference counts first.
        """
        others = len(self._opponents)
        return f"{systems[0]} over {f'{others} others' if self._chosen and others > 1 else systems[1]}"
