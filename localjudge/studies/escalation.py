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

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.labels import Labels, read_labels
from localjudge.matching.run_rows import FAILED, RunRows, read_judged_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.statistics.confidence_threshold import ERROR, FIRST, fewest_labels, independent_rows, threshold
from localjudge.system.quantities import counted


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
    def read(cls, folder: Path, aspect: str, within: int = 0) -> JudgeVerdicts:
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
        if within and (aspects[aspect].numbers is None or aspects[aspect].preference is not None):
            kind = "labels without an order" if aspects[aspect].numbers is None else "a winner and no score"
            raise UsageError(f"`within` {within}: is for scores in an order; {aspect} has {kind}")

        def numbers_of(run: int, outcome: RowOutcome) -> list[tuple[str, str, float]]:
            if any(aspect not in each.probabilities for each in outcome.judged):
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

    def majorities(self, labels: Labels) -> tuple[Integers, Floats, int]:
        """Return the labelled rows, and the label that most annotators gave to each.

        Args:
            labels: labels of the judged rows.

        Returns:
            The rows [m], their labels [m], and the number of labelled rows without a majority, left out.

        Raises:
            UsageError: there are no labels of the aspect, or they have another scale.
        """
        marks = labels.nominal.get(self.aspect, labels.marks.get(self.aspect))
        if marks is None:
            raise UsageError(f"{self.folder}: no label of {self.aspect}; its column is missing")
        numbers = self.manifest.rubric.aspects[self.aspect].numbers
        lowest, highest = marks.value.min(), marks.value.max()
        if numbers is not None and not min(numbers.values()) <= lowest <= highest <= max(numbers.values()):
            raise UsageError(
                f"`labels`: labels of {self.aspect} from {lowest:g} to {highest:g} are outside the judge's "
                f"scale {min(numbers.values())} to {max(numbers.values())}, so no verdict can agree with them; "
                "give labels on its scale"
            )
        rows, place = np.unique(marks.row, return_inverse=True)
        values, number = np.unique(marks.value, return_inverse=True)
        counts = np.zeros((len(rows), len(values)))
        np.add.at(counts, (place, number), 1)
        is_majority = (counts == counts.max(axis=1, keepdims=True)).sum(axis=1) == 1
        majority = values[counts.argmax(axis=1)][is_majority]
        return self.rows.judged[rows[is_majority]], majority, int((~is_majority).sum())


@dataclass(frozen=True, slots=True)
class Selection:
    """The verdicts that a judge may keep.

    Attributes:
        verdicts: all verdicts.
        threshold: the confidence from which on they are kept; None for none.
        labelled: the labelled rows, [m].
        tested: those of them whose verdict the threshold was tested on, [n].
        agreed: whether each of these verdicts agrees with the label, [n].
        ties: number of labelled rows without a majority, which are left out.
    """

    verdicts: JudgeVerdicts
    threshold: float | None
    labelled: Integers
    tested: Integers
    agreed: Flags
    ties: int

    def in_words(self, rate: float) -> str:
        """Return sentences that say how many verdicts are kept, at which threshold, and what is promised."""
        name, rows = self.verdicts.folder.name, len(self.verdicts.rows.judged)
        item = self.verdicts.manifest.rubric.mode.item
        instructions = self.verdicts.rows.group[self.tested]
        on = f"{counted(len(self.tested), f'labelled {item}')} of "
        on += counted(len(np.unique(instructions)), "instruction")
        on += f" ({self.ties:,} {item}s without a majority are left out)" * bool(self.ties)
        if self.threshold is None:
            surest = np.argsort(-self.verdicts.confidence[self.tested])[: round(FIRST * len(self.tested))]
            independent = independent_rows(instructions)[-1] if len(instructions) else 0
            why = (
                f"at least {fewest_labels(rate)} {item}s of different instructions must have labels, and these "
                f"count as {independent:,.0f}"
                if independent < fewest_labels(rate)
                else f"{self.agreed.mean():.0%} of these {item}s agree, and {self.agreed[surest].mean():.0%} "
                f"of the {FIRST:.0%} with the highest confidence"
            )
            return (
                f"{name} keeps nothing: {on} do not show ({1 - ERROR:.1%} confidence) that {rate:.0%} of its "
                f"verdicts above any threshold agree with people; {why}"
            )
        kept, used = self.kept, self.kept[self.tested]
        independent = independent_rows(instructions[used])[-1]
        alike = f", and count as {independent:,.0f}, because {item}s of an instruction are alike"
        return (
            f"{name} keeps {kept.sum():,} of {counted(rows, item)} ({kept.sum() / rows:.0%}), those with a "
            f"confidence of {self.threshold:.3f} or more: {self.agreed[used].sum():,} of {used.sum():,} such "
            f"labelled {item}s agree{alike * bool(independent < used.sum() - 0.5)}; tested on {on}. With "
            f"{1 - ERROR:.1%} confidence, at least {rate:.0%} of the {item}s that it keeps agree with people"
        )

    @property
    def passed_on(self) -> list[str | None]:
        """The digests of the texts of the rows whose verdict is not kept, and of those that failed."""
        shown = zip(self.verdicts.rows.shown, self.kept.tolist(), strict=True)
        return [digest for (digest, _), kept in shown if not kept]

    def has_passed_on(self, rows: RunRows) -> Flags:
        """Return which rows of another run have responses that this judge passes on."""
        here, there = (
            [(identity.group, frozenset(identity.digests)) for identity in run.identities]
            for run in (self.verdicts.rows, rows)
        )
        kept = {here[row] for row in np.flatnonzero(self.kept).tolist()}
        return np.array([identity not in kept for identity in there])

    def check_labels(self, rate: float) -> None:
        """Check that a judge of the rows that are passed on could keep one of its verdicts.

        Raises:
            UsageError: too few of these rows are labelled, even if all of its verdicts agree.
        """
        rows, item = self.verdicts.rows, self.verdicts.manifest.rubric.mode.item
        passed = self.labelled[~self.kept[self.labelled]]
        # A row that failed has no label here, but may have one as a row of another judge.
        possible = np.concatenate([passed, np.flatnonzero(rows.flags & FAILED)])
        most = independent_rows(rows.group[possible]).max(initial=0)
        if most < fewest_labels(rate) - 0.5:
            raise UsageError(
                f"`labels`: {len(passed):,} of the {item}s that are passed on are labelled and count as "
                f"{most:.0f} of different instructions, and {rate:.0%} agreement needs {fewest_labels(rate)}, "
                f"so the large judge could keep nothing; label more of these {item}s, or ask for a lower rate"
            )

    @property
    def kept(self) -> Flags:
        """Whether the verdict on each row is kept, [n]."""
        reached: Flags = self.verdicts.confidence >= (math.inf if self.threshold is None else self.threshold)
        return reached


def select(verdicts: JudgeVerdicts, labels: Labels, rate: float, among: Flags | None = None) -> Selection:
    """Return the verdicts that a judge may keep.

    Args:
        verdicts: the verdicts of the judge.
        labels: labels of a random sample of the rows.
        rate: the share of the rows with kept verdicts that must agree.
        among: the rows to keep verdicts of, [n]; None for all.
    """
    labelled, label, ties = verdicts.majorities(labels)
    tested = np.isfinite(verdicts.number[labelled])
    if among is not None:
        tested &= among[labelled]
    rows = labelled[tested]
    agreed = np.abs(verdicts.number[rows] - label[tested]) <= verdicts.within
    lowest = threshold(verdicts.confidence[rows], agreed, verdicts.rows.group[rows], rate)
    return Selection(verdicts, lowest, labelled, rows, agreed, ties)
