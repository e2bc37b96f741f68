"""What a rubric judges: one response to an instruction, two responses compared, or one response by each of the
row's own criteria.

A row of the input becomes one or more prompts, and each prompt has an outcome, a line of `judgements.jsonl`. A
mode says how the outcomes of a row's prompts become the outcome of the row, and everything in which rows of
different modes differ: their columns, the numbers that statistics compute with, what a summary counts, what a
list and a reader show. No other module asks which mode it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localjudge.modes.checklist import CHECKLIST
from localjudge.modes.mode import Mode
from localjudge.modes.pair import PAIRWISE
from localjudge.modes.response import RESPONSE
from localjudge.rows.columns import CRITERION, compares_responses

ONE_ROW_PER_PROMPT = RESPONSE
"""The mode in which each prompt is a row of its own, as in `judgements.jsonl`."""


def mode_of(used: Iterable[str]) -> Mode[Any]:
    """Return the mode of a rubric whose template uses these fields."""
    used = list(used)
    return PAIRWISE if compares_responses(used) else CHECKLIST if CRITERION in used else RESPONSE
