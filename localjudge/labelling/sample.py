"""The sample of rows that people label: the rows that it is drawn from, and the chance of each to be in it.

The unit is the instruction: all its rows are in the sample, or none. The sample is drawn by systematic sampling
from a random order with unequal chances (Madow, 1949), so each instruction has exactly its own chance. People
label the instructions in random order; whenever they stop, what they have labelled is a random part of the
sample, and each row's chance is known up to a factor that all rows share.

A sample can prefer rows that are rare, or that a judge doubts. Half of the chances is then spread evenly, so
that every row can be drawn; the other half follows the judge's doubt (active inference, arXiv:2403.03208).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Row
from localjudge.rows.row_store import RowStore
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.reread_texts import rows_found
from localjudge.runs.run_manifest import read_manifest

Preferred = Literal["system", "score", "orders", "jurors", "mass", "interval"]
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Candidates:
    """The n rows that a sample is drawn from.

    Attributes:
        rows: the rows.
        keys: the key of each row, which the label file has.
        group: the number of each row's instruction, from 0 without gaps, [n].
        chance: the chance of each instruction to be in the sample.
        prefer: what is drawn more often; None if all chances are equal.
        judged: the judge's answer for each row, if the page may show it; else empty.
        unreadable: why each row that is left out cannot be read.
    """

    rows: RowStore
    keys: Sequence[str]
    group: Integers
    chance: Floats
    prefer: str | None
    judged: Mapping[int, Mapping[str, str]]
    unreadable: Sequence[str]


def candidates_of_rows(
    rows: Iterable[Row | Failure], store: RowStore, sample: int | None, prefer: Preferred | None = None
) -> Candidates:
    """Return the rows of files; unreadable ones are left out.

    Args:
        rows: the rows and failures.
        store: receives the rows.
        sample: the number of rows that are expected in the sample; None for all.
        prefer: what is drawn more often; without a judge, only "system".

    Raises:
        UsageError: there is no row, or only a run has what is preferred.
    """
    if prefer not in (None, "system"):
        raise UsageError(f"`prefer` {prefer}: needs the judgements of a run; give a run directory")
    return _candidates(rows, store, sample, prefer, {}, {})


def candidates_of_run(
    run: Path,
    store: RowStore,
    sample: int | None,
    prefer: Preferred | None = None,
    show_judge: bool = False,
    inputs: Iterable[str] = (),
) -> Candidates:
    """Return the rows of a run whose texts are found in its inputs.

    Args:
        run: the run directory.
        store: receives the rows.
        sample: as for `candidates_of_rows`.
        prefer: what is drawn more often.
        show_judge: show people the judge's answer.
        inputs: the input files, if they were moved.

    Raises:
        UsageError: no text was found, or no row has what is preferred.
    """
    manifest = read_manifest(run)
    outcomes = {outcome.first.digest: outcome for outcome in read_row_outcomes(run)}
    weights = {}
    if prefer is not None and prefer != "system":
        weights = judge_weights(outcomes, manifest.rubric.aspects, prefer)
    rows = (row for _, row in rows_found(manifest, list(outcomes), inputs))
    candidates = _candidates(rows, store, sample, prefer, weights, outcomes)
    if show_judge:
        return candidates
    return replace(candidates, judged={})


def _candidates(
    rows: Iterable[Row | Failure],
    store: RowStore,
    sample: int | None,
    prefer: Preferred | None,
    weights: Mapping[str | None, float],
    outcomes: Mapping[str | None, RowOutcome],
) -> Candidates:
    """Return one candidate for all rows with equal texts: a label is of all texts that a person sees.

    Args:
        rows: the rows and failures.
        store: receives the rows.
        sample: as for `candidates_of_rows`.
        prefer: what is drawn more often.
        weights: the weight of a row by the digest of its texts; 1 for any other row.
        outcomes: the outcome of each row of a run, by the same digest.
    """
    if prefer is not None and sample is None:
        raise UsageError(f"`prefer` {prefer}: needs `sample`; all rows are drawn without it")
    distinct = _DistinctRows(store)
    unreadable: list[str] = []
    for row in rows:
        if isinstance(row, Failure):
            unreadable.append(row.error)
        else:
            distinct.add(row)
    if not distinct.keys:
        why = unreadable[0] if unreadable else "if the inputs of the run were moved, give `inputs`"
        raise UsageError(f"no row has texts to label: {why}")
    if prefer == "system":
        weight = even(distinct.systems)
    else:
        weight = np.array([weights.get(digest, 1.0) for digest in distinct.digests])
    group = np.array(distinct.groups)
    sizes = np.bincount(group)
    mean_weight = np.bincount(group, weight) / sizes
    judged: dict[int, Mapping[str, str]] = {}
    for number, digest in enumerate(distinct.digests):
        outcome = outcomes.get(digest)
        if outcome is not None and outcome.error is None:
            judged[number] = outcome.verdict_texts
    return Candidates(
        rows=store,
        keys=list(distinct.keys),
        group=group,
        chance=chances(mean_weight, sizes, sample),
        prefer=prefer,
        judged=judged,
        unreadable=unreadable,
    )


@dataclass(slots=True)
class _DistinctRows:
    """Rows with different texts, in the order in which they were added.

    Attributes:
        store: receives each of them.
        keys: the key of each.
        digests: the digest of its texts.
        systems: the systems of its responses.
        groups: the number of its instruction.
    """

    store: RowStore
    keys: dict[str, None] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    systems: list[tuple[str | None, ...]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Add a row, unless one with equal texts is there."""
        key = row_key(row)
        if key in self.keys:
            return
        self.store.append(row)
        self.keys[key] = None
        self.digests.append(row.digest.hex())
        self.systems.append(tuple(response.system for response in row.responses))
        self.groups.append(self._numbers.setdefault(row.group, len(self._numbers)))


