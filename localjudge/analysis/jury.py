"""Compare several judges, or several samples of one judge, on the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.comparison import correlation
from localjudge.analysis.human_labels import Marks
from localjudge.analysis.interval import Estimate
from localjudge.analysis.krippendorff import alpha, alphas
from localjudge.analysis.resampling import MIN_INSTRUCTIONS, RESAMPLES, averages, bootstrap_weights, studentise
from localjudge.analysis.scores import Floats, Integers, read_scores, run_names
from localjudge.errors import UsageError
from localjudge.runs.run_manifest import RunManifest

SPLIT = 2
"""Smallest difference between the highest and the lowest score of an aspect that makes a row a split row."""


@dataclass(frozen=True, slots=True)
class Juror:
    """One judge, compared with the others for each aspect.

    `bias` is the mean of its scores minus the mean of the others' scores, `with_rest` is its Spearman
    correlation with the others, and `alpha_without` is the ordinal alpha of the others.
    """

    name: str
    model: str
    mean: Mapping[str, float]
    bias: Mapping[str, float]
    with_rest: Mapping[str, float | None]
    alpha_without: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class JuryAspect:
    """The agreement of the jurors on one aspect.

    `mean`, `median` and `majority` are averages over the rows of the row's mean, median and majority score
    (None if no row has a majority). `spread` is the average standard deviation of a row's scores.
    `with_majority`, `unanimous` and `split` are shares of the rows: with a majority, with equal scores, and
    with scores that differ by `SPLIT` or more.
    """

    mean: Estimate
    median: float
    majority: float | None
    spread: float
    alpha_ordinal: Estimate
    alpha_interval: Estimate
    with_majority: float
    unanimous: float
    split: float


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A row on which the jurors differ: their scores for each aspect, in the order of the jurors."""

    id: str
    system: str
    spread: float
    scores: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Jury:
    """The agreement of several judges on the same rows.

    `odd` is the outlier among the jurors: the juror without whom the others agree most (ordinal alpha, averaged
    over the aspects), if this gain is significant after a Bonferroni correction for the number of jurors. It is
    None if no gain is significant, and for two jurors. `not_shared` is the number of judgements of rows that
    some jurors have not judged.
    """

    jurors: tuple[Juror, ...]
    rows: int
    instructions: int
    not_shared: int
    aspects: Mapping[str, JuryAspect]
    odd: str | None
    splits: tuple[SplitRow, ...]
    notices: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_judges(
    folders: Sequence[Path],
    splits: int = 10,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Jury:
    """Compare several runs over the same rows.

    Args:
        folders: the runs, one for each juror.
        splits: number of rows to return, those on which the jurors differ most.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.

    Raises:
        UsageError: there are fewer than two runs, or no row that all jurors have judged.
    """
    if len(folders) < 2:
        raise UsageError("a jury needs at least two runs, by several judges or several samples of one judge")
    scores = read_scores(folders, by_run=False)
    places = _places(scores.run, scores.ids, [scores.systems[s] for s in scores.system], len(folders))
    if not len(places):
        raise UsageError(
            f"{scores.where}: no row is judged in every run; give runs whose rows have the same ids and systems"
        )
    groups = scores.group[places]
    if (groups != groups[:, :1]).any():
        row = places[np.flatnonzero((groups != groups[:, :1]).any(axis=1))[0], 0]
        raise UsageError(
            f"{scores.where}: the row {scores.ids[row]!r} has different instructions or references in these "
            "runs; give runs over the same rows"
        )
    table = scores.integer[places]  # rows, jurors, aspects
    group = groups[:, 0]
    aspects, without = {}, {}
    for number, aspect in enumerate(scores.aspects):
        aspects[aspect], without[aspect] = _aspect(
            table[:, :, number], group, scores.ends(aspect), resamples, seed
        )
    jurors = _jurors(scores.aspects, table, without, folders, scores.manifests)
    return Jury(
        jurors=jurors,
        rows=len(places),
        instructions=len(np.unique(group)),
        not_shared=len(scores.ids) - places.size,
        aspects=aspects,
        odd=_odd(table, group, [juror.name for juror in jurors], min(resamples, 200), seed),
        splits=_splits(table, places, scores, splits),
        notices=scores.notices,
    )


def _places(run: Integers, ids: list[str], systems: list[str], runs: int) -> NDArray[np.intp]:
    """Return the places of each row that all runs have judged, [rows, runs].

    Rows are matched by id and system; repeated ones are matched by their order.
    """
    found: dict[tuple[str, str, int], list[int]] = {}
    seen: Counter[tuple[int, str, str]] = Counter()
    for place, (number, name, system) in enumerate(zip(run.tolist(), ids, systems, strict=True)):
        repeated = seen[number, name, system]
        seen[number, name, system] += 1
        members = found.setdefault((name, system, repeated), [])
        if len(members) == number:
            members.append(place)
    whole = [members for members in found.values() if len(members) == runs]
    return np.array(whole, dtype=np.intp).reshape(-1, runs)


def _aspect(
    table: Integers, group: Integers, ends: tuple[int, int], resamples: int, seed: int
) -> tuple[JuryAspect, list[float | None]]:
    rows, jurors = table.shape
    numbered: Integers = np.unique(group, return_inverse=True)[1].astype(np.int32)
    means = table.mean(axis=1)
    mean = studentise(
        averages(means[:, None], numbered, int(numbered.max()) + 1), *ends, resamples=resamples, seed=seed
    ).estimates()[0]
    ordinal, interval = alphas(_marks(table), numbered, resamples, seed)
    majorities = [majority(row) for row in table.tolist()]
    known_majorities = [value for value in majorities if value is not None]
    differences = table.max(axis=1) - table.min(axis=1)
    without: list[float | None] = [
        alphas(_marks(np.delete(table, juror, axis=1)), numbered, 0, seed)[0].value if jurors > 2 else None
        for juror in range(jurors)
    ]
    aspect = JuryAspect(
        mean=mean,
        median=float(np.median(table, axis=1).mean()),
        majority=float(np.mean(known_majorities)) if known_majorities else None,
        spread=float(table.std(axis=1, ddof=1).mean()),
        alpha_ordinal=ordinal,
        alpha_interval=interval,
        with_majority=len(known_majorities) / rows,
        unanimous=float((differences == 0).mean()),
        split=float((differences >= SPLIT).mean()),
    )
    return aspect, without


def majority(values: Sequence[int]) -> int | None:
    """Return the score that more than half of the jurors gave; None if there is none."""
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None


def _marks(table: Integers) -> Marks:
    rows, jurors = table.shape
    return Marks(
        np.repeat(np.arange(rows, dtype=np.int32), jurors),
        np.tile(np.arange(jurors, dtype=np.int32), rows),
        table.ravel().astype(np.float64),
    )


def _jurors(
    aspects: tuple[str, ...],
    table: Integers,
    without: Mapping[str, list[float | None]],
    folders: Sequence[Path],
    manifests: Sequence[RunManifest],
) -> tuple[Juror, ...]:
    jurors = []
    for number, name in enumerate(run_names(folders)):
        own = table[:, number].astype(np.float64)
        rest: Floats = np.delete(table, number, axis=1).mean(axis=1)
        jurors.append(
            Juror(
                name=name,
                model=manifests[number].model.name,
                mean={aspect: float(own[:, place].mean()) for place, aspect in enumerate(aspects)},
                bias={
                    aspect: float((own[:, place] - rest[:, place]).mean())
                    for place, aspect in enumerate(aspects)
                },
                with_rest={
                    aspect: correlation("spearman", own[:, place], rest[:, place])
                    for place, aspect in enumerate(aspects)
                },
                alpha_without={aspect: without[aspect][number] for aspect in aspects},
            )
        )
    return tuple(jurors)


def _odd(table: Integers, group: Integers, names: Sequence[str], resamples: int, seed: int) -> str | None:
    """Return the outlier among the jurors; None if there is none."""
    jurors = len(names)
    if jurors < 3:
        return None
    members = [np.flatnonzero(group == one) for one in np.unique(group)]

    def gains(rows: NDArray[np.intp]) -> list[float]:
        of_all = _mean_alpha(table[rows])
        return [_mean_alpha(np.delete(table[rows], juror, axis=1)) - of_all for juror in range(jurors)]

    observed = np.array(gains(np.arange(len(table))))
    if not np.isfinite(observed).any():
        return None
    best = int(np.nanargmax(observed))
    resampled = [
        gains(np.concatenate([members[one] for one in np.repeat(np.arange(len(members)), weights.astype(int))]))
        for block in bootstrap_weights(len(members), resamples, seed)
        for weights in block
    ]
    # Bonferroni correction, because the juror was chosen among all.
    low = np.nanquantile(np.array(resampled)[:, best], 0.025 / jurors) if resampled else np.nan
    return names[best] if len(members) >= MIN_INSTRUCTIONS and low > 0 else None


def _mean_alpha(table: Integers) -> float:
    """Return the ordinal alpha of [rows, jurors, aspects], averaged over the aspects that have one."""
    found = []
    for place in range(table.shape[2]):
        domain, value = np.unique(table[:, :, place], return_inverse=True)
        counts = (value.reshape(table.shape[:2])[:, :, None] == np.arange(len(domain))).sum(axis=1)
        found.append(alpha(counts.astype(np.float64), domain.astype(np.float64), "ordinal"))
    known = [one for one in found if np.isfinite(one)]
    return float(np.mean(known)) if known else float("nan")


def _splits(table: Integers, places: NDArray[np.intp], scores: Any, most: int) -> tuple[SplitRow, ...]:
    spread = table.std(axis=1, ddof=1).mean(axis=1)
    order = np.argsort(-spread, kind="stable")[:most]
    return tuple(
        SplitRow(
            id=scores.ids[places[row, 0]],
            system=scores.systems[scores.system[places[row, 0]]],
            spread=float(spread[row]),
            scores={
                aspect: tuple(table[row, :, place].tolist()) for place, aspect in enumerate(scores.aspects)
            },
        )
        for row in order
        if spread[row] > 0
    )
