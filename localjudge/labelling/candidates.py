"""The rows that a sample for labels is drawn from, of files or of a run, with their chances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.errors import UsageError
from localjudge.labelling.preference import Preferred, even, judge_weights
from localjudge.labelling.sample import chances
from localjudge.labelling.session import Candidates, row_key
from localjudge.records import Failure, Row
from localjudge.rows.row_store import RowStore
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.reread_texts import rows_found
from localjudge.runs.run_manifest import read_manifest


def candidates_of_rows(
    rows: Iterable[Row | Failure], store: RowStore, sample: int | None, prefer: Preferred | None = None
) -> Candidates:
    """Return the rows of files; unreadable ones are left out.

    Args:
        rows: the rows and failures.
        store: receives the rows.
        sample: the number of rows that are expected in the sample; None for all.
        prefer: what is drawn more often; without a judge, only "system".

    Raises:
        UsageError: there is no row, or only a run has what is preferred.
    """
    if prefer not in (None, "system"):
        raise UsageError(f"`prefer` {prefer}: needs the judgements of a run; give a run directory")
    return _candidates(rows, store, sample, prefer, {}, {}, {})


def candidates_of_run(
    run: Path,
    store: RowStore,
    sample: int | None,
    prefer: Preferred | None = None,
    show_judge: bool = False,
    inputs: Iterable[str] = (),
) -> Candidates:
    """Return the rows of a run whose texts are found in its inputs.

    Args:
        run: the run directory.
        store: receives the rows.
        sample: as for `candidates_of_rows`.
        prefer: what is drawn more often.
        show_judge: show people the judge's answer.
        inputs: the input files, if they were moved.

    Raises:
        UsageError: no text was found, or no row has what is preferred.
    """
    manifest = read_manifest(run)
    outcomes = {outcome.first.digest: outcome for outcome in read_row_outcomes(run)}
    verdicts = {digest: outcome.verdicts for digest, outcome in outcomes.items() if outcome.error is None}
    judged = {digest: outcomes[digest].verdict_texts for digest in verdicts}
    weights = {}
    if prefer is not None and prefer != "system":
        weights = judge_weights(outcomes.values(), manifest.rubric, prefer)
    rows = (row for _, row in rows_found(manifest, [*outcomes], inputs))
    return _candidates(rows, store, sample, prefer, weights, verdicts, judged if show_judge else {})


def _candidates(
    rows: Iterable[Row | Failure],
    store: RowStore,
    sample: int | None,
    prefer: Preferred | None,
    weights: Mapping[str | None, float],
    verdicts: Mapping[str | None, Mapping[str, Any]],
    judged: Mapping[str | None, Mapping[str, str]],
) -> Candidates:
    if prefer is not None and sample is None:
        raise UsageError(f"`prefer` {prefer}: needs `sample`; all rows are drawn without it")
    digests, keys, groups, systems = [], [], [], []
    numbers: dict[str, int] = {}
    seen, unreadable = set(), []
    for row in rows:
        if isinstance(row, Failure):
            unreadable.append(row.error)
        # A label is of all texts that a person sees; it belongs to every row that has them.
        elif (key := row_key(row)) not in seen:
            seen.add(key)
            store.append(row)
            keys.append(key)
            digests.append(row.digest.hex())
            systems.append(tuple(each.system for each in row.responses))
            groups.append(numbers.setdefault(row.group, len(numbers)))
    if not groups:
        why = unreadable[0] if unreadable else "if the inputs of the run were moved, give `inputs`"
        raise UsageError(f"no row has texts to label: {why}")
    group = np.array(groups)
    sizes = np.bincount(group)
    of_row = even(systems) if prefer == "system" else np.array([weights.get(each, 1.0) for each in digests])
    chance = chances(np.bincount(group, of_row) / sizes, sizes, sample)
    shown_of = {place: judged[digest] for place, digest in enumerate(digests) if digest in judged}
    said = {place: verdicts[digest] for place, digest in enumerate(digests) if digest in verdicts}
    return Candidates(store, keys, group, chance, prefer, said, shown_of, unreadable)
