"""Which verdicts of a small judge can stay, and which go to a large one: selective agreement with people.

A verdict is kept if the judge's confidence reaches a threshold at which, with a stated probability, kept
verdicts agree with people at the rate that was asked. The thresholds are tested from high to low on labelled
rows, one of each instruction, by the exact binomial test, until one fails (fixed-sequence testing; Jung,
Brahman & Choi, "Trust or Escalate", arXiv:2407.18370). Which thresholds are tested follows from the confidences
alone: the first keeps `FIRST` of the labelled rows, and at least so many that the test can pass, and the last
keeps all. `benchmarks/escalation.py` measures how often the rate is missed, and how much is kept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.analysis import Flags, Floats, Integers
from localjudge.analysis.juries.jury_run import Lookup
from localjudge.analysis.matching.human_labels import Labels
from localjudge.analysis.matching.imported_scores import write_run
from localjudge.analysis.matching.rows import align_runs, identities
from localjudge.analysis.matching.scores import Scores, read_scores
from localjudge.errors import UsageError
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.answer import Value
from localjudge.runs.notices import SEVERAL_JUDGES, together
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.runs.run_manifest import JurorRecord, RunSettings, read_manifest
from localjudge.runs.summary import Summary
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
    """The verdicts of a judge in one aspect, on n judged rows.

    Attributes:
        scores: the rows.
        lines: the number of each row's line in the run, from 0, [n].
        number: the number of the verdict: that of its value or, without an order, the place of its label, [n].
        confidence: its probability, with those of the values that count as the same, [n].
    """

    scores: Scores
    aspect: str
    within: int
    lines: Integers
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
        scores = read_scores([folder])
        if aspect not in scores.rubric.aspects:
            raise UsageError(f"`by` {aspect}: give one of {', '.join(scores.rubric.aspects)}")
        known = scores.rubric.aspects[aspect]
        numbers: dict[Value, int] = dict(known.numbers or {})
        numbers = numbers or {value: place for place, value in enumerate(known.values.values())}
        if within and known.numbers is None:
            raise UsageError(f"`within` {within}: {aspect} has labels without an order")
        every = np.array([*numbers.values()])
        lines, found, confidence = [], [], []
        for line, outcome in enumerate(read_outcomes(folder)):
            if isinstance(outcome, Failure):
                continue
            if aspect not in outcome.probabilities:
                raise UsageError(
                    f"{folder}: {outcome.source} has no probabilities of {aspect}, which are the judge's "
                    "confidence; judge with an engine that gives them"
                )
            own = numbers[outcome.scores[aspect]]
            lines.append(line)
            found.append(float(own))
            confidence.append(
                float(np.array(outcome.probabilities[aspect])[np.abs(every - own) <= within].sum())
            )
        return cls(scores, aspect, within, np.array(lines), np.array(found), np.array(confidence))

    def agreed(self, labels: Labels, seed: int = 0) -> tuple[Integers, Flags, int]:
        """Return labelled rows, one of each instruction, and whether their verdicts agree with most labels.

        Args:
            labels: labels of the rows.
            seed: seed of the choice.

        Returns:
            The rows [m], whether they agree [m], and the number of labelled rows without a majority.

        Raises:
            UsageError: there are no labels of the aspect.
        """
        marks = labels.nominal.get(self.aspect, labels.marks.get(self.aspect))
        if marks is None:
            raise UsageError(f"{self.scores.where}: no label of {self.aspect}; its column is missing")
        given: dict[int, Counter[float]] = {}
        for row, value in zip(marks.row.tolist(), marks.value.tolist(), strict=True):
            given.setdefault(row, Counter())[value] += 1
        most = {row: counts.most_common(2) for row, counts in given.items()}
        majority = {row: two[0][0] for row, two in most.items() if len(two) < 2 or two[0][1] > two[1][1]}
        rows = np.random.default_rng(seed).permutation(np.array([*majority], dtype=np.int64))
        rows = rows[np.unique(self.scores.group[rows], return_index=True)[1]]
        label = np.array([majority[row] for row in rows.tolist()])
        return rows, np.abs(self.number[rows] - label) <= self.within, len(given) - len(majority)


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
        name, rows = self.verdicts.scores.folders[0].name, len(self.verdicts.lines)
        on = f"{counted(self.labels, 'label')} of different instructions"
        on += f" ({self.ties:,} rows without a majority)" * bool(self.ties)
        if self.threshold is None:
            return (
                f"{name} keeps nothing: no threshold of its confidence gives {rate:.0%} agreement with "
                f"{1 - ERROR:.1%} confidence on {on}; at least {fewest_labels(rate)} are needed"
            )
        kept = int(self.kept.sum())
        return (
            f"{name} keeps {kept:,} of {rows:,} rows ({kept / rows:.0%}), those with a confidence of "
            f"{self.threshold:.3f} or more: {self.agreed} of {self.tested} such labels agree, of {on}"
        )

    @property
    def passed_on(self) -> list[str | None]:
        """The digests of the rows whose verdict is not kept, and of those that failed."""
        folder, kept = self.verdicts.scores.folders[0], set(self.verdicts.lines[self.kept].tolist())
        return [each.digest for line, each in enumerate(read_outcomes(folder)) if line not in kept]

    def has_passed_on(self, scores: Scores) -> Flags:
        """Return which rows of another run have responses that this judge passes on."""
        kept = {self.verdicts.scores.identities[row].digests for row in np.flatnonzero(self.kept).tolist()}
        return np.array([each.digests not in kept for each in scores.identities])

    @property
    def kept(self) -> Flags:
        """Whether each verdict is kept, [n]."""
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


def write_escalated(small: Selection, large: Selection | None, out: Path) -> Summary:
    """Write the kept verdicts of both judges as a run; a row that neither keeps is a failure, for people.

    Each line says in the column `judge` whose it is.

    Args:
        small: the verdicts of the small judge.
        large: those of the large judge on the rows that the small one passes on.
        out: the run directory to create.

    Raises:
        UsageError: the folder is not empty.
    """
    both = [each.verdicts.scores for each in (small, large) if each]
    folders = [each.folders[0] for each in both]
    manifests = [read_manifest(folder) for folder in folders]
    settings = [manifest.settings.as_dict() for manifest in manifests]
    limits = [each.threshold for each in (small, large) if each]
    start, rubric = manifests[0].last_start, manifests[0].rubric
    names = [folder.resolve().name for folder in folders]
    notices = together(names, [read_notices(folder) for folder in folders])
    return write_run(
        out,
        _outcomes(small, large, names),
        rubric=rubric,
        settings=RunSettings(
            engine="escalation",
            rubric=rubric.digest,
            model=hashlib.sha256(json.dumps([settings, limits], sort_keys=True).encode()).hexdigest(),
        ),
        model=f"{manifests[0].model.judge}, and {manifests[-1].model.judge} where it is not sure",
        inputs=start.inputs,
        columns=start.columns,
        jury=[
            JurorRecord(name=name, run=str(folder.resolve()), model=each.model.judge, settings=each.settings)
            for name, folder, each in zip(names, folders, manifests, strict=True)
        ],
        inherited_notices=[
            f"{SEVERAL_JUDGES}: each row has the verdict of one of them (column `judge`); a difference between "
            "rows can be one between judges",
            *notices,
        ],
    )


def _outcomes(small: Selection, large: Selection | None, names: list[str]) -> Iterator[Outcome]:
    keeps = [_by_line(each) for each in (small, large) if each]
    folders = [each.verdicts.scores.folders[0] for each in (small, large) if each]
    place: dict[int, int] = {}
    if large:
        manifests = [read_manifest(folder) for folder in folders]
        pairs, _ = align_runs([identities(*each) for each in zip(folders, manifests, strict=True)], manifests)
        place = dict(pairs)  # type: ignore[arg-type]
    lookup = Lookup(folders[-1])
    for line, first in enumerate(read_outcomes(folders[0])):
        said, second = [], lookup.find(place.get(line)) if large else None
        for name, each, at, kept in zip(
            names, (first, second), (line, place.get(line, -1)), keeps, strict=False
        ):
            if isinstance(each, Judgement) and at in kept and kept[at][0]:
                columns = {**first.columns, "judge": name}
                yield each.model_copy(update={**first.identity, "columns": columns, "key": _key(first, second)})
                break
            confidence = f"{kept[at][1]:.2f}" if at in kept else getattr(each, "error", None) or "no verdict"
            said.append(f"{name}: {confidence}")
        else:
            error = f"for people: no judge is sure enough ({'; '.join(said)})"
            yield Failure(**{**first.identity, "key": _key(first, second)}, error=error)


def _by_line(selection: Selection) -> dict[int, tuple[bool, float]]:
    """Return whether the verdict of each line is kept, and its confidence."""
    verdicts = selection.verdicts
    each = zip(selection.kept.tolist(), verdicts.confidence.tolist(), strict=True)
    return dict(zip(verdicts.lines.tolist(), each, strict=True))


def _key(first: Outcome, second: Outcome | None) -> str:
    keys = [first.key, second and second.key]
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:32]
