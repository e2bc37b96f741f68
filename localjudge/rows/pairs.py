"""Pairs of responses: from rows that hold two, or from the rows of several systems, and in both orders."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from random import Random
from sys import intern
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from localjudge.errors import RowError, RowProblem, UsageError
from localjudge.records import Failure, Row
from localjudge.rows.columns import IN_FULL, PAIR, SYSTEMS, compares_responses
from localjudge.rows.inputs import RecordStream, find_inputs
from localjudge.rows.missing import known_columns
from localjudge.rows.row import Identity, unreadable
from localjudge.rows.row_limit import RowLimit

ALL = "all"


class Pairing(BaseModel):
    """How the rows of an input become rows of two responses.

    Attributes:
        orders: the number of orders in which each pair is judged: its own, or its own and the reverse.
        systems: the pairs of systems that are compared; None for all pairs. Each is in the order of the first
            presentation.
        baseline: a system that is compared with each other one.
        forms: whether pairs are formed from rows of one response each; otherwise each row holds two.
        per_instruction: the largest number of pairs for each instruction; None for all.
        seed: seed of the choice of these pairs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    orders: Literal[1, 2] = 2
    forms: bool = False
    systems: tuple[tuple[str, str], ...] | None = None
    baseline: str | None = None
    per_instruction: int | None = Field(default=None, ge=1)
    seed: int = 0

    @classmethod
    def usual(cls, used: Iterable[str]) -> Self | None:
        """Return the pairing of rows that hold both responses, in both orders; None for rows of one response.

        Args:
            used: the fields that the rubric's template uses.
        """
        return cls() if compares_responses(used) else None

    @classmethod
    def parse(
        cls,
        used: Sequence[str],
        orders: str,
        pairs: str | None,
        baseline: str | None,
        per_instruction: int | None,
        seed: int,
    ) -> Self | None:
        """Return the pairing that the options ask for; None for a template of one response.

        Args:
            used: the fields that the rubric's template uses.
            orders: "one" or "both".
            pairs: "all", or a file with the columns system_a and system_b; None without it.
            baseline: a system that is compared with each other one; None without it.
            per_instruction: the largest number of pairs for each instruction; None for all.
            seed: seed of the choice of these pairs.

        Raises:
            UsageError: the options contradict each other or the template.
        """
        given = {"pairs": pairs, "baseline": baseline, "pairs_per_instruction": per_instruction}
        named = [option for option, value in given.items() if value is not None]
        if not compares_responses(used):
            if named or orders != "both":
                option = (named or ["orders"])[0]
                raise UsageError(f"`{option}`: is for rubrics that compare two responses, such as pairwise")
            return None
        if orders not in ("one", "both"):
            raise UsageError(f"`orders` {orders}: give one or both")
        if pairs is not None and baseline is not None:
            raise UsageError("`baseline`: is one of the pairs that `pairs` can list; give only one of the two")
        return cls(
            orders=1 if orders == "one" else 2,
            forms=bool(named),
            systems=None if pairs in (None, ALL) else _read_pairs(str(pairs)),
            baseline=baseline,
            per_instruction=per_instruction,
            seed=seed,
        )

    def used(self, used: Sequence[str]) -> list[str]:
        """Return the fields that each row of the input needs, among them those by which pairs are formed.

        Args:
            used: the fields that the rubric's template uses.
        """
        if not self.forms:
            return list(used)
        return ["candidate", "system", IN_FULL, *(field for field in used if field not in PAIR)]

    def rows(self, rows: Iterable[Row | Failure], limit: RowLimit | None = None) -> PairedRows:
        """Return the rows to judge; the orders of a pair follow each other.

        Args:
            rows: the rows of the input.
            limit: how many pairs are used; None for all.
        """
        return PairedRows(self, rows, limit)