def row_key(row: Row) -> str:
    """Return the key of every text that the rubric shows of a row: rows with equal texts are asked once."""
    digests = [row.group] + list(row.response_digests)
    return hashlib.sha256(repr(digests).encode()).hexdigest()[:24]


def even(kinds: Sequence[Hashable]) -> Floats:
    """Return weights with which each kind of row is drawn equally often, [n]."""
    counts = Counter(kinds)
    return np.array([len(kinds) / len(counts) / counts[kind] for kind in kinds])


def doubtful(doubt: Sequence[float | None]) -> Floats:
    """Return weights that grow with the doubt, [n]; a row whose doubt is not known has the mean weight."""
    known = [value for value in doubt if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    if mean == 0:
        return np.ones(len(doubt))
    filled = np.array([mean if value is None else value for value in doubt])
    weights: Floats = 0.5 + 0.5 * filled / mean
    return weights


def judge_weights(
    outcomes: Mapping[str | None, RowOutcome], aspects: Mapping[str, Aspect], preferred: Preferred
) -> dict[str | None, float]:
    """Return the weight of each row of a run, by the digest of its texts.

    Args:
        outcomes: the outcome of each row, by the same digest.
        aspects: the aspects; the first one decides.
        preferred: what is drawn more often: rare scores; pairs whose orders disagree; rows whose jurors
            disagree; rows with a low mass of the values; or with a wide distribution of the values.

    Raises:
        UsageError: no row of the run has what is preferred.
    """
    name, aspect = next(iter(aspects.items()))
    if preferred == "score":
        weights = even([row.verdicts.get(name) for row in outcomes.values()])
    else:
        doubts = [_doubt(row, name, aspect, preferred) for row in outcomes.values()]
        if all(doubt is None for doubt in doubts):
            raise UsageError(f"`prefer` {preferred}: this run does not record it; give another value")
        weights = doubtful(doubts)
    return dict(zip(outcomes, weights.tolist(), strict=True))


def _doubt(row: RowOutcome, name: str, aspect: Aspect, preferred: Preferred) -> float | None:
    """Return how much a judge, or the jurors, doubt a row; None if that is not known.

    Args:
        row: the outcome of the row.
        name: the name of the aspect.
        aspect: the aspect.
        preferred: where the doubt shows.
    """
    if row.error is not None:
        return None
    if preferred == "orders":
        return _contradiction(row, name)
    if preferred == "jurors":
        return _spread_of_jurors(row, name, aspect)
    if preferred == "mass":
        return _mean([1 - judgement.mass[name] for judgement in row.judged if name in judgement.mass])
    distributions = [judgement.probabilities.get(name) for judgement in row.judged]
    return _mean([_spread(shares, aspect) for shares in distributions if shares is not None])


def _contradiction(row: RowOutcome, name: str) -> float | None:
    """Return 1 if the orders of a pair contradict each other, else 0; None if it has not two orders."""
    preference = row.preference(name)
    if preference is None or preference.agree is None:
        return None
    return 0.0 if preference.agree else 1.0


def _spread_of_jurors(row: RowOutcome, name: str, aspect: Aspect) -> float | None:
    """Return the spread of the jurors' values; None for a row without jurors."""
    jury = row.first.columns.get("jury")
    if not isinstance(jury, Mapping) or not jury:
        return None
    counts = Counter(values[name] for values in jury.values())
    return _spread([counts[value] / counts.total() for value in aspect.values.values()], aspect)


def _mean(doubts: Sequence[float]) -> float | None:
    if not doubts:
        return None
    return sum(doubts) / len(doubts)


def _spread(shares: Sequence[float], aspect: Aspect) -> float:
    """Return the standard deviation of values with these shares; without an order, the share of the others."""
    if aspect.numbers is None:
        return 1 - max(shares)
    numbers = np.array(list(aspect.numbers.values()))
    mean = numbers @ shares
    return float(np.sqrt((numbers - mean) ** 2 @ shares))


def chances(weights: Floats, sizes: Integers, rows: int | None) -> Floats:
    """Return the chance of each instruction to be in the sample, above 0 and at most 1, [g].

    Args:
        weights: the chances are proportional to these positive weights, capped at 1, [g].
        sizes: the number of rows of each instruction, [g].
        rows: the number of rows that are expected in the sample; None for all.
    """
    if rows is None or rows >= sizes.sum():
        return np.ones(len(weights))
    certain = np.zeros(len(weights), dtype=np.bool_)  # the instructions whose chance is 1, [g]
    while True:
        uncertain_rows = rows - sizes[certain].sum()
        total_weight = (weights * sizes)[~certain].sum()
        chance: Floats = np.where(certain, 1.0, weights * uncertain_rows / total_weight)
        if not (chance > 1).any():
            return chance
        certain |= chance > 1


def draw(chance: Floats, random: np.random.Generator) -> Integers:
    """Return the instructions of a sample in random order.

    Args:
        chance: the chance of each instruction, [g].
        random: the source of randomness.
    """
    order = random.permutation(len(chance))
    start = random.random()
    if np.ptp(chance) == 0:  # the first ones, so that a larger sample contains a smaller one
        size = int(chance.sum() + start + _ROUNDING)
        return order[:size].astype(np.int64)
    ends = np.cumsum(chance[order]) - start
    # An instruction is drawn if a whole number lies on its part of the line.
    is_drawn = np.floor(ends) > np.floor(ends - chance[order])
    is_certain = chance[order] >= 1
    drawn: Integers = random.permutation(order[is_drawn | is_certain]).astype(np.int64)
    return drawn
