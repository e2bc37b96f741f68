"""Which verdicts of a small judge can stay, and which go to a large one: selective agreement with people.

A verdict is kept if the judge's confidence reaches a threshold at which, with a stated probability, kept
verdicts agree with people at the rate that was asked. The thresholds are tested from high to low on labelled
rows, one of each instruction, by the exact binomial test, until one fails (fixed-sequence testing; Jung,
Brahman & Choi, "Trust or Escalate", arXiv:2407.18370). Which thresholds are tested follows from the confidences
alone: the first keeps `FIRST` of the labelled rows, and at least so many that the test can pass, and the last
keeps all. `benchmarks/escalation.py` measures how often the rate is missed, and how much is kept.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.analysis import Flags, Floats, Integers
from localjudge.analysis.matching.human_labels import Labels, read_labels
from localjudge.analysis.matching.run_rows import RunRows, read_rows
from localjudge.analysis.matching.scores import read_scores
from localjudge.analysis.pairs import RESULTS, read_judged_pairs
from localjudge.analysis.pairs.pair_labels import read_pair_labels
from localjudge.errors import UsageError
from localjudge.records import Judgement
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.mode import PAIRWISE, RowOutcome, refuse_criteria
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.system.quantities import counted

FIRST = 0.3
"""Share of the labelled rows that the first threshold keeps."""
STEPS = 10
"""Number of thresholds."""


ERROR = 0.025
"""Largest probability that the kept verdicts of a judge agree at a lower rate; of two judges, 0.05."""


def fewest_labels(rate: float, error: float = ERROR) -> int:
    """Return the smallest number of labels that can show the rate, if all of them agree."""
    return math.ceil(math.log(error) / math.log(rate))


def threshold(confidence: Floats, agreed: Flags, rate: float, error: float = ERROR) -> float | None:
    """Return the lowest threshold that passes; None if the first fails.

    Args:
        confidence: the confidence of each labelled verdict, [n].
        agreed: whether it agrees with the label, [n].
        rate: the share of kept verdicts that must agree.
        error: the largest probability that the share is lower.
    """
    from scipy.stats import binom

    order = np.argsort(-confidence, kind="stable")
    ranked, right = confidence[order], np.cumsum(agreed[order])
    first, found = max(fewest_labels(rate, error), math.ceil(FIRST * len(order))), None
    if first > len(order):
        return None
    for count in np.unique(np.linspace(first, len(order), STEPS).astype(int)).tolist():
        kept = int(np.searchsorted(-ranked, -ranked[count - 1], side="right"))
        if binom.sf(right[kept - 1] - 1, kept, rate) > error:
            break
        found = float(ranked[kept - 1])
    return found


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts of a judge in one aspect, on the n rows of its run, judged or failed.

    The verdict on a pair is the result that both orders name; a pair whose orders differ has none if the aspect
    has no label for a tie. Its confidence is the mean of the result's probabilities in the orders.

    Attributes:
        rows: the rows.
        aspect: the aspect.
        within: the largest difference of two numbers that agree.
        number: the number of the verdict: that of its value or, without an order, the place of its label; of a
            pair, as in `localjudge.analysis.pairs.RESULTS`, [n]; NaN for a row without a verdict.
        confidence: its probability, with those of the values that count as the same, [n]; NaN for none.
    """

    rows: RunRows
    aspect: str
    within: int
    number: Floats
    confidence: Floats

    @classmethod
    def read(cls, folder: Path, aspect: str, within: int = 0) -> Verdicts:
        """Return the verdicts of a run.

        Args:
            folder: the run directory.
            aspect: the aspect.
            within: the largest difference of two numbers that agree.

        Raises:
            UsageError: the run has no such aspect, or a verdict has no probabilities.
        """
        manifest = read_manifest(folder)
        aspects = manifest.rubric.aspects
        refuse_criteria(manifest.rubric.mode, str(folder))
        if aspect not in aspects:
            raise UsageError(f"`by` {aspect}: give one of {', '.join(aspects)}")
        if within and (aspects[aspect].numbers is None or manifest.rubric.mode is PAIRWISE):
            kind = "labels without an order" if aspects[aspect].numbers is None else "a winner and no score"
            raise UsageError(f"`within` {within}: is for scores in an order; {aspect} has {kind}")
        values = _VerdictValues(folder, aspect, aspects[aspect], within)
        rows = read_rows([folder], [manifest], values)
        return cls(rows, aspect, within, np.array(values.number), np.array(values.confidence))

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
        if self.manifest.rubric.mode is PAIRWISE:
            return read_pair_labels(files, read_judged_pairs([self.folder], inputs), mapping, inputs)
        return read_labels(files, read_scores([self.folder]), mapping, inputs)

    def agreed(self, labels: Labels, seed: int = 0) -> tuple[Integers, Flags, int]:
        """Return labelled rows, one of each instruction, and whether their verdicts agree with most labels.

        Args:
            labels: labels of the judged rows.
            seed: seed of the choice.

        Returns:
            The rows that have a verdict [m], whether they agree [m], and the number of labelled rows without a
            majority.

        Raises:
            UsageError: there are no labels of the aspect.
        """
        marks = labels.nominal.get(self.aspect, labels.marks.get(self.aspect))
        if marks is None:
            raise UsageError(f"{self.folder}: no label of {self.aspect}; its column is missing")
        given: dict[int, Counter[float]] = {}
        for row, value in zip(self.rows.judged[marks.row].tolist(), marks.value.tolist(), strict=True):
            given.setdefault(row, Counter())[value] += 1
        most = {row: counts.most_common(2) for row, counts in given.items()}
        majority = {row: two[0][0] for row, two in most.items() if len(two) < 2 or two[0][1] > two[1][1]}
        known = [row for row in majority if np.isfinite(self.number[row])]
        rows = np.random.default_rng(seed).permutation(np.array(known, dtype=np.int64))
        rows = rows[np.unique(self.rows.group[rows], return_index=True)[1]]
        label = np.array([majority[row] for row in rows.tolist()])
        return rows, np.abs(self.number[rows] - label) <= self.within, len(given) - len(majority)


