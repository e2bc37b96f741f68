"""The scores of a jury as a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import require_aspects
from localjudge.matching.run_alignment import align_runs, identities
from localjudge.matching.run_rows import common_rubric, run_names
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.answer import Value, shown
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import is_dry_run
from localjudge.runs.reader import read_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.runs.summary import Summary
from localjudge.studies.joined_runs import Lookup, joined_key, write_joined


def write_jury(folders: Sequence[Path], out: Path) -> Summary:
    """Write the jury's scores as a run: the score is the jurors' median, and the expected score their mean.

    Of labels without an order, the score is the most frequent one, and the most probable of several. A row on
    which the jurors stay tied is a failure. So is a row that a juror has not judged, because a mean over fewer
    jurors is not comparable.

    Args:
        folders: the runs, one per juror.
        out: the run directory to create.

    Raises:
        UsageError: the folder is not empty, a run compares responses, the runs' aspects or scales differ, or
            their rows cannot be matched.
        RunMismatchError: a start has changed a run while it was read; nothing is written.
    """
    states = [RunState.of(folder) for folder in folders]
    manifests = [read_manifest(folder) for folder in folders]
    require_aspects(folders, manifests)
    names = run_names(folders)
    rubric = common_rubric(folders, manifests)
    return write_joined(
        out,
        _outcomes(folders, names, rubric=rubric, lines_in_others=_lines_in_others(folders, manifests)),
        dict(zip(names, folders, strict=True)),
        engine="jury",
        model=f"jury of {', '.join(names)}",
        sources=states,
        dry_run=any(is_dry_run(manifest) for manifest in manifests),
    )


def _lines_in_others(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> list[dict[int, int]]:
    """Return for each other run the line that has the row of a line of the first run.

    Raises:
        UsageError: a run has no row of the first one.
    """
    names = run_names(folders)
    first = identities(folders[0])
    lines_in_others: list[dict[int, int]] = []
    for run in range(1, len(folders)):
        both = [first, identities(folders[run])]
        pairs, notes = align_runs(both, [manifests[0], manifests[run]], [names[0], names[run]])
        if not pairs:
            raise UsageError(f"{folders[run]}: has no row of {folders[0]}: {'; '.join(notes)}")
        lines_in_others.append({lines[0]: lines[1] for lines in pairs})
    return lines_in_others


def _outcomes(
    folders: Sequence[Path],
    names: Sequence[str],
    *,
    rubric: Rubric,
    lines_in_others: Sequence[Mapping[int, int]],
) -> Iterator[Outcome]:
    """Yield the jury's outcome of each line of the first run."""
    other_runs = [Lookup(read_outcomes(folder)) for folder in folders[1:]]
    for line, first in enumerate(read_outcomes(folders[0])):
        outcomes: list[Outcome | None] = [first]
        for other_run, lines in zip(other_runs, lines_in_others, strict=True):
            outcomes.append(other_run.find(lines.get(line)))
        yield _joint_outcome(outcomes, names, rubric=rubric, first=first)


def _joint_outcome(
    outcomes: Sequence[Outcome | None], names: Sequence[str], *, rubric: Rubric, first: Outcome
) -> Outcome:
    """Return the jury's outcome of a row; `outcomes` has None for a juror without the row."""
    common = first.identity | {"key": joined_key(outcomes)}
    judged: list[Judgement] = []
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, Judgement):
            judged.append(outcome)
            continue
        why = "has no such row" if outcome is None else f"failed: {outcome.error}"
        return Failure(**common, error=f"juror {name} {why}")
    return _joint_judgement(judged, names, rubric=rubric, common=common)


def _joint_judgement(
    judged: Sequence[Judgement], names: Sequence[str], *, rubric: Rubric, common: dict[str, Any]
) -> Judgement | Failure:
    """Return one judgement from several of the same row; a failure if the jurors are tied on a label."""
    expected: dict[str, float] = {}
    scores: dict[str, Value] = {}
    probabilities: dict[str, list[float]] = {}
    for name, aspect in rubric.aspects.items():
        values = [judgement.scores[name] for judgement in judged]
        mean_probabilities = _mean_probabilities(judged, name)
        if mean_probabilities is not None:
            probabilities[name] = mean_probabilities
        if aspect.numbers is None:
            winners = _most_frequent(values, list(aspect.values.values()), mean_probabilities)
            if len(winners) > 1:
                tied = ", ".join(map(shown, winners))
                return Failure(**common, error=f"the jurors are tied on {name}: {tied}")
            scores[name] = winners[0]
        else:
            expected[name] = _mean_expected(judged, name, numbers=aspect.numbers)
            scores[name] = _median_value(values, aspect.numbers)
    of_jurors = {name: judgement.scores for name, judgement in zip(names, judged, strict=True)}
    texts: dict[str, str] = {}
    for text in rubric.columns.texts:
        written = [f"{name}: {judgement.texts[text]}" for name, judgement in zip(names, judged, strict=True)]
        texts[text] = "\n\n".join(written)
    return Judgement(
        **common | {"columns": common["columns"] | {"jury": of_jurors}},
        texts=texts,
        scores=scores,
        expected=expected,
        probabilities=probabilities,
        rationale_cut=any(judgement.rationale_cut for judgement in judged),
        candidate_cut=max(judgement.candidate_cut for judgement in judged),
        prompt_tokens=sum(judgement.prompt_tokens for judgement in judged),
        output_tokens=sum(judgement.output_tokens for judgement in judged),
    )


def _mean_probabilities(judged: Sequence[Judgement], aspect: str) -> list[float] | None:
    """Return the mean probability of each value of an aspect; None if a juror has none."""
    of_jurors: list[list[float]] = []
    for judgement in judged:
        if aspect not in judgement.probabilities:
            return None
        of_jurors.append(judgement.probabilities[aspect])
    return [sum(of_value) / len(of_value) for of_value in zip(*of_jurors, strict=True)]


def _mean_expected(judged: Sequence[Judgement], aspect: str, *, numbers: Mapping[Value, int]) -> float:
    """Return the mean of the jurors' expected scores; of a juror without one, the score counts."""
    expected = [judgement.expected.get(aspect, numbers[judgement.scores[aspect]]) for judgement in judged]
    return sum(expected) / len(expected)


def _median_value(values: Sequence[Value], numbers: Mapping[Value, int]) -> Value:
    """Return the value whose number is the median of the jurors'."""
    middle = median([numbers[value] for value in values])
    return next(value for value, number in numbers.items() if number == middle)


def _most_frequent(
    values: Sequence[Value], labels: Sequence[Value], probabilities: Sequence[float] | None
) -> list[Value]:
    """Return the label that most jurors gave; of several, the one with the highest probability.

    Several labels are returned if their probabilities are equal or unknown.

    Args:
        values: the label of each juror.
        labels: all labels.
        probabilities: the mean probability of each label; None if they are unknown.
    """
    if probabilities is None:
        probabilities = [0.0] * len(labels)
    votes = Counter(values)
    strength = {
        label: (votes[label], probability) for label, probability in zip(labels, probabilities, strict=True)
    }
    strongest = max(strength.values())
    return [label for label in labels if strength[label] == strongest]


def median(values: Sequence[int]) -> int:
    """Return the median; of two middle scores, the one closer to the mean, and on a tie the lower."""
    ranked = sorted(values)
    low = ranked[(len(ranked) - 1) // 2]
    high = ranked[len(ranked) // 2]
    mean = sum(ranked) / len(ranked)
    return high if high - mean < mean - low else low
