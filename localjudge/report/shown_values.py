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
_MIDDLE_COLOUR = ORDERED_COLOURS[len(ORDERED_COLOURS) // 2]
"""The colour of what is neither good nor bad."""
_LABEL_COLOURS = (
    "#4f8a8b", "#d9a441", "#8e7cc3", "#c97b84", "#7f9c5a", "#5d7aa8", "#b98b5e", "#8c9196",
    "#a3675c", "#76a9a0", "#6f5f86", "#c4b48a",
)  # fmt: skip
"""Colours of labels without an order: none of them looks better or worse than another."""


def aspect_kind(aspect: Aspect) -> Literal["pair", "scale", "ordered", "boolean", "labels"]:
    """Return the kind of an aspect: a pair's winner, numbers, ordered choices, no and yes, or other labels."""
    if aspect.preference is not None:
        return "pair"
    if aspect.boolean:
        return "boolean"
    if aspect.scale is not None:
        return "scale"
    if aspect.ordered:
        return "ordered"
    return "labels"


def value_texts(aspect: Aspect) -> list[str]:
    """Return the text of each value of an aspect, in the order of the values; of pairs, of each winner."""
    if aspect.preference is not None:
        return list(WINNERS)
    return [shown(value) for value in aspect.values.values()]


def value_colours(aspect: Aspect) -> list[str]:
    """Return the colour of each value of an aspect, in the order of `value_texts`."""
    if aspect.preference is not None:
        first = _LABEL_COLOURS[0]
        second = _LABEL_COLOURS[1]
        return [first, _MIDDLE_COLOUR, second, _MIDDLE_COLOUR]
    if aspect.boolean:
        return [_MIDDLE_COLOUR, ORDERED_COLOURS[-1]]
    count = len(aspect.values)
    if aspect_kind(aspect) == "labels":
        return [_LABEL_COLOURS[index % len(_LABEL_COLOURS)] for index in range(count)]
    return [share_colour(index / (count - 1)) for index in range(count)]


def deciding_score(rubric: Rubric) -> str | None:
    """Return the name of the score that decides which response is better; None if no aspect is ordered."""
    columns = deciding(rubric.row_columns)
    if not columns:
        return None
    if len(columns) == 1:
        return columns[0].name
    return OVERALL


def share_colour(share: float) -> str:
    """Return the colour at a share of the way from the first ordered colour, 0, to the last, 1."""
    last = len(ORDERED_COLOURS) - 1
    lower = min(int(share * last), last - 1)
    weight = share * last - lower
    lower_channels = _channels(ORDERED_COLOURS[lower])
    upper_channels = _channels(ORDERED_COLOURS[lower + 1])
    colour = "#"
    for low, high in zip(lower_channels, upper_channels, strict=True):
        channel = round(low * (1 - weight) + high * weight)
        colour += f"{channel:02x}"
    return colour


def _channels(colour: str) -> list[int]:
    """Return red, green and blue of a colour, 0 to 255."""
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
