"""The judged rows of two runs in numbers, to be compared: scores, or the preferences of pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.judged_rows import JudgedPairs, read_judged
from localjudge.matching.row_selection import RowSelection
from localjudge.matching.scores import ScoreKind, Scores
from localjudge.matching.system_names import UNNAMED
from localjudge.modes.pair_preference import RESULTS
from localjudge.rubrics.answer import shown

Systems = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """The rows of both runs: the n rows that have a score, in numbers, and after them the other ones, m in all.

    Attributes:
        source: the scores or the pairs of both runs, OLD first.
        run: 0 for OLD and 1 for NEW, [m].
        line: the number of its first line in its run, [m]; a complete run has the input's order.
        identities: what identifies each row, [m]; a pair has the response whose preference counts first.
        group: the number of its instruction, [m]; -1 if no row with a score is of this instruction.
        systems: the system that it is about, or of a pair, whose preference it is, [m].
        reasons: why it has no score, [m]; empty if it has one.
        chosen: whether it is compared, [m].
        counts: whether the result is of it, [m]; the other rows of OLD only take theirs out of NEW.
        columns: the numbers [n] and the ends of each column: the score columns and their mean, or the
            preference for a response. The ends of the score of a checklist are those of OLD's rows.
        lowest: the lowest possible number of each row in each column, [n, C]; in a checklist it follows from
            the points of the row.
        written: the number of the judge's verdict in each aspect, [n]: that of its value or, without an order,
            the place of its label; of a pair, as in `localjudge.modes.pair_preference.RESULTS`.
        texts: the text of each such number.
        ordered: the aspects with an order.
        turned: whether a pair has its responses in the reverse of its input's order, [n].
        note: what the numbers are, in words.
        problem: why a gate does not know whose column it reads; empty if it does.
        has_criteria: whether the one column is the score of a checklist.
        expected: the columns whose numbers are expected scores.
    """

    source: Scores | JudgedPairs
    run: Integers
    line: Integers
    identities: Sequence[Identity]
    group: Integers
    systems: Sequence[str]
    reasons: Sequence[str]
    counts: Flags
    chosen: Flags
    columns: Mapping[str, tuple[Floats, tuple[float, float]]]
    lowest: Floats
    written: Mapping[str, Floats]
    texts: Mapping[str, Mapping[float, str]]
    ordered: frozenset[str]
    turned: Flags
    note: str
    problem: str = ""
    has_criteria: bool = False
    expected: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        folders: Sequence[Path],
        of: ScoreKind | None = None,
        only: Collection[str] = (),
        where: str | None = None,
    ) -> ComparedRows:
        """Return the rows of two runs.

        Args:
            folders: the run directories, OLD first.
            of: the kind of scores; by default the expected scores if both runs have them.
            only: the systems to compare, or whose preference is compared; empty for all.
            where: COLUMN=VALUE; only rows of OLD with this value count, and rows of NEW that belong to them.

        Raises:
            UsageError: there is no such system or row, or the runs cannot be compared.
        """
        judged = read_judged(folders, by_run=False, criteria="joined", where=RowSelection(where, of_old=True))
        if isinstance(judged, JudgedPairs):
            return cls._from_pairs(judged, only)
        return cls._from_scores(judged, of, only)

    @classmethod
    def _from_scores(cls, scores: Scores, of: ScoreKind | None, only: Collection[str]) -> ComparedRows:
        of = of or scores.best
        written, texts = {}, {}
        places = {column.aspect: place for place, column in enumerate(scores.columns)}
        # The score of a row with criteria is not a verdict of the judge.
        has_criteria = not places.keys() <= scores.rubric.aspects.keys()
        for aspect, place in places.items() if not has_criteria else ():
            written[aspect] = scores.integer[:, place]
            texts[aspect] = {
                float(number): shown(value) for value, number in scores.columns[place].numbers.items()
            }
            if labels := scores.nominal.get(aspect):
                written[aspect] = scores.verdicts(aspect)
                texts[aspect] = {float(place): shown(label) for place, label in enumerate(labels)}
        columns: dict[str, tuple[Floats, tuple[float, float]]] = dict(scores.table(of))
        lowest = np.tile([low for _, (low, _) in columns.values()], (len(scores.ids), 1))
        if scores.lowest is not None:
            lowest = scores.lowest[:, None]
            lowest_in_old = lowest[scores.run == 0].min(initial=0)
            columns = {name: (values, (lowest_in_old, high)) for name, (values, (_, high)) in columns.items()}
        rows = _with_unscored(scores)
        systems = [identity.systems[0] or UNNAMED for identity in rows["identities"]]
        _check(only, systems)
        return cls(
            source=scores,
            **rows,
            systems=systems,
            chosen=np.array([not only or name in only for name in systems]),
            columns=columns,
            lowest=lowest.astype(np.float64),
            written=written,
            texts=texts,
            ordered=frozenset(written.keys() - scores.nominal.keys()),
            turned=np.zeros(len(scores.ids), dtype=np.bool_),
            note=f"the {of} scores are compared",
            has_criteria=has_criteria,
            expected=frozenset(scores.aspects) - scores.without_expected if of == "expected" else frozenset(),
        )

    @classmethod
    def _from_pairs(cls, pairs: JudgedPairs, only: Collection[str]) -> ComparedRows:
        """Return the preferences of two runs of pairs: the probability that a response is better, 0 to 1.

        If the pairs name their systems, it is that of the system that `PairSubject` finds. Otherwise it is the
        preference for the first response of the pair in OLD, or in NEW if OLD lacks it.
        """
        rows, count = _with_unscored(pairs), len(pairs.run)
        identities: list[Identity] = rows["identities"]
        every: list[set[Systems]] = [set(), set()]
        for run, identity in zip(rows["run"].tolist(), identities, strict=True):
            every[run] |= {identity.systems} if None not in identity.systems else set()
        _check(only, [str(name) for run in every for systems in run for name in systems])
        recorded = [manifest.last_start.pairing for manifest in pairs.manifests]
        baselines = {pairing.baseline for pairing in recorded if pairing and pairing.baseline}
        subject = PairSubject(every, baselines, only)
        is_named = all(None not in systems for systems in pairs.systems)
        named = [is_named and None not in identity.systems for identity in identities]
        turned = [
            known and subject.turns(identity.systems) for known, identity in zip(named, identities, strict=True)
        ]
        if not is_named:
            turned[:count] = _turned_by_text(pairs)
        identities = [
            identity.reversed() if turn else identity for identity, turn in zip(identities, turned, strict=True)
        ]
        of_score = np.array(turned[:count])

        def own_value(values: Floats) -> Floats:
            return np.where(of_score, 1 - values, values)

        systems = [
            subject.name(identity.systems) if known else _FIRST
            for identity, known in zip(identities, named, strict=True)
        ]
        chosen = [
            not known or subject.takes(each.systems) for each, known in zip(identities, named, strict=True)
        ]
        whose = list(dict.fromkeys(systems[:count]))
        texts = {number: name for name, number in RESULTS.items()}
        return cls(
            source=pairs,
            **rows | {"identities": identities},
            systems=systems,
            chosen=np.array(chosen),
            columns={
                name: (own_value(verdicts.preference[:, 0]), (0, 1)) for name, verdicts in pairs.aspects.items()
            },
            lowest=np.zeros((count, len(pairs.aspects))),
            written={name: own_value(verdicts.result[:, 0]) for name, verdicts in pairs.aspects.items()},
            texts=dict.fromkeys(pairs.aspects, texts),
            ordered=frozenset(),
            turned=of_score,
            note=f"each number is the preference for {' and for '.join(whose[:_MOST_NAMED])}"
            + f" and for {len(whose) - _MOST_NAMED} more" * (len(whose) > _MOST_NAMED)
            + ", from 0 to 1",
            problem=subject.problem if is_named else _UNNAMED_PAIRS,
        )

    def rows_of(self, run: int) -> list[int]:
        """Return the rows of a run that are compared, with a score or without, in the order of their lines."""
        chosen = np.flatnonzero((self.run == run) & self.chosen)
        in_order: list[int] = chosen[np.argsort(self.line[chosen], kind="stable")].tolist()
        return in_order

    def has_score(self, row: int) -> bool:
        """Return whether a row has a score."""
        return row < len(self.turned)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the C columns."""
        return tuple(self.columns)

    @property
    def values(self) -> Floats:
        """The numbers of all columns, [n, C]."""
        return np.column_stack([values for values, _ in self.columns.values()])

    @property
    def width(self) -> Floats:
        """The width of the scale of each column, [C]."""
        return np.array([high - low for _, (low, high) in self.columns.values()], dtype=np.float64)

    @property
    def collapse(self) -> Floats:
        """The fall of a row in each column that is a collapse, [C]: half the scale.

        How far the score of a checklist can be below 0 depends on the points of single rows; there it is 0.5.
        """
        if self.has_criteria:
            return np.full(len(self.names), 0.5)
        return self.width / 2

    def verdict(self, aspect: str, row: int) -> str:
        """Return what the judge wrote."""
        return self.texts[aspect][float(self.written[aspect][row])]


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


