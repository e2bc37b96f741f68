"""The judged rows of two runs in numbers, to be compared: scores, or the preferences of pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localjudge.analysis import Flags, Floats
from localjudge.analysis.changes.pair_subject import PairSubject, Systems
from localjudge.analysis.matching.identity import Identity
from localjudge.analysis.matching.run_rows import UnscoredRow
from localjudge.analysis.matching.scores import ScoreKind, Scores
from localjudge.analysis.matching.system_names import UNNAMED
from localjudge.analysis.pairs import JudgedPairs
from localjudge.errors import UsageError
from localjudge.modes.pair_preference import RESULTS
from localjudge.rubrics.answer import shown


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """The n judged rows of both runs, in numbers.

    Attributes:
        source: the scores or the pairs of both runs, OLD first.
        identities: what identifies each row; a pair has the response whose preference counts first.
        digests: the digest of the texts of its first prompt.
        systems: the system that it is about, or of a pair, whose preference it is, [n].
        chosen: whether it is compared, [n].
        unscored: the rows of both runs without a score, with their systems.
        columns: the numbers [n] and the ends of each column: the score columns and their mean, or the
            preference for a response.
        written: the number of the judge's verdict in each aspect, [n]: that of its value or, without an order,
            the place of its label; of a pair, as in `localjudge.modes.pair_preference.RESULTS`.
        texts: the text of each such number.
        ordered: the aspects with an order.
        turned: whether a pair has its responses in the reverse of its input's order, [n].
        note: what the numbers are, in words.
        problem: why a gate does not know whose column it reads; empty if it does.
    """

    source: Scores | JudgedPairs
    identities: Sequence[Identity]
    digests: Sequence[str | None]
    systems: Sequence[str]
    chosen: Flags
    unscored: Sequence[tuple[UnscoredRow, str]]
    columns: Mapping[str, tuple[Floats, tuple[int, int]]]
    written: Mapping[str, Floats]
    texts: Mapping[str, Mapping[float, str]]
    ordered: frozenset[str]
    turned: Flags
    note: str
    problem: str = ""

    @classmethod
    def from_scores(
        cls, scores: Scores, of: ScoreKind | None = None, only: Collection[str] = ()
    ) -> ComparedRows:
        """Return the scores of two runs.

        Args:
            scores: the scores of both, OLD first.
            of: the kind of scores; by default the expected scores if both runs have them.
            only: the systems to compare; empty for all.

        Raises:
            UsageError: there is no such system.
        """
        of = of or scores.best
        written, texts = {}, {}
        places = {column.aspect: place for place, column in enumerate(scores.columns)}
        # The score of a row with criteria is not a verdict of the judge.
        for aspect, place in places.items() if places.keys() <= scores.rubric.aspects.keys() else ():
            written[aspect] = scores.integer[:, place].astype(np.float64)
            texts[aspect] = {
                float(number): shown(value) for value, number in scores.columns[place].numbers.items()
            }
            if labels := scores.nominal.get(aspect):
                written[aspect] = scores.shares(aspect, "integer").argmax(axis=1).astype(np.float64)
                texts[aspect] = {float(place): shown(label) for place, label in enumerate(labels)}
        systems = [each.systems[0] or UNNAMED for each in scores.identities]
        unscored = [(each, each.identity.systems[0] or UNNAMED) for each in scores.unscored]
        _check(only, [*systems, *(name for _, name in unscored)])
        return cls(
            source=scores,
            identities=scores.identities,
            digests=scores.digests,
            systems=systems,
            chosen=np.array([not only or name in only for name in systems]),
            unscored=[each for each in unscored if not only or each[1] in only],
            columns=scores.table(of),
            written=written,
            texts=texts,
            ordered=frozenset(written.keys() - scores.nominal.keys()),
            turned=np.zeros(len(scores.ids), dtype=np.bool_),
            note=f"the {of} scores are compared",
        )

    @classmethod
    def from_pairs(cls, pairs: JudgedPairs, only: Collection[str] = ()) -> ComparedRows:
        """Return the preferences of two runs of pairs: the probability that a response is better, 0 to 1.

        If the pairs name their systems, it is that of the system that `PairSubject` finds. Otherwise it is the
        preference for the first response of the pair in OLD, or in NEW if OLD lacks it.

        Args:
            pairs: the pairs of both, OLD first.
            only: the systems whose preference is compared; empty for all.

        Raises:
            UsageError: there is no such system.
        """
        every: list[list[Systems]] = [[], []]
        for run, named in zip(pairs.run.tolist(), pairs.systems, strict=True):
            every[run].append(named)
        is_named = all(None not in named for run in every for named in run)
        for each in pairs.unscored:
            every[each.run] += [each.identity.systems] * (None not in each.identity.systems)
        _check(only, [str(name) for run in every for named in run for name in named])
        recorded = [manifest.last_start.pairing for manifest in pairs.manifests]
        subject = PairSubject(
            [set(run) for run in every], {each.baseline for each in recorded if each and each.baseline}, only
        )
        if is_named:
            turned = np.array([subject.turns(named) for named in pairs.systems])
        else:
            turned = _turned_by_text(pairs)
        identities = [
            each.reversed() if turn else each for each, turn in zip(pairs.identities, turned, strict=True)
        ]
        unscored = []
        for each in pairs.unscored:
            known = None not in each.identity.systems
            own = each.identity
            if is_named and known and subject.turns(own.systems):
                own = own.reversed()
            if not known or subject.takes(own.systems):
                about = subject.name(own.systems) if is_named and known else _FIRST
                unscored.append((replace(each, identity=own), about))

        def own_value(values: Floats) -> Floats:
            return np.where(turned, 1 - values, values)

        systems = [subject.name(each.systems) if is_named else _FIRST for each in identities]
        whose, texts = list(dict.fromkeys(systems)), {number: name for name, number in RESULTS.items()}
        return cls(
            source=pairs,
            identities=identities,
            digests=[digest for digest, _ in pairs.shown],
            systems=systems,
            chosen=np.array([not is_named or subject.takes(each.systems) for each in identities]),
            unscored=unscored,
            columns={name: (own_value(each.preference[:, 0]), (0, 1)) for name, each in pairs.aspects.items()},
            written={name: own_value(each.result[:, 0]) for name, each in pairs.aspects.items()},
            texts=dict.fromkeys(pairs.aspects, texts),
            ordered=frozenset(),
            turned=turned,
            note=f"each number is the preference for {' and for '.join(whose[:_MOST_NAMED])}"
            + f" and for {len(whose) - _MOST_NAMED} more" * (len(whose) > _MOST_NAMED)
            + ", from 0 to 1",
            problem=subject.problem if is_named else _UNNAMED_PAIRS,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the C columns."""
        return tuple(self.columns)

    @property
    def values(self) -> Floats:
        """The numbers of all columns, [n, C]."""
        return np.column_stack([values for values, _ in self.columns.values()])

    @property
    def low(self) -> Floats:
        """The lowest number of each column, [C]."""
        return np.array([low for _, (low, _) in self.columns.values()], dtype=np.float64)

    @property
    def width(self) -> Floats:
        """The width of the scale of each column, [C]."""
        return np.array([high - low for _, (low, high) in self.columns.values()], dtype=np.float64)

    def verdict(self, aspect: str, row: int) -> str:
        """Return what the judge wrote."""
        return self.texts[aspect][float(self.written[aspect][row])]


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


def _turned_by_text(pairs: JudgedPairs) -> Flags:
    """Return which pairs of NEW have the responses of a pair of OLD in the other order, [n]."""
    digests = [each.digests for each in pairs.identities]
    known = {digests[row] for row in np.flatnonzero(pairs.run == 0).tolist()}
    turned = [
        run == 1 and own not in known and own[::-1] in known
        for run, own in zip(pairs.run.tolist(), digests, strict=True)
    ]
    return np.array(turned)
