"""The values of an aspect as a report shows them: texts and colours."""

from __future__ import annotations

from typing import Literal

from localjudge.modes.pair_preference import WINNERS
from localjudge.records.outcome_columns import OVERALL
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import deciding

ORDERED_COLOURS = ("#b5533c", "#dd9b6b", "#b9b4a6", "#78a5b8", "#2f6f95")
"""Colours from the lowest score to the highest, interpolated between them."""
_LABEL_COLOURS = (
    "#4f8a8b", "#d9a441", "#8e7cc3", "#c97b84", "#7f9c5a", "#5d7aa8", "#b98b5e", "#8c9196",
    "#a3675c", "#76a9a0", "#6f5f86", "#c4b48a",
)  # fmt: skip
"""Colours of labels without an order: none of them looks better or worse than another."""


def kind(aspect: Aspect) -> Literal["pair", "scale", "ordered", "boolean", "labels"]:
    """Return the kind of an aspect: a pair's winner, numbers, ordered choices, no and yes, or other labels."""
    if aspect.preference is not None:
        return "pair"
    if aspect.scale is not None or aspect.boolean:
        return "boolean" if aspect.boolean else "scale"
    return "ordered" if aspect.ordered else "labels"


def value_texts(aspect: Aspect) -> list[str]:
    """Return the text of each value of an aspect, in the order of the values; of pairs, of each winner."""
    if aspect.preference is not None:
        return [*WINNERS]
    return [shown(value) for value in aspect.values.values()]


def value_colours(aspect: Aspect) -> list[str]:
    """Return the colour of each value of an aspect, in the order of `value_texts`."""
    if aspect.preference is not None:
        first, second, neither = *_LABEL_COLOURS[:2], ORDERED_COLOURS[2]
        return [first, neither, second, neither]
    if aspect.boolean:
        return [ORDERED_COLOURS[len(ORDERED_COLOURS) // 2], ORDERED_COLOURS[-1]]
    count = len(aspect.values)
    if kind(aspect) == "labels":
        return [_LABEL_COLOURS[place % len(_LABEL_COLOURS)] for place in range(count)]
    return [share_colour(place / (count - 1)) for place in range(count)]


def decides(rubric: Rubric) -> str | None:
    """Return the name of the score that decides which response is better; None if no aspect is ordered."""
    columns = deciding(rubric.row_columns)
    return None if not columns else columns[0].name if len(columns) == 1 else OVERALL


def share_colour(share: float) -> str:
    """Return the colour at a place between the first ordered colour, 0, and the last, 1."""
    low = min(int(share * (len(ORDERED_COLOURS) - 1)), len(ORDERED_COLOURS) - 2)
    part = share * (len(ORDERED_COLOURS) - 1) - low
    ends = zip(*(_channels(ORDERED_COLOURS[place]) for place in (low, low + 1)), strict=True)
    return "#" + "".join(f"{round(one * (1 - part) + other * part):02x}" for one, other in ends)


def _channels(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
