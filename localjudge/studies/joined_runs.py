"""Runs that are joined from runs of several judges: a jury's scores, or the verdicts that two judges keep."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import require_aspects
from localjudge.matching.run_alignment import align_runs, identities
from localjudge.matching.run_rows import common_rubric, run_names
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.answer import Value, shown
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.notices import SEVERAL_JUDGES, is_dry_run, together
from localjudge.runs.reader import notices_of_run, read_outcomes, read_row_outcomes
from localjudge.runs.run_manifest import JurorRecord, RunSettings, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.runs.summary import Summary
from localjudge.studies.escalation import Selection
from localjudge.studies.written_runs import write_run
from localjudge.system.quantities import counted

T = TypeVar("T")


def write_joined(
    out: Path,
    outcomes: Iterable[Outcome],
    folders: Mapping[str, Path],
    *,
    engine: str,
    model: str,
    sources: Sequence[RunState],
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
        sources: the runs of the judges, as they were before they were read.
        decided_by: further numbers that decide the outcomes; they are part of the run's identity.
        notices: notices before those of the runs.
        fields: further fields of `run.json`.

    Raises:
        RunMismatchError: a start has changed a run since then; nothing is written.
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
        readings=[record.as_dict() for record in start.readings],
        input_sha256=start.input_sha256,
        jury=[
            JurorRecord(name=name, run=str(folder.resolve()), model=each.model.name, settings=each.settings)
            for (name, folder), each in zip(folders.items(), manifests, strict=True)
        ],
        inherited_notices=[*notices, *together([*folders], [*map(notices_of_run, folders.values())])],
        sources=sources,
        **fields,
    )


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
    names, rubric = run_names(folders), common_rubric(folders, manifests)
    first, *others = [identities(folder) for folder in folders]
    rows: list[
        dict[int, int]
    ] = []  # the number of each line of the first run in each other run that has its row
    for folder, name, manifest, lines in zip(folders[1:], names[1:], manifests[1:], others, strict=True):
        pairs, notes = align_runs([first, lines], [manifests[0], manifest], [names[0], name])
        if not pairs:
            raise UsageError(f"{folder}: has no row of {folders[0]}: {'; '.join(notes)}")
        rows.append({members[0]: members[1] for members in pairs})
    return write_joined(
        out,
        _outcomes_of_jury(folders, names, rubric, rows),
        dict(zip(names, folders, strict=True)),
        engine="jury",
        model=f"jury of {', '.join(names)}",
        sources=states,
        dry_run=any(map(is_dry_run, manifests)),
    )


def _outcomes_of_jury(
    folders: Sequence[Path], names: Sequence[str], rubric: Rubric, rows: Sequence[Mapping[int, int]]
) -> Iterator[Outcome]:
    others = [Lookup(read_outcomes(folder)) for folder in folders[1:]]
    for number, first in enumerate(read_outcomes(folders[0])):
        of_jurors = [first, *(other.find(of.get(number)) for other, of in zip(others, rows, strict=True))]
        common = first.identity | {"key": _joined_key(of_jurors)}
        judged = [outcome for outcome in of_jurors if isinstance(outcome, Judgement)]
        if len(judged) == len(of_jurors):
            yield _together(judged, names, rubric, common)
            continue
        missing = [not isinstance(outcome, Judgement) for outcome in of_jurors].index(True)
        lost = of_jurors[missing]
        why = "has no such row" if lost is None else f"failed: {lost.error}"
        yield Failure(**common, error=f"juror {names[missing]} {why}")


def _joined_key(outcomes: Iterable[Outcome | None]) -> str:
    """Return the key of an outcome that is made of those of several judges."""
    keys = [outcome and outcome.key for outcome in outcomes]
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:32]


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
            means = [each.expected.get(name, numbers[each.scores[name]]) for each in judged]
            expected[name] = sum(means) / len(means)
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


def median(values: Sequence[int]) -> int:
    """Return the median; of two middle scores, the one closer to the mean, and on a tie the lower."""
    ranked = sorted(values)
    low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    mean = sum(ranked) / len(ranked)
    return high if high - mean < mean - low else low


def write_escalated(small: Selection, large: Selection | None, out: Path) -> Summary:
    """Write the kept verdicts of both judges as a run; a row that neither keeps is a failure, for people.

    Each line says in the column `judge` whose it is; that of a failure has the confidence of each judge in the
    column `confidence`, so that failures with equal reasons are counted together.

    Args:
        small: the verdicts of the small judge.
        large: those of the large judge on the rows that the small one passes on.
        out: the run directory to create.

    Raises:
        UsageError: the folder is not empty, or the judges have other aspects or orders of a pair.
        RunMismatchError: a start has changed a run since its verdicts were read; nothing is written.
    """
    judges = [small] if large is None else [small, large]
    folders = [each.verdicts.folder for each in judges]
    manifests = [each.verdicts.manifest for each in judges]
    first, last = manifests[0], manifests[-1]
    rubric = common_rubric(folders, manifests)
    if first.orders != last.orders:
        raise UsageError(
            f"{folders[-1]}: judged in {counted(last.orders, 'order')}, but {folders[0]} in {first.orders}; "
            "judge the pairs again in the same orders"
        )
    names = run_names(folders)
    notice = (
        f"{SEVERAL_JUDGES}: each {rubric.mode.item} has the verdict of one of them (column `judge`); a "
        f"difference between {rubric.mode.item}s can be one between judges"
    )
    return write_joined(
        out,
        _kept_outcomes(judges, names),
        dict(zip(names, folders, strict=True)),
        engine="escalation",
        model=f"{first.model.name}, and {last.model.name} where it is not sure",
        sources=[each.verdicts.state for each in judges],
        decided_by=[each.threshold for each in judges],
        notices=[notice],
    )


def _kept_outcomes(judges: Sequence[Selection], names: Sequence[str]) -> Iterator[Outcome]:
    """Yield the outcome of each prompt of the small judge's rows."""
    verdicts = [judge.verdicts for judge in judges]
    item = verdicts[0].manifest.rubric.mode.item
    place: dict[int, int] = {}
    if len(verdicts) > 1:
        runs = [each.rows.identities for each in verdicts]
        place = dict(align_runs(runs, [each.manifest for each in verdicts])[0])  # type: ignore[arg-type]
    lookup = Lookup(read_row_outcomes(verdicts[-1].folder))
    for row, first in enumerate(read_row_outcomes(verdicts[0].folder)):
        other = place.get(row)
        second = lookup.find(other)
        kept, failed = None, []
        sure = dict[str, float | None]()
        for name, judge, verdict, at in zip(names, judges, (first, second), (row, other), strict=False):
            if verdict is None or at is None:
                failed.append(f"{name}: has no such {item}")
                continue
            if judge.kept[at]:
                kept = name, verdict
                break
            confidence = float(judge.verdicts.confidence[at])
            sure[name] = None if math.isnan(confidence) else confidence
            failed += [f"{name}: {each.reason}" for each in verdict.prompts if isinstance(each, Failure)][:1]
        error = "for people: no judge is sure enough" + f" ({'; '.join(failed)})" * bool(failed)
        of_second, of_kept = _by_responses(second), _by_responses(kept and kept[1])
        for prompt in first.prompts:
            judgement = of_kept.get(_responses(prompt))
            identity = prompt.identity | {"key": _joined_key([prompt, of_second.get(_responses(prompt))])}
            if kept and isinstance(judgement, Judgement):
                columns = {**prompt.columns, "judge": kept[0]}
                yield judgement.model_copy(update=identity | {"columns": columns})
            else:
                columns = {**prompt.columns, "confidence": sure}
                yield Failure(**identity | {"columns": columns}, error=error)


def _by_responses(outcome: RowOutcome | None) -> dict[tuple[str | None, str | None], Outcome]:
    """Return the outcomes of a row's prompts by their responses in the order in which they were shown."""
    return {} if outcome is None else {_responses(each): each for each in outcome.prompts}


def _responses(prompt: Outcome) -> tuple[str | None, str | None]:
    return prompt.response_digest, prompt.opponent_digest


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
