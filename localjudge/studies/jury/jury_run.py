"""Write a jury's scores as a run: for each row, the jurors' median and mean, or their most frequent label."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import refuse_pairs
from localjudge.matching.row_index import align_runs, identities
from localjudge.matching.run_rows import common_rubric, run_names
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.answer import Value, shown
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import is_dry_run, together
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.runs.run_manifest import JurorRecord, RunManifest, RunSettings, read_manifest
from localjudge.runs.summary import Summary
from localjudge.studies.imported_scores import write_run

T = TypeVar("T")


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
    """
    manifests = [read_manifest(folder) for folder in folders]
    refuse_pairs(folders, manifests)
    names, rubric = run_names(folders), common_rubric(folders, manifests)
    outcomes = _outcomes(folders, names, rubric, _rows(folders, manifests))
    return write_joined(
        out,
        outcomes,
        dict(zip(names, folders, strict=True)),
        engine="jury",
        model=f"jury of {', '.join(names)}",
        dry_run=any(map(is_dry_run, manifests)),
    )


def write_joined(
    out: Path,
    outcomes: Iterable[Outcome],
    folders: Mapping[str, Path],
    *,
    engine: str,
    model: str,
    decided_by: object = None,
    notices: Sequence[str] = (),
    **fields: Any,
) -> Summary:
    """Write outcomes that were joined from runs of several judges as a run, of the rows of the first.

    Args:
        out: the run directory to create.
        outcomes: the outcomes of the prompts of the first run, in their order.
        folders: the run directory of each judge, by its name.
        engine: how the outcomes were joined.
        model: a name for all judges.
        decided_by: further numbers that decide the outcomes; they are part of the run's identity.
        notices: notices before those of the runs.
        fields: further fields of `run.json`.
    """
    manifests = [read_manifest(folder) for folder in folders.values()]
    rubric, start = manifests[0].rubric, manifests[0].last_start
    settings: list[Any] = [manifest.settings.as_dict() for manifest in manifests]
    settings = settings if decided_by is None else [settings, decided_by]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return write_run(
        out,
        outcomes,
        rubric=rubric,
        settings=RunSettings(engine=engine, rubric=rubric.digest, model=digest),
        model=model,
        inputs=start.inputs,
        columns=start.columns,
        pairing=start.pairing,
        jury=[
            JurorRecord(name=name, run=str(folder.resolve()), model=each.model.judge, settings=each.settings)
            for (name, folder), each in zip(folders.items(), manifests, strict=True)
        ],
        inherited_notices=[*notices, *together([*folders], [*map(read_notices, folders.values())])],
        **fields,
    )


def _rows(folders: Sequence[Path], manifests: Sequence[RunManifest]) -> list[dict[int, int]]:
    """Return the number of each line of the first run in each other run that has its row.

    Raises:
        UsageError: rows cannot be told apart, or a run has no row of the first.
    """
    runs = [identities(folder) for folder in folders]
    found: list[dict[int, int]] = []
    for other in range(1, len(runs)):
        pairs, notes = align_runs([runs[0], runs[other]], [manifests[0], manifests[other]])
        if not pairs:
            raise UsageError(f"{folders[other]}: has no row of {folders[0]}: {'; '.join(notes)}")
        found.append({members[0]: members[1] for members in pairs})
    return found


def _outcomes(
    folders: Sequence[Path], names: Sequence[str], rubric: Rubric, rows: Sequence[Mapping[int, int]]
) -> Iterator[Outcome]:
    others = [Lookup(read_outcomes(folder)) for folder in folders[1:]]
    for number, first in enumerate(read_outcomes(folders[0])):
        found = [first, *(other.find(of.get(number)) for other, of in zip(others, rows, strict=True))]
        keys = [each and each.key for each in found]
        common = first.identity | {"key": hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:32]}
        judged = [each for each in found if isinstance(each, Judgement)]
        if len(judged) == len(found):
            yield _together(judged, names, rubric, common)
            continue
        name, missing = next(
            (name, each) for name, each in zip(names, found, strict=True) if not isinstance(each, Judgement)
        )
        why = "has no such row" if missing is None else f"failed: {missing.error}"
        yield Failure(**common, error=f"juror {name} {why}")


def _together(
    judged: Sequence[Judgement], names: Sequence[str], rubric: Rubric, common: dict[str, Any]
) -> Judgement | Failure:
    """Return one judgement from several of the same row; a failure if the jurors are tied on a label."""
    expected, scores, probabilities = {}, {}, {}
    for name, aspect in rubric.aspects.items():
        given = [each.scores[name] for each in judged]
        shares = [each.probabilities[name] for each in judged if name in each.probabilities]
        if len(shares) == len(judged):
            probabilities[name] = [sum(each) / len(each) for each in zip(*shares, strict=True)]
        if (numbers := aspect.numbers) is None:
            first = _most_frequent(given, [*aspect.values.values()], probabilities.get(name))
            if len(first) > 1:
                tied = ", ".join(map(shown, first))
                return Failure(**common, error=f"the jurors are tied on {name}: {tied}")
            scores[name] = first[0]
        else:
            own = [each.expected.get(name) for each in judged]
            known = [numbers[value] if mean is None else mean for value, mean in zip(given, own, strict=True)]
            expected[name] = sum(known) / len(known)
            middle = median([numbers[value] for value in given])
            scores[name] = next(value for value, number in numbers.items() if number == middle)
    jury = {name: each.scores for name, each in zip(names, judged, strict=True)}
    return Judgement(
        **{**common, "columns": {**common["columns"], "jury": jury}},
        texts={
            text: "\n\n".join(f"{name}: {each.texts[text]}" for name, each in zip(names, judged, strict=True))
            for text in rubric.columns.texts
        },
        scores=scores,
        expected=expected,
        probabilities=probabilities,
        rationale_cut=any(each.rationale_cut for each in judged),
        candidate_cut=max(each.candidate_cut for each in judged),
        prompt_tokens=sum(each.prompt_tokens for each in judged),
        output_tokens=sum(each.output_tokens for each in judged),
    )


def _most_frequent(
    given: Sequence[Value], labels: Sequence[Value], probabilities: Sequence[float] | None
) -> list[Value]:
    """Return the label that most jurors gave; of several, the one with the highest probability.

    Several labels are returned if their probabilities are equal or unknown.
    """
    known = dict(zip(labels, probabilities or [0.0] * len(labels), strict=True))
    votes = Counter(given)
    best = max((votes[label], known[label]) for label in labels)
    return [label for label in labels if (votes[label], known[label]) == best]


class Lookup(Generic[T]):
    """A lookup of the outcomes of a run, of its lines or of its rows, by their numbers.

    Outcomes that are read before they are needed stay in memory; runs over the same input have the same order,
    so these are few.
    """

    def __init__(self, outcomes: Iterable[T]) -> None:
        self._outcomes = enumerate(outcomes)
        self._waiting: dict[int, T] = {}

    def find(self, number: int | None) -> T | None:
        """Return an outcome, once; None without a number."""
        if number is None or number in self._waiting:
            return None if number is None else self._waiting.pop(number)
        for place, outcome in self._outcomes:
            if place == number:
                return outcome
            self._waiting[place] = outcome
        return None


def median(values: Sequence[int]) -> int:
    """Return the median; of two middle scores, the one closer to the mean, and on a tie the lower."""
    ranked = sorted(values)
    low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    mean = sum(ranked) / len(ranked)
    return high if high - mean < mean - low else low
