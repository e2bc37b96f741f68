"""What a rubric judges: one response to an instruction, two responses compared, or one response by each of the
row's own criteria.

A row of the input becomes one or more prompts, and each prompt has an outcome, a line of `judgements.jsonl`. A
mode says how the outcomes of a row's prompts become the outcome of the row, and everything in which rows of
different modes differ: their columns, the numbers that statistics compute with, what a summary counts, what a
list and a reader show. Others ask only for a part (`Mode.pairs`, `Mode.criteria`), never which mode it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from localjudge.modes.checklist import CHECKLIST
from localjudge.modes.mode import Mode
from localjudge.modes.pair import PAIRWISE
from localjudge.modes.response import RESPONSE
from localjudge.records import Failure, Row
from localjudge.rows.columns import CRITERION, compares_responses
from localjudge.rows.pairs import Pairing
from localjudge.rows.row_limit import RowLimit

ONE_ROW_PER_PROMPT = RESPONSE
"""The mode in which each prompt is a row of its own, as in `judgements.jsonl`."""


def mode_of(used: Sequence[str]) -> Mode[Any]:
    """Return the mode of a rubric whose template uses these fields."""
    if compares_responses(used):
        return PAIRWISE
    if CRITERION in used:
        return CHECKLIST
    return RESPONSE


def prompt_rows(
    read: Callable[[Sequence[str]], Iterable[Row | Failure]],
    used: Sequence[str],
    pairing: Pairing | None = None,
    limit: RowLimit | None = None,
) -> Iterable[Row | Failure]:
    """Return the row of each prompt: a row of the input, a row for each of its criteria, or an order of a pair.

    Args:
        read: reads the rows of the input, which need these fields.
        used: the fields that the rubric's template uses.
        pairing: how rows of two responses are made; None for rows of one.
        limit: how many rows or pairs of the input are used; None for all.
    """
    if pairing is not None:
        return pairing.rows(read(pairing.used(used)), limit)
    if limit is None:
        limit = RowLimit()
    return mode_of(used).prompt_rows(limit.first(read(used)))
