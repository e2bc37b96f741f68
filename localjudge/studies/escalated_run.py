"""The verdicts that two judges keep, as a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.matching.run_alignment import align_runs
from localjudge.matching.run_rows import common_rubric, run_names
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Judgement, Outcome
from localjudge.runs.notices import SEVERAL_JUDGES
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.summary import Summary
from localjudge.studies.escalation import Selection
from localjudge.studies.joined_runs import Lookup, joined_key, write_joined
from localjudge.system.quantities import counted


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
    folders = [judge.verdicts.folder for judge in judges]
    manifests = [judge.verdicts.manifest for judge in judges]
    first = manifests[0]
    last = manifests[-1]
    rubric = common_rubric(folders, manifests)
    if first.orders != last.orders:
        raise UsageError(
            f"{folders[-1]}: judged in {counted(last.orders, 'order')}, but {folders[0]} in {first.orders}; "
            "judge the pairs again in the same orders"
        )
    names = run_names(folders)
    item = rubric.mode.item
    notice = (
        f"{SEVERAL_JUDGES}: each {item} has the verdict of one of them (column `judge`); a "
        f"difference between {item}s can be one between judges"
    )
    return write_joined(
        out,
        _outcomes(judges, names, item=item),
        dict(zip(names, folders, strict=True)),
        engine="escalation",
        model=f"{first.model.name}, and {last.model.name} where it is not sure",
        sources=[judge.verdicts.state for judge in judges],
        decided_by=[judge.threshold for judge in judges],
        notices=[notice],
    )


@dataclass(frozen=True, slots=True)
class _JudgedRow:
    """A row of the small judge's run, as one of the judges has it.

    Attributes:
        judge: the name of the judge.
        selection: its verdicts.
        row: the number of the row in its run; None if it has no such row.
        outcome: the outcome of the row; None if it has no such row.
    """

    judge: str
    selection: Selection
    row: int | None
    outcome: RowOutcome | None

    @property
    def is_kept(self) -> bool:
        """Whether the judge keeps its verdict."""
        return self.outcome is not None and self.row is not None and bool(self.selection.kept[self.row])

    @property
    def confidence(self) -> float | None:
        """The judge's confidence; None without a verdict."""
        if self.row is None:
            return None
        confidence = float(self.selection.verdicts.confidence[self.row])
        return None if math.isnan(confidence) else confidence

    @property
    def failure(self) -> str | None:
        """The reason of the first prompt that failed; None if all are judged."""
        if self.outcome is None:
            return None
        for prompt in self.outcome.prompts:
            if isinstance(prompt, Failure):
                return prompt.reason
        return None


def _outcomes(judges: Sequence[Selection], names: Sequence[str], *, item: str) -> Iterator[Outcome]:
    """Yield the outcome of each prompt of the small judge's rows."""
    small = judges[0]
    large = judges[1] if len(judges) > 1 else None
    row_in_large: Mapping[int, int] = {}
    outcomes_of_large: Lookup[RowOutcome] = Lookup([])
    if large is not None:
        row_in_large = _rows_in_large(small, large)
        outcomes_of_large = Lookup(read_row_outcomes(large.verdicts.folder))
    for row, outcome in enumerate(read_row_outcomes(small.verdicts.folder)):
        judged = [_JudgedRow(names[0], small, row=row, outcome=outcome)]
        second = None
        if large is not None:
            large_row = row_in_large.get(row)
            second = outcomes_of_large.find(large_row)
            judged.append(_JudgedRow(names[1], large, row=large_row, outcome=second))
        yield from _outcomes_of_row(outcome, second, judged=judged, item=item)


def _rows_in_large(small: Selection, large: Selection) -> dict[int, int]:
    """Return the number of each row of the small judge's run in that of the large judge, where it has it."""
    verdicts = [small.verdicts, large.verdicts]
    pairs, _ = align_runs(
        [of_judge.rows.identities for of_judge in verdicts], [of_judge.manifest for of_judge in verdicts]
    )
    return {rows[0]: rows[1] for rows in pairs}


def _outcomes_of_row(
    first: RowOutcome, second: RowOutcome | None, *, judged: Sequence[_JudgedRow], item: str
) -> Iterator[Outcome]:
    """Yield the outcome of each prompt of a row: the kept verdict, or a failure, for people.

    Args:
        first: the outcome of the small judge.
        second: that of the large judge; None if it has no such row, or there is no large judge.
        judged: the row as each judge has it.
        item: what a row is called.
    """
    kept = None
    unsure: list[_JudgedRow] = []
    for of_judge in judged:
        if of_judge.is_kept:
            kept = of_judge
            break
        unsure.append(of_judge)
    of_second = _by_responses(second)
    of_kept = _by_responses(None if kept is None else kept.outcome)
    confidences = {of_judge.judge: of_judge.confidence for of_judge in unsure if of_judge.outcome is not None}
    error = _error(unsure, item=item)
    for prompt in first.prompts:
        responses = _responses(prompt)
        judgement = of_kept.get(responses)
        identity = prompt.identity | {"key": joined_key([prompt, of_second.get(responses)])}
        if kept is not None and isinstance(judgement, Judgement):
            columns = prompt.columns | {"judge": kept.judge}
            yield judgement.model_copy(update=identity | {"columns": columns})
        else:
            columns = prompt.columns | {"confidence": confidences}
            yield Failure(**identity | {"columns": columns}, error=error)


def _error(unsure: Sequence[_JudgedRow], *, item: str) -> str:
    """Return why a row is for people: no judge is sure enough, and why some have no verdict."""
    reasons: list[str] = []
    for of_judge in unsure:
        if of_judge.outcome is None:
            reasons.append(f"{of_judge.judge}: has no such {item}")
        elif of_judge.failure is not None:
            reasons.append(f"{of_judge.judge}: {of_judge.failure}")
    error = "for people: no judge is sure enough"
    if reasons:
        error += f" ({'; '.join(reasons)})"
    return error


def _by_responses(outcome: RowOutcome | None) -> dict[tuple[str | None, str | None], Outcome]:
    """Return the outcomes of a row's prompts by their responses in the order in which they were shown."""
    if outcome is None:
        return {}
    return {_responses(prompt): prompt for prompt in outcome.prompts}


def _responses(prompt: Outcome) -> tuple[str | None, str | None]:
    return prompt.response_digest, prompt.opponent_digest
