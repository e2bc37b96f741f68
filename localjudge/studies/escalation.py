"""Which verdicts of a small judge can stay, and which go to a large one: selective agreement with people.

A verdict is kept if the judge's confidence reaches a threshold (`localjudge.statistics.confidence_threshold`)
at which, with a stated probability, kept verdicts agree with people at the rate that was asked. What is kept,
what must agree and what is promised are rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from localjudge.arrays import Flags, Floats, Integers, LabelArray
from localjudge.errors import UsageError
from localjudge.matching.labels import Labels, read_labels
from localjudge.matching.run_rows import FAILED, RunRows, read_judged_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.statistics.confidence_threshold import FIRST, fewest_labels, independent_rows, threshold


@dataclass(frozen=True, slots=True)
class JudgeVerdicts:
    """The verdicts of a judge in one aspect, on the n rows of its run, judged or failed.

    The verdict on a pair is the result that both orders name; a pair whose orders differ has none if the aspect
    has no label for a tie. Its confidence is the mean of the result's probabilities in the orders.

    Attributes:
        state: the state of the run before it was read.
        rows: the rows.
        aspect: the aspect.
        within: the largest difference of two numbers that agree.
        number: the number of the verdict: that of its value or, without an order, the place of its label; of a
            pair, as in `localjudge.modes.pair_preference.RESULTS`, [n]; NaN for a row without a verdict.
        confidence: its probability, with those of the values that count as the same, [n]; NaN for none.
    """

    state: RunState
    rows: RunRows
    aspect: str
    within: int
    number: Floats
    confidence: Floats

    @classmethod
    def read(cls, folder: Path, aspect: str, within: int = 0) -> Self:
        """Return the verdicts of a run.

        Args:
            folder: the run directory.
            aspect: the aspect.
            within: the largest difference of two numbers that agree.

        Raises:
            UsageError: the run has no such aspect, or a verdict has no probabilities.
        """
        state = RunState.of(folder)
        manifest = read_manifest(folder)
        aspects = manifest.rubric.aspects
        manifest.rubric.mode.require_whole_rows(f"{folder}: its rubric")
        if aspect not in aspects:
            raise UsageError(f"`by` {aspect}: give one of {', '.join(aspects)}")
        if within:
            _require_scores(aspects[aspect], aspect, within=within)

        def numbers_of(run: int, outcome: RowOutcome) -> list[tuple[str, str, float]]:
            if any(aspect not in judgement.probabilities for judgement in outcome.judged):
                raise UsageError(
                    f"{folder}: {outcome.first.source} has no probabilities of {aspect}, which are the "
                    "judge's confidence; judge with an engine that gives them"
                )
            decision = outcome.decision(aspect, within)
            if decision is None:
                return []
            return [("number", aspect, decision.number), ("confidence", aspect, decision.probability)]

        rows, numbers = read_judged_rows([folder], [manifest], numbers_of)
        return cls(
            state=state,
            rows=rows,
            aspect=aspect,
            within=within,
            number=numbers.column("number", aspect),
            confidence=numbers.column("confidence", aspect),
        )

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self.rows.folders[0]

    @property
    def manifest(self) -> RunManifest:
        """The manifest of the run."""
        return self.rows.manifests[0]

    def labels(self, files: Sequence[str], mapping: Mapping[str, str], inputs: Sequence[str]) -> Labels:
        """Return the labels of the judged rows; the arguments are those of `read_labels`."""
        return read_labels(files, self.rows.take(self.rows.judged), mapping, inputs)

    def majorities(self, labels: Labels) -> Majorities:
        """Return the label that most annotators gave to each labelled row.

        Args:
            labels: labels of the judged rows.

        Raises:
            UsageError: there are no labels of the aspect, or they have another scale.
        """
        marks = labels.nominal.get(self.aspect, labels.marks.get(self.aspect))
        if marks is None:
            raise UsageError(f"{self.folder}: no label of {self.aspect}; its column is missing")
        numbers = self.manifest.rubric.aspects[self.aspect].numbers
        if numbers is not None:
            _require_scale(self.aspect, marks, scale=(min(numbers.values()), max(numbers.values())))
        rows, row_index = np.unique(marks.row, return_inverse=True)
        values, value_index = np.unique(marks.value, return_inverse=True)
        counts = np.zeros((len(rows), len(values)))
        np.add.at(counts, (row_index, value_index), 1)
        is_most_frequent = counts == counts.max(axis=1, keepdims=True)
        has_majority = is_most_frequent.sum(axis=1) == 1
        return Majorities(
            rows=self.rows.judged[rows[has_majority]],
            labels=values[counts.argmax(axis=1)][has_majority],
            without=int((~has_majority).sum()),
        )


def _require_scores(aspect: Aspect, name: str, *, within: int) -> None:
    """Check that the values of an aspect are scores, whose difference can be limited.

    Raises:
        UsageError: they are labels without an order, or preferences.
    """
    if aspect.numbers is None:
        kind = "labels without an order"
    elif aspect.preference is not None:
        kind = "a winner and no score"
    else:
        return
    raise UsageError(f"`within` {within}: is for scores in an order; {name} has {kind}")


def _require_scale(aspect: str, marks: LabelArray, *, scale: tuple[int, int]) -> None:
    """Check that labels are on the judge's scale.

    Raises:
        UsageError: one is outside.
    """
    lowest, highest = scale
    lowest_label = marks.value.min()
    highest_label = marks.value.max()
    if lowest_label < lowest or highest_label > highest:
        raise UsageError(
            f"`labels`: labels of {aspect} from {lowest_label:g} to {highest_label:g} are outside the judge's "
            f"scale {lowest} to {highest}, so no verdict can agree with them; give labels on its scale"
        )


@dataclass(frozen=True, slots=True)
class Majorities:
    """The label that most annotators gave to each of m rows.

    Attributes:
        rows: the rows, [m].
        labels: their labels, [m].
        without: number of labelled rows without a majority, which are left out.
    """

    rows: Integers
    labels: Floats
    without: int


@dataclass(frozen=True, slots=True)
class TooFewLabels:
    """Why nothing is kept: so many rows cannot show the rate, even if all agree.

    Attributes:
        independent: the number of rows of different instructions that the labelled rows count as.
        needed: the smallest number that can show it.
    """

    independent: float
    needed: int


@dataclass(frozen=True, slots=True)
class TooLittleAgreement:
    """Why nothing is kept: too few verdicts agree.

    Attributes:
        agreed: the share of the labelled rows that agree.
        agreed_of_surest: that of the share `FIRST` of them with the highest confidence.
    """

    agreed: float
    agreed_of_surest: float


@dataclass(frozen=True, slots=True)
class KeptAgreement:
    """The labelled rows whose verdict is kept.

    Attributes:
        rows: their number.
        agreed: the number of those that agree.
        independent: the number of rows of different instructions that they count as.
    """

    rows: int
    agreed: int
    independent: float


@dataclass(frozen=True, slots=True)
class Selection:
    """The verdicts that a judge may keep.

    Attributes:
        verdicts: all verdicts.
        threshold: the confidence from which on they are kept; None for none.
        labelled: the labelled rows, [m].
        tested: those of them whose verdict the threshold was tested on, [n].
        agreed: whether each of these verdicts agrees with the label, [n].
        without_majority: number of labelled rows without a majority, which are left out.
    """

    verdicts: JudgeVerdicts
    threshold: float | None
    labelled: Integers
    tested: Integers
    agreed: Flags
    without_majority: int

    @property
    def kept(self) -> Flags:
        """Whether the verdict on each row is kept, [n]."""
        lowest = math.inf if self.threshold is None else self.threshold
        is_kept: Flags = self.verdicts.confidence >= lowest
        return is_kept

    @property
    def tested_groups(self) -> Integers:
        """The instruction of each tested row, [n]."""
        return self.verdicts.rows.group[self.tested]

    def why_nothing_is_kept(self, rate: float) -> TooFewLabels | TooLittleAgreement:
        """Return the reason why no threshold showed the rate."""
        independent = 0.0
        if len(self.tested):
            independent = float(independent_rows(self.tested_groups)[-1])
        needed = fewest_labels(rate)
        if independent < needed:
            return TooFewLabels(independent, needed)
        surest_first = np.argsort(-self.verdicts.confidence[self.tested])
        surest = surest_first[: round(FIRST * len(self.tested))]
        return TooLittleAgreement(float(self.agreed.mean()), float(self.agreed[surest].mean()))

    @property
    def kept_agreement(self) -> KeptAgreement:
        """The labelled rows whose verdict is kept; there is at least one if there is a threshold."""
        is_kept = self.kept[self.tested]
        return KeptAgreement(
            rows=int(is_kept.sum()),
            agreed=int(self.agreed[is_kept].sum()),
            independent=float(independent_rows(self.tested_groups[is_kept])[-1]),
        )

    @property
    def passed_on(self) -> list[str | None]:
        """The digests of the texts of the rows whose verdict is not kept, and of those that failed."""
        digests = [digest for digest, _ in self.verdicts.rows.shown]
        return [digest for digest, is_kept in zip(digests, self.kept.tolist(), strict=True) if not is_kept]

    def has_passed_on(self, rows: RunRows) -> Flags:
        """Return which rows of another run have responses that this judge passes on."""
        own_rows = _rows_by_texts(self.verdicts.rows)
        kept = {own_rows[row] for row in np.flatnonzero(self.kept).tolist()}
        return np.array([texts not in kept for texts in _rows_by_texts(rows)])

    def check_labels(self, rate: float) -> None:
        """Check that a judge of the rows that are passed on could keep one of its verdicts.

        Raises:
            UsageError: too few of these rows are labelled, even if all of its verdicts agree.
        """
        rows = self.verdicts.rows
        item = self.verdicts.manifest.rubric.mode.item
        passed = self.labelled[~self.kept[self.labelled]]
        # A row that failed has no label here, but may have one as a row of another judge.
        failed = np.flatnonzero(rows.flags & FAILED)
        possible = np.concatenate([passed, failed])
        most = independent_rows(rows.group[possible]).max(initial=0)
        needed = fewest_labels(rate)
        if most < needed - 0.5:
            raise UsageError(
                f"`labels`: {len(passed):,} of the {item}s that are passed on are labelled and count as "
                f"{most:.0f} of different instructions, and {rate:.0%} agreement needs {needed}, "
                f"so the large judge could keep nothing; label more of these {item}s, or ask for a lower rate"
            )


def _rows_by_texts(rows: RunRows) -> list[tuple[str | None, frozenset[str | None]]]:
    """Return the instruction and the responses of each row, by their digests."""
    return [(identity.group, frozenset(identity.digests)) for identity in rows.identities]


def select(verdicts: JudgeVerdicts, labels: Labels, rate: float, among: Flags | None = None) -> Selection:
    """Return the verdicts that a judge may keep.

    Args:
        verdicts: the verdicts of the judge.
        labels: labels of a random sample of the rows.
        rate: the share of the rows with kept verdicts that must agree.
        among: the rows to keep verdicts of, [n]; None for all.
    """
    majorities = verdicts.majorities(labels)
    is_tested = np.isfinite(verdicts.number[majorities.rows])
    if among is not None:
        is_tested &= among[majorities.rows]
    tested = majorities.rows[is_tested]
    agreed = np.abs(verdicts.number[tested] - majorities.labels[is_tested]) <= verdicts.within
    return Selection(
        verdicts=verdicts,
        threshold=threshold(verdicts.confidence[tested], agreed, group=verdicts.rows.group[tested], rate=rate),
        labelled=majorities.rows,
        tested=tested,
        agreed=agreed,
        without_majority=majorities.without,
    )
