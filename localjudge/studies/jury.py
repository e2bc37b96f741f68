"""Compare several judges, or several runs of one judge, on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.labels import Labels
from localjudge.matching.run_alignment import align_runs
from localjudge.matching.run_rows import run_names
from localjudge.matching.scores import Scores
from localjudge.statistics import why_undefined
from localjudge.statistics.jury_agreement import JuryAspect, JuryErrors, RatedAspect, jury_aspect, jury_errors
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, RESAMPLES, bootstrap_weights


@dataclass(frozen=True, slots=True)
class Juror:
    """One judge, compared with the others.

    Attributes:
        name: the name of its run.
        model: the name of its model.
        rows: number of rows of its run.
        scored: number of those that have a score.
        lost: number of those that have none.
        bias: the mean of its scores minus that of the others' scores, for each aspect or share of a label, on
            the rows that all jurors scored.
    """

    name: str
    model: str
    rows: int
    scored: int
    lost: int
    bias: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Jury:
    """The agreement of several judges on the same rows.

    Attributes:
        jurors: the judges.
        rows: number of rows that all jurors scored. All statistics are of these rows.
        instructions: number of their instructions.
        not_shared: number of scores of rows that some jurors have not scored.
        aspects: the agreement on each aspect.
        outlier: the juror without whom the others agree most (the mean of the aspects' alphas), if this gain is
            significant after a Bonferroni correction for the number of jurors. None if no gain is significant,
            and for two jurors.
        outlier_untested: why three jurors or more have no test of an outlier; empty if they have.
        errors: the errors on each aspect with labels, on the labelled ones of these rows.
        notes: remarks for the reader.
        notices: the notices of the runs.
    """

    jurors: tuple[Juror, ...]
    rows: int
    instructions: int
    not_shared: int
    aspects: Mapping[str, JuryAspect]
    outlier: str | None
    outlier_untested: str
    errors: Mapping[str, JuryErrors]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


def compare_judges(
    folders: Sequence[Path],
    resamples: int = RESAMPLES,
    seed: int = 0,
    labels: Callable[[Scores], Labels] | None = None,
) -> Jury:
    """Compare several runs over the same rows.

    Args:
        folders: the runs, one for each juror.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
        labels: a function that returns the labels of the scores of all runs; None without labels.

    Raises:
        UsageError: there are fewer than two runs, or no row that all jurors have judged.
    """
    if len(folders) < 2:
        raise UsageError("a jury needs at least two runs, by several judges or by one with several seeds")
    scores = read_scores(folders, by_run=False)
    of_runs = [np.flatnonzero(scores.run == run) for run in range(len(folders))]
    identities = [[scores.identities[row] for row in rows] for rows in of_runs]
    names = run_names(folders)
    common, matched = align_runs(identities, scores.manifests, names)
    if not common:
        raise UsageError(f"{scores.where}: no row is judged in every run: {'; '.join(matched)}")
    aligned = np.array(common)  # [rows, runs], counted in each run
    places = np.column_stack([rows[aligned[:, run]] for run, rows in enumerate(of_runs)])
    group: Integers = np.unique(scores.group[places[:, 0]], return_inverse=True)[1].astype(np.int32)
    rated, draws = _rated(scores, places), (resamples, seed)
    known, errors = labels(scores) if labels else None, {}
    row_of = np.full(len(scores.ids), -1, dtype=np.int32)
    row_of[places[:, 0]] = np.arange(len(places))
    of_people = {**known.marks, **known.nominal} if known else {}
    for each in rated:
        marks = of_people[each.name].of_rows(row_of >= 0) if each.name in of_people else None
        if marks is not None and len(marks.row):
            marks = replace(marks, row=row_of[marks.row], weight=None)
            numbers = None if each.level == "nominal" else scores.column(each.name, scores.best)[places]
            errors[each.name] = jury_errors(each, numbers, marks, group, names, *draws)
    outlier, untested = _outlier(rated, group, names, min(resamples, 200), seed)
    return Jury(
        jurors=tuple(_jurors(scores, places, names)),
        rows=len(places),
        instructions=int(group.max()) + 1,
        not_shared=len(scores.ids) - places.size,
        aspects={each.name: jury_aspect(each, group) for each in rated},
        outlier=outlier,
        outlier_untested=untested,
        errors=errors,
        notes=known.notes if known else (),
        notices=(*scores.notices, *matched),
    )


def _rated(scores: Scores, places: NDArray[np.intp]) -> list[RatedAspect]:
    rated = []
    for aspect in dict.fromkeys(column.aspect for column in scores.columns):
        if labels := scores.nominal.get(aspect):
            codes: Integers = scores.verdicts(aspect)[places].astype(np.int32)
            rated.append(RatedAspect(aspect, "nominal", codes, dict(enumerate(labels))))
        else:
            place = scores.aspects.index(aspect)
            values = dict(sorted((number, value) for value, number in scores.columns[place].numbers.items()))
            table = scores.integer[places][:, :, place].astype(np.int32)
            rated.append(RatedAspect(aspect, "ordinal", table, values))
    return rated


def _jurors(scores: Scores, places: NDArray[np.intp], names: Sequence[str]) -> Iterator[Juror]:
    """Yield each juror, compared with the others on the shared rows."""
    table = scores.integer[places]
    for number, name in enumerate(names):
        bias = (table[:, number] - np.delete(table, number, axis=1).mean(axis=1)).mean(axis=0).tolist()
        scored = int((scores.run == number).sum())
        lost = 0 if scores.unscored is None else int((scores.unscored.run == number).sum())
        yield Juror(
            name=name,
            model=scores.manifests[number].model.name,
            rows=scored + lost,
            scored=scored,
            lost=lost,
            bias=dict(zip(scores.aspects, bias, strict=True)),
        )


def _outlier(
    rated: Sequence[RatedAspect], group: Integers, names: Sequence[str], resamples: int, seed: int
) -> tuple[str | None, str]:
    """Return the outlier among the jurors, if there is one, and why three jurors or more have no test of it."""
    jurors, groups = len(names), int(group.max()) + 1
    if jurors < 3:
        return None, ""
    alphas_without = [each.alphas_without() for each in rated]

    def gains(weights: Floats | None) -> Floats:
        """Return how much the mean alpha of the aspects gains without each juror, [jurors]."""
        alphas = np.ma.masked_invalid([alphas_of(weights) for alphas_of in alphas_without]).mean(axis=0)
        without: Floats = (alphas[1:] - alphas[0]).filled(np.nan)
        return without

    observed = gains(None)
    if groups < MIN_INSTRUCTIONS or not np.isfinite(observed).any():
        alpha = np.nan if groups >= MIN_INSTRUCTIONS else 0.0
        return None, why_undefined(alpha, groups, MIN_INSTRUCTIONS, True)
    best = int(np.nanargmax(observed))
    drawn = (weights for block in bootstrap_weights(groups, resamples, seed) for weights in block)
    resampled = [gains(weights[group])[best] for weights in drawn]
    # Bonferroni correction, because the juror was chosen among all.
    low = np.nanquantile(resampled, 0.025 / jurors) if resampled else np.nan
    return (names[best], "") if low > 0 else (None, "")
