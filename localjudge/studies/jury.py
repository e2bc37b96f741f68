"""Compare several judges, or several runs of one judge, on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

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

_OUTLIER_RESAMPLES = 200
"""Largest number of resamples for the test of an outlier."""


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
        label_notes: the notes on the labels.
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
    label_notes: tuple[str, ...]
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
    names = run_names(folders)
    rows_of_runs = [np.flatnonzero(scores.run == run) for run in range(len(folders))]
    identities = [[scores.identities[row] for row in rows] for rows in rows_of_runs]
    shared_rows, alignment_notices = align_runs(identities, scores.manifests, names)
    if not shared_rows:
        raise UsageError(f"{scores.where}: no row is judged in every run: {'; '.join(alignment_notices)}")
    number_in_run = np.array(shared_rows)  # [shared rows, runs], counted in each run
    shared = np.column_stack([rows[number_in_run[:, run]] for run, rows in enumerate(rows_of_runs)])
    _, group = np.unique(scores.group[shared[:, 0]], return_inverse=True)
    group = group.astype(np.int32)
    rated = _rated(scores, shared)

    errors: dict[str, JuryErrors] = {}
    label_notes: tuple[str, ...] = ()
    if labels is not None:
        known_labels = labels(scores)
        label_notes = known_labels.notes
        errors = _errors(
            rated,
            scores,
            names=names,
            labels=known_labels,
            shared=shared,
            group=group,
            resamples=resamples,
            seed=seed,
        )
    outlier = _outlier(rated, group, names=names, resamples=min(resamples, _OUTLIER_RESAMPLES), seed=seed)
    return Jury(
        jurors=tuple(_juror(scores, shared, number=number, name=name) for number, name in enumerate(names)),
        rows=len(shared),
        instructions=int(group.max()) + 1,
        not_shared=len(scores.ids) - shared.size,
        aspects={aspect.name: jury_aspect(aspect, group) for aspect in rated},
        outlier=outlier.name,
        outlier_untested=outlier.why_untested,
        errors=errors,
        label_notes=label_notes,
        notices=tuple(scores.notices) + tuple(alignment_notices),
    )


def _rated(scores: Scores, shared: Integers) -> list[RatedAspect]:
    """Return the scores of each aspect; `shared` has the rows of each juror, [shared rows, jurors]."""
    rated = []
    for aspect in dict.fromkeys(column.aspect for column in scores.columns):
        labels = scores.nominal.get(aspect)
        if labels:
            codes = scores.verdicts(aspect)[shared].astype(np.int32)
            rated.append(RatedAspect(aspect, level="nominal", table=codes, values=dict(enumerate(labels))))
            continue
        index = scores.aspects.index(aspect)
        value_of = {number: value for value, number in scores.columns[index].numbers.items()}
        values = {number: value_of[number] for number in sorted(value_of)}
        table = scores.integer[shared][:, :, index].astype(np.int32)
        rated.append(RatedAspect(aspect, level="ordinal", table=table, values=values))
    return rated


def _errors(
    rated: Sequence[RatedAspect],
    scores: Scores,
    *,
    names: Sequence[str],
    labels: Labels,
    shared: Integers,
    group: Integers,
    resamples: int,
    seed: int,
) -> dict[str, JuryErrors]:
    """Return the errors on each aspect with labels of shared rows.

    Args:
        rated: the scores of the shared rows.
        scores: the scores of all rows.
        names: the names of the jurors.
        labels: labels of rows of the first juror.
        shared: the rows of each juror, [shared rows, jurors].
        group: the instruction of each shared row, [shared rows].
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    is_shared = np.zeros(len(scores.ids), dtype=np.bool_)
    is_shared[shared[:, 0]] = True
    shared_number = np.full(len(scores.ids), -1, dtype=np.int32)
    shared_number[shared[:, 0]] = np.arange(len(shared))
    marks_of = dict(labels.marks) | dict(labels.nominal)
    errors: dict[str, JuryErrors] = {}
    for aspect in rated:
        if aspect.name not in marks_of:
            continue
        marks = marks_of[aspect.name].of_rows(is_shared)
        if not len(marks.row):
            continue
        numbers = None
        if aspect.level == "ordinal":
            numbers = scores.column(aspect.name, scores.best)[shared]
        errors[aspect.name] = jury_errors(
            aspect,
            numbers,
            replace(marks, row=shared_number[marks.row], weight=None),
            group,
            names,
            resamples,
            seed,
        )
    return errors


def _juror(scores: Scores, shared: Integers, *, number: int, name: str) -> Juror:
    """Return a juror, compared with the others on the shared rows, [shared rows, jurors]."""
    table = scores.integer[shared]  # [shared rows, jurors, columns]
    mean_of_others = np.delete(table, number, axis=1).mean(axis=1)
    bias = (table[:, number] - mean_of_others).mean(axis=0).tolist()
    scored = int((scores.run == number).sum())
    lost = 0
    if scores.unscored is not None:
        lost = int((scores.unscored.run == number).sum())
    return Juror(
        name=name,
        model=scores.manifests[number].model.name,
        rows=scored + lost,
        scored=scored,
        lost=lost,
        bias=dict(zip(scores.aspects, bias, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class _Outlier:
    """The outlier among the jurors, if there is one, and why three jurors or more have no test of it."""

    name: str | None
    why_untested: str = ""


class _Gains:
    """How much the mean alpha of the aspects gains without each of k jurors.

    Args:
        rated: the scores of the shared rows.
    """

    def __init__(self, rated: Sequence[RatedAspect]) -> None:
        self._alphas_of_aspects = [aspect.alphas_without() for aspect in rated]

    def without_each(self, weights: Floats | None) -> Floats:
        """Return the gain without each juror, [k]; NaN where it is undefined.

        Args:
            weights: the weight of each shared row, [shared rows]; None for equal ones.
        """
        alphas = [alphas_of(weights) for alphas_of in self._alphas_of_aspects]  # [aspects, 1 + k]
        mean_alphas = np.ma.masked_invalid(alphas).mean(axis=0)  # [1 + k]
        gains: Floats = (mean_alphas[1:] - mean_alphas[0]).filled(np.nan)
        return gains


def _outlier(
    rated: Sequence[RatedAspect], group: Integers, *, names: Sequence[str], resamples: int, seed: int
) -> _Outlier:
    """Return the juror without whom the others agree most, if the gain is significant."""
    if len(names) < 3:
        return _Outlier(None)
    gains = _Gains(rated)
    observed = gains.without_each(None)
    instructions = int(group.max()) + 1
    if instructions < MIN_INSTRUCTIONS:
        return _Outlier(None, why_undefined(0.0, instructions, MIN_INSTRUCTIONS, varies=True))
    if not np.isfinite(observed).any():
        return _Outlier(None, why_undefined(None, instructions, MIN_INSTRUCTIONS, varies=True))
    juror = int(np.nanargmax(observed))
    resampled: list[float] = []
    for block in bootstrap_weights(instructions, resamples, seed):
        for weights in block:
            resampled.append(float(gains.without_each(weights[group])[juror]))
    # Bonferroni correction, because the juror was chosen among all.
    lower_end = np.nanquantile(resampled, 0.025 / len(names)) if resampled else np.nan
    return _Outlier(names[juror] if lower_end > 0 else None)