class _VerdictValues:
    """Collects the number and the confidence of the verdict of each row."""

    def __init__(self, folder: Path, name: str, aspect: Aspect, within: int) -> None:
        numbers: dict[Value, int] = dict(aspect.numbers or {})
        self._numbers = numbers or {value: place for place, value in enumerate(aspect.values.values())}
        self._folder, self._name, self._within = folder, name, within
        self.number, self.confidence = array("d"), array("d")

    def add(self, outcome: RowOutcome) -> None:
        judged = [each for each in outcome.of_prompts if isinstance(each, Judgement)]
        if any(self._name not in each.probabilities for each in judged):
            raise UsageError(
                f"{self._folder}: {outcome.first.source} has no probabilities of {self._name}, which are the "
                "judge's confidence; judge with an engine that gives them"
            )
        number = confidence = math.nan
        if isinstance(outcome, PairOutcome):
            known = outcome.preferences.get(self._name)
            if known is not None and known.winner is not None:
                number, confidence = RESULTS[known.winner], getattr(known.mean, known.winner)
        elif isinstance(outcome, Judgement):
            number = self._numbers[outcome.scores[self._name]]
            shares = zip(self._numbers.values(), outcome.probabilities[self._name], strict=True)
            confidence = sum(share for other, share in shares if abs(other - number) <= self._within)
        self.number.append(number)
        self.confidence.append(confidence)


@dataclass(frozen=True, slots=True)
class Selection:
    """The verdicts that a judge may keep.

    Attributes:
        verdicts: all verdicts.
        threshold: the confidence from which on they are kept; None for none.
        labels: number of labels that the threshold was tested on.
        agreed: number of these whose verdict is kept and agrees.
        tested: number of these whose verdict is kept.
        ties: number of labelled rows without a majority.
    """

    verdicts: Verdicts
    threshold: float | None
    labels: int
    agreed: int
    tested: int
    ties: int

    def in_words(self, rate: float) -> str:
        """Return what is kept, and why."""
        name, rows = self.verdicts.folder.name, len(self.verdicts.rows.judged)
        item = self.verdicts.manifest.rubric.mode.item
        on = f"{counted(self.labels, 'label')} of different instructions"
        on += f" ({self.ties:,} {item}s without a majority)" * bool(self.ties)
        if self.threshold is None:
            return (
                f"{name} keeps nothing: no threshold of its confidence gives {rate:.0%} agreement with "
                f"{1 - ERROR:.1%} confidence on {on}; at least {fewest_labels(rate)} are needed"
            )
        kept = int(self.kept.sum())
        return (
            f"{name} keeps {kept:,} of {counted(rows, item)} ({kept / rows:.0%}), those with a confidence of "
            f"{self.threshold:.3f} or more: {self.agreed} of {self.tested} such labels agree, of {on}"
        )

    @property
    def passed_on(self) -> list[str | None]:
        """The digests of the texts of the rows whose verdict is not kept, and of those that failed."""
        shown = zip(self.verdicts.rows.shown, self.kept.tolist(), strict=True)
        return [digest for (digest, _), kept in shown if not kept]

    def has_passed_on(self, rows: RunRows) -> Flags:
        """Return which rows of another run have responses that this judge passes on."""
        own = self.verdicts.rows.identities
        kept = {frozenset(own[row].digests) for row in np.flatnonzero(self.kept).tolist()}
        return np.array([frozenset(each.digests) not in kept for each in rows.identities])

    @property
    def kept(self) -> Flags:
        """Whether the verdict on each row is kept, [n]."""
        reached: Flags = self.verdicts.confidence >= (math.inf if self.threshold is None else self.threshold)
        return reached


def select(
    verdicts: Verdicts, labels: Labels, rate: float, among: Flags | None = None, seed: int = 0
) -> Selection:
    """Return the verdicts that a judge may keep.

    Args:
        verdicts: the verdicts of the judge.
        labels: labels of a random sample of the rows.
        rate: the share of kept verdicts that must agree.
        among: the rows to keep verdicts of, [n]; None for all.
        seed: seed of the choice of a labelled row of each instruction.
    """
    rows, agreed, ties = verdicts.agreed(labels, seed)
    if among is not None:
        rows, agreed = rows[among[rows]], agreed[among[rows]]
    confidence = verdicts.confidence[rows]
    found = threshold(confidence, agreed, rate)
    kept = confidence >= (math.inf if found is None else found)
    return Selection(verdicts, found, len(rows), int(agreed[kept].sum()), int(kept.sum()), ties)