class PairedRows:
    """The rows of pairs, as an iterable that can be read once.

    Attributes:
        missing: for each system, the number of instructions that it has no response to, after the last row.
    """

    def __init__(self, pairing: Pairing, rows: Iterable[Row | Failure], limit: RowLimit | None) -> None:
        self._pairing, self._rows, self._limit = pairing, rows, limit or RowLimit()
        self._random, self._compared = Random(pairing.seed), Counter[str | frozenset[str]]()
        self.missing: dict[str, int] = {}

    def __iter__(self) -> Iterator[Row | Failure]:
        pairs = self._formed() if self._pairing.forms else self._rows
        for pair in self._limit.first(pairs):
            yield pair
            if self._pairing.orders == 2:
                yield (pair.reversed() if isinstance(pair, Row) else pair.model_copy(update={"swapped": True}))

    def _formed(self) -> Iterator[Row | Failure]:
        """Yield a row of two responses for each pair, instruction by instruction, and the unreadable rows."""
        from localjudge.rows.row_store import RowStore

        groups: dict[str, list[int]] = defaultdict(list)
        systems: list[str] = []
        with RowStore() as stored:
            for row in self._rows:
                if isinstance(row, Failure):
                    yield row
                elif row.system is None:
                    lacks = "no system, by which pairs are formed; its other columns are"
                    reason = f"{lacks} {known_columns(row.columns)}; name it with --column system=COLUMN"
                    error = RowError(reason, dict(row.columns), RowProblem.MISSING)
                    yield unreadable(row.source, error, Identity(row.id))
                else:
                    groups[row.group].append(len(stored))
                    stored.append(row)
                    systems.append(intern(str(row.system)))
            names = dict.fromkeys(systems)
            listed = self._listed(names)
            missing = Counter(dict.fromkeys(names, len(groups)))
            for places in groups.values():
                missing.subtract({systems[each] for each in places})
            self.missing, formed = dict(+missing), 0
            for places in groups.values():
                for first, second in self._chosen(places, systems, listed):
                    formed += 1
                    yield _pair(stored[first], stored[second])
            if not formed:
                raise UsageError(
                    "`pairs`: no two of these systems answer the same instruction; rows belong together if the "
                    "instruction and each field that the prompt uses, but the responses, are equal"
                )

    def _listed(self, names: Collection[str]) -> dict[frozenset[str], str] | None:
        """Return the first system of each pair of systems that is compared; None for all pairs.

        Raises:
            UsageError: there are fewer than two systems, or no row is of one that is given.
        """
        there = ", ".join(list(names)[:12]) or "none"
        baseline, pairs = self._pairing.baseline, self._pairing.systems
        if baseline is not None:
            pairs = tuple((name, baseline) for name in names)
        option = "`pairs`" if baseline is None else "`baseline`"
        for name in chain.from_iterable(pairs or ()):
            if name not in names:
                raise UsageError(f"{option}: no row is of the system {name!r}; there are {there}")
        if len(names) < 2:
            raise UsageError(
                f"`pairs`: give rows of two systems or more; those of these rows are: {there}. Name their "
                "column with `columns` system=COLUMN, or give a file for each with `system_from` filename"
            )
        return None if pairs is None else {frozenset(pair): pair[0] for pair in pairs}

    def _chosen(
        self, places: Sequence[int], systems: Sequence[str], listed: Mapping[frozenset[str], str] | None
    ) -> list[tuple[int, int]]:
        """Return the pairs of responses to compare, of those to one instruction; each in its order.

        If their number is limited, the pairs of systems that were compared least come first, and of these the
        ones whose systems were compared least: equal numbers for all pairs leave the smallest error in the
        strengths while nothing is known about them. The seed decides between equals.
        """
        most, compared, pairs = self._pairing.per_instruction, self._compared, list[tuple[int, int]]()
        for one, other in combinations(places, 2):
            both = frozenset((systems[one], systems[other]))
            first = systems[one] if listed is None else listed.get(both)
            if len(both) > 1 and first is not None:
                pairs.append((one, other) if first == systems[one] else (other, one))
        if most is None or most >= len(pairs):
            return pairs
        rank, chosen = {pair: self._random.random() for pair in pairs}, set[tuple[int, int]]()

        def before(pair: tuple[int, int]) -> tuple[float, ...]:
            both = [systems[each] for each in pair]
            return compared[frozenset(both)], sum(compared[system] for system in both), rank[pair]

        for _ in range(most):
            best = min(rank.keys() - chosen, key=before)
            chosen.add(best)
            names = [systems[each] for each in best]
            compared.update([*names, frozenset(names)])
        return [pair for pair in pairs if pair in chosen]


def _pair(first: Row | Failure, second: Row | Failure) -> Row:
    """Return one row with the responses of two rows of the same instruction.

    Other columns keep their value if both rows have the same, and have both values otherwise.
    """
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    names = dict.fromkeys([*first.columns, *second.columns])
    both = {name: (first.columns.get(name), second.columns.get(name)) for name in names}
    return replace(
        first,
        responses=(*first.responses, *second.responses),
        id=f"{first.id} vs {second.id}",
        source=f"{first.source} and {second.source}",
        columns={name: one if one == other else [one, other] for name, (one, other) in both.items()},
    )


def _read_pairs(name: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of systems in a file.

    Raises:
        UsageError: the file cannot be read, or a record does not name two systems.
    """
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    for file in find_inputs([name]):
        for number, record in RecordStream(file):
            found = [record.get(field) for field in SYSTEMS] if isinstance(record, Mapping) else [None]
            if not all(isinstance(each, str) and each for each in found) or len(set(found)) < 2:
                raise UsageError(
                    f"`pairs` {file}:{number}: give two systems in the columns system_a and system_b"
                )
            pairs.setdefault(frozenset(map(str, found)), (str(found[0]), str(found[1])))
    if not pairs:
        raise UsageError(f"`pairs` {name}: lists no pair; give a file with the columns system_a and system_b")
    return tuple(pairs.values())
