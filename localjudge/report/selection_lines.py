"""Sentences on the verdicts that a judge may keep: how many, from which confidence on, and what is promised."""

from __future__ import annotations

import numpy as np

from localjudge.statistics.confidence_threshold import ERROR, FIRST
from localjudge.studies.escalation import Selection, TooFewLabels
from localjudge.system.quantities import counted


def selection_line(selection: Selection, rate: float) -> str:
    """Return how many verdicts are kept, at which threshold, and what is promised; or why nothing is kept.

    Args:
        selection: the verdicts.
        rate: the share of the rows with kept verdicts that must agree with people.
    """
    if selection.threshold is None:
        return _nothing_kept(selection, rate)
    name = selection.verdicts.folder.name
    item = _item(selection)
    rows = len(selection.verdicts.rows.judged)
    kept = int(selection.kept.sum())
    labelled = selection.kept_agreement
    alike = ""
    if labelled.independent < labelled.rows - 0.5:
        alike = f", and count as {labelled.independent:,.0f}, because {item}s of an instruction are alike"
    return (
        f"{name} keeps {kept:,} of {counted(rows, item)} ({kept / rows:.0%}), those with a "
        f"confidence of {selection.threshold:.3f} or more: {labelled.agreed:,} of {labelled.rows:,} such "
        f"labelled {item}s agree{alike}; tested on {_labelled_rows(selection)}. With "
        f"{1 - ERROR:.1%} confidence, at least {rate:.0%} of the {item}s that it keeps agree with people"
    )


def _nothing_kept(selection: Selection, rate: float) -> str:
    """Return why nothing is kept."""
    name = selection.verdicts.folder.name
    item = _item(selection)
    reason = selection.why_nothing_is_kept(rate)
    if isinstance(reason, TooFewLabels):
        why = (
            f"at least {reason.needed} {item}s of different instructions must have labels, and these "
            f"count as {reason.independent:,.0f}"
        )
    else:
        why = (
            f"{reason.agreed:.0%} of these {item}s agree, and {reason.agreed_of_surest:.0%} of the {FIRST:.0%} "
            "with the highest confidence"
        )
    return (
        f"{name} keeps nothing: {_labelled_rows(selection)} do not show ({1 - ERROR:.1%} confidence) that "
        f"{rate:.0%} of its verdicts above any threshold agree with people; {why}"
    )


def _labelled_rows(selection: Selection) -> str:
    """Return on how many labelled rows of how many instructions the threshold was tested."""
    item = _item(selection)
    instructions = len(np.unique(selection.tested_groups))
    rows = f"{counted(len(selection.tested), f'labelled {item}')} of {counted(instructions, 'instruction')}"
    if selection.without_majority:
        rows += f" ({selection.without_majority:,} {item}s without a majority are left out)"
    return rows


def _item(selection: Selection) -> str:
    """Return what a row of the run is called."""
    return selection.verdicts.manifest.rubric.mode.item
