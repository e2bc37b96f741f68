"""Write the verdicts that a small and a large judge keep as a run; what neither keeps is left to people."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.matching.row_index import align_runs
from localjudge.matching.run_rows import common_rubric, run_names
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Failure, Judgement, Outcome
from localjudge.runs.notices import SEVERAL_JUDGES
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.summary import Summary
from localjudge.studies.escalation import Selection
from localjudge.studies.jury.jury_run import Lookup, write_joined
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
        _outcomes(judges, names),
        dict(zip(names, folders, strict=True)),
        engine="escalation",
        model=f"{first.model.judge}, and {last.model.judge} where it is not sure",
        decided_by=[each.threshold for each in judges],
        notices=[notice],
    )


def _outcomes(judges: Sequence[Selection], names: Sequence[str]) -> Iterator[Outcome]:
    """Yield the outcome of each prompt of the small judge's rows."""
    known = [each.verdicts for each in judges]
    item = known[0].manifest.rubric.mode.item
    place: dict[int, int] = {}
    if len(known) > 1:
        runs = [each.rows.identities for each in known]
        place = dict(align_runs(runs, [each.manifest for each in known])[0])  # type: ignore[arg-type]
    lookup = Lookup(read_row_outcomes(known[-1].folder))
    for row, first in enumerate(read_row_outcomes(known[0].folder)):
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
            failures = (each for each in verdict.of_prompts if isinstance(each, Failure))
            failed += [f"{name}: {each.reason}" for each in islice(failures, 1)]
        error = "for people: no judge is sure enough" + f" ({'; '.join(failed)})" * bool(failed)
        again = _by_responses(second)
        spoken = _by_responses(kept and kept[1])
        for prompt in first.of_prompts:
            same, judgement = again.get(_responses(prompt)), spoken.get(_responses(prompt))
            keys = [prompt.key, same and same.key]
            key = hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:32]
            if kept and isinstance(judgement, Judgement):
                columns = {**prompt.columns, "judge": kept[0]}
                yield judgement.model_copy(update={**prompt.identity, "columns": columns, "key": key})
            else:
                columns = {**prompt.columns, "confidence": sure}
                yield Failure(**{**prompt.identity, "columns": columns, "key": key}, error=error)


def _by_responses(outcome: RowOutcome | None) -> dict[tuple[str | None, str | None], Outcome]:
    """Return the outcomes of a row's prompts by their responses in the order in which they were shown."""
    return {} if outcome is None else {_responses(each): each for each in outcome.of_prompts}


def _responses(prompt: Outcome) -> tuple[str | None, str | None]:
    return prompt.response_digest, prompt.opponent_digest
