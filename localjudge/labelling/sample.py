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
from dataclasses import dataclass, replace
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
    rows = (row for _, row in rows_found(manifest, [*outcomes], inputs))
    found = _candidates(rows, store, sample, prefer, weights, outcomes)
    return found if show_judge else replace(found, judged={})


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
    kept: dict[str, tuple[str, tuple[str | None, ...]]] = {}  # the digest and the systems of each key
    groups, numbers, unreadable = list[int](), dict[str, int](), list[str]()
    for row in rows:
        if isinstance(row, Failure):
            unreadable.append(row.error)
        elif (key := row_key(row)) not in kept:
            store.append(row)
            kept[key] = row.digest.hex(), tuple(each.system for each in row.responses)
            groups.append(numbers.setdefault(row.group, len(numbers)))
    if not kept:
        why = unreadable[0] if unreadable else "if the inputs of the run were moved, give `inputs`"
        raise UsageError(f"no row has texts to label: {why}")
    digests, systems = zip(*kept.values(), strict=True)
    of_row = even(systems) if prefer == "system" else np.array([weights.get(each, 1.0) for each in digests])
    group = np.array(groups)
    sizes = np.bincount(group)
    chance = chances(np.bincount(group, of_row) / sizes, sizes, sample)
    said = {place: outcomes[each] for place, each in enumerate(digests) if each in outcomes}
    judged = {place: outcome.verdict_texts for place, outcome in said.items() if outcome.error is None}
    return Candidates(store, [*kept], group, chance, prefer, judged, unreadable)


def row_key(row: Row) -> str:
    """Return the key of every text that the rubric shows of a row: rows with equal texts are asked once."""
    return hashlib.sha256(repr([row.group, *row.response_digests]).encode()).hexdigest()[:24]


def even(kinds: Sequence[Hashable]) -> Floats:
    """Return weights with which each kind of row is drawn equally often, [n]."""
    counts = Counter(kinds)
    return np.array([len(kinds) / len(counts) / counts[kind] for kind in kinds])


def doubtful(doubt: Sequence[float | None]) -> Floats:
    """Return weights that grow with the doubt, [n]; a row whose doubt is not known has the mean weight."""
    known = [each for each in doubt if each is not None]
    mean = sum(known) / len(known) if known else 0.0
    return np.array([1.0 if each is None or not mean else 0.5 + 0.5 * each / mean for each in doubt])


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
        doubts = [
            _doubt(row, name, aspect, preferred) if row.error is None else None for row in outcomes.values()
        ]
        if all(each is None for each in doubts):
            raise UsageError(f"`prefer` {preferred}: this run does not record it; give another value")
        weights = doubtful(doubts)
    return dict(zip(outcomes, weights.tolist(), strict=True))


def _doubt(row: RowOutcome, name: str, aspect: Aspect, preferred: Preferred) -> float | None:
    """Return how much a judge, or the jurors, doubt a row; None if that is not known."""
    jury = row.first.columns.get("jury")
    if preferred == "orders":
        known = row.preference(name)
        doubts = [] if known is None or known.agree is None else [float(not known.agree)]
    elif preferred == "jurors":
        counts = Counter(each[name] for each in jury.values()) if isinstance(jury, Mapping) else Counter()
        shares = [counts[value] / counts.total() for value in aspect.values.values() if counts]
        doubts = [_width(shares, aspect)] if shares else []
    elif preferred == "mass":
        doubts = [1 - each.mass[name] for each in row.judged if name in each.mass]
    else:
        known_shares = (each.probabilities.get(name) for each in row.judged)
        doubts = [_width(shares, aspect) for shares in known_shares if shares is not None]
    return sum(doubts) / len(doubts) if doubts else None


def _width(shares: Sequence[float], aspect: Aspect) -> float:
    """Return the standard deviation of values with these shares; without an order, the share of the others."""
    if aspect.numbers is None:
        return 1 - max(shares)
    numbers = np.array([*aspect.numbers.values()])
    return float(np.sqrt((numbers - numbers @ shares) ** 2 @ shares))


def chances(weights: Floats, sizes: Integers, rows: int | None) -> Floats:
    """Return the chance of each instruction to be in the sample, above 0 and at most 1, [g].

    Args:
        weights: the chances are proportional to these positive weights, capped at 1, [g].
        sizes: the number of rows of each instruction, [g].
        rows: the number of rows that are expected in the sample; None for all.
    """
    found: Floats = np.ones(len(weights))
    if rows is None or rows >= sizes.sum():
        return found
    certain = np.zeros(len(weights), dtype=np.bool_)
    while True:
        rest = rows - sizes[certain].sum()
        found = np.where(certain, 1.0, weights * rest / (weights * sizes)[~certain].sum())
        if not (found > 1).any():
            return found
        certain |= found > 1


def draw(chance: Floats, random: np.random.Generator) -> Integers:
    """Return the instructions of a sample in random order.

    Args:
        chance: the chance of each instruction, [g].
        random: the source of randomness.
    """
    order, start = random.permutation(len(chance)), random.random()
    if np.ptp(chance) == 0:  # the first ones, so that a larger sample contains a smaller one
        return order[: int(chance.sum() + start + _ROUNDING)].astype(np.int64)
    ends = np.cumsum(chance[order]) - start
    # An instruction is drawn if a whole number lies on its part of the line.
    drawn = np.floor(ends) > np.floor(ends - chance[order])
    chosen: Integers = random.permutation(order[drawn | (chance[order] >= 1)]).astype(np.int64)
    return chosen