_FIRST = "the first response of a pair"
_UNNAMED_PAIRS = (
    "the pairs name no systems, so nothing tells whose preference must not fall; give their rows the columns "
    "system_a and system_b, or judge responses with `baseline`"
)
_MOST_NAMED = 3


def _check(only: Collection[str], systems: Collection[str]) -> None:
    there = dict.fromkeys(sorted(systems))
    for name in only:
        if name not in there:
            raise UsageError(f"`system` {name}: no row is of this system; give one of {', '.join(there)}")


def _with_unscored(source: Scores | JudgedPairs) -> dict[str, Any]:
    """Return what the rows with a score and the other rows have in common, see `ComparedRows`."""
    others = source.unscored
    assert others is not None  # the rows were read from runs
    return {
        "run": np.append(source.run, others.run),
        "line": np.array([lines[0] for lines in [*source.lines, *others.lines]], dtype=np.int64),
        "identities": [*source.identities, *others.identities],
        "group": np.append(source.group, others.group),
        "reasons": [*[""] * len(source.run), *others.errors],
        "counts": np.append(source.counts, others.counts),
    }


def _turned_by_text(pairs: JudgedPairs) -> list[bool]:
    """Return which pairs of NEW have the responses of a pair of OLD in the other order, [n]."""
    digests = [identity.digests for identity in pairs.identities]
    known = {digests[row] for row in np.flatnonzero(pairs.run == 0).tolist()}
    return [
        run == 1 and own not in known and own[::-1] in known
        for run, own in zip(pairs.run.tolist(), digests, strict=True)
    ]
