"""The charts of the systems: Vega-Lite specifications with aggregated data.

Text and lines have the colour of the page (`currentColor`), so that the same chart works on a light page, a
dark page and in print. A datum with `series`, `aspect` and `score`, or with `row`, can be clicked: the page
then shows the judgements behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from localjudge.arrays import Floats
from localjudge.report.listed_rows import ListedRows
from localjudge.report.shown_values import decides, mean_is_share, value_colours, value_texts
from localjudge.rubrics.score_column import ScoreColumn, deciding
from localjudge.statistics import UNDEFINED, Estimate

SERIES_COLOURS = (
    "#3b7ea1", "#d1743f", "#5a9367", "#a6588f", "#c2a03a", "#6a6fb3", "#8a6d56", "#4aa0a0",
    "#b8506a", "#7d8f3c", "#5f7f9e", "#c68a6a", "#8f7bb8", "#6b9f7f", "#a08a7a", "#7a7f87",
)  # fmt: skip
MOST_POINTS = 1500
_LONGEST_LABEL = 19
"""Number of characters of a system's name that an axis shows."""

_ACTIVE = [{"name": "active", "value": -1}]
"""Name of the chart parameter with the index of the series selected in the page's legend; -1 if none is."""
COLOUR = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
_LABELS = {"field": "short", "type": "nominal", "title": None, "sort": None}

Spec = dict[str, Any]


def series_colour(index: int) -> str:
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def means(listed: ListedRows, column: ScoreColumn, found: Mapping[str, Estimate]) -> Spec:
    """Return the chart of each system's mean of a column, with its interval.

    The axis ends at eighths of the scale around the intervals, so that close means stay distinct.

    Args:
        column: an aspect, or the share of a label.
        found: the mean for each series' label.
    """
    values, lows, highs, short = [], [], [], short_labels(listed.series)
    for index, label in enumerate(listed.series):
        mean = found.get(label, UNDEFINED)
        if mean.value is not None:
            lows.append(round(mean.value if mean.low is None else mean.low, 3))
            highs.append(round(mean.value if mean.high is None else mean.high, 3))
            own = {"mean": round(mean.value, 3), "low": lows[-1], "high": highs[-1]}
            values.append({"series": index, "label": label, "short": short[index], **own})
    step = (column.highest - column.lowest) / 8
    ends = [
        column.lowest + step * math.floor((min(lows) - column.lowest) / step),
        column.highest - step * math.floor((column.highest - max(highs)) / step),
    ]
    share = mean_is_share(column)
    form, axis = (".0%", {"tickCount": 4, "format": "%"}) if share else (".2f", {"tickCount": 4})
    x = {
        "type": "quantitative",
        "title": None,
        "scale": {"domain": ends, "nice": False, "zero": False},
        "axis": axis,
    }
    return {
        "description": f"{'Share' if share else 'Mean'} of {column.name} for each system with its interval",
        "height": 20 * len(values),
        "data": {"values": values},
        "params": _ACTIVE,
        "encoding": {
            "y": _LABELS,
            "color": _series_colours(listed),
            "opacity": _opacity(1),
            "tooltip": tooltip(
                system="label",
                **{"share" if share else "mean": ("mean", form)},
                from_=("low", form),
                to=("high", form),
            ),
        },
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}},
            },
            {"mark": {"type": "circle", "size": 60, "opacity": 1}, "encoding": {"x": {"field": "mean", **x}}},
        ],
    }


def distribution(listed: ListedRows, name: str) -> Spec:
    """Return the chart of the share of each score of an aspect: one stacked bar for each system."""
    columns, aspect = listed.columns, listed.rubric.aspects[name]
    place = [*listed.rubric.aspects].index(name)
    texts, colours, short = (
        value_texts(aspect),
        value_colours(aspect),
        short_labels(listed.series),
    )
    values = []
    for index, label in enumerate(listed.series):
        scores = columns.scores[place, (columns.scored_series == index) & (columns.scores[place] >= 0)]
        for score, count in zip(*np.unique(scores, return_counts=True), strict=True):
            values.append(
                {
                    "series": index,
                    "label": label,
                    "short": short[index],
                    "aspect": place,
                    "score": int(score),
                    "text": texts[score],
                    "colour": colours[score],
                    "n": int(count),
                    "share": round(int(count) / len(scores), 4),
                }
            )
    return {
        "description": f"Share of each score of {name} for each system",
        "height": 20 * len({each["series"] for each in values}),
        "data": {"values": values},
        "params": _ACTIVE,
        "mark": {"type": "bar", "cursor": "pointer", "stroke": "transparent", "strokeWidth": 0.5},
        "encoding": {
            "y": _LABELS,
            "x": shares_axis(ticks=3),
            "opacity": _opacity(1),
            "order": {"field": "score"},
            "color": COLOUR,
            "tooltip": tooltip(system="label", score="text", judgements="n", share=("share", ".0%")),
        },
    }


def length_against_score(listed: ListedRows) -> Spec:
    """Return the chart of the score that decides, such as the overall one, against the candidate's length."""
    columns, first = listed.columns, deciding(listed.rubric.row_columns)[0]
    lowest = min(first.lowest, np.nanmin(columns.overall))  # that of a row with criteria can be below the scale
    form = {"format": "%"} if mean_is_share(first) else {}
    spec = length_chart(
        np.maximum(columns.length[0], 1).astype(np.float64),
        np.where(columns.length[0] >= 0, columns.overall, np.nan),
        lambda row: {
            "series": int(columns.series[0, row]),
            "label": listed.series[columns.series[0, row]],
            "length": max(1, int(columns.length[0, row])),
        },
        x={"title": "characters of the candidate", "axis": {"format": "~s"}},
        y={
            "title": decides(listed.rubric),
            "scale": {"domain": (lowest, first.highest), "nice": False},
            "axis": form,
        },
        encoding={
            "color": _series_colours(listed),
            "opacity": _opacity(0.55),
            "tooltip": tooltip(system="label", characters="length", mean=("y", ".0%" if form else ".2f")),
        },
    )
    return spec | {"description": "Overall score against the candidate's length", "params": _ACTIVE}


def length_chart(
    lengths: Floats, values: Floats, of_point: Callable[[int], Spec], *, x: Spec, y: Spec, encoding: Spec
) -> Spec:
    """Return a chart of values against lengths.

    The points are a sample of the rows. The line is the mean of all rows, in two to twelve groups by length.

    Args:
        lengths: the length of each row, above 0, (N,).
        values: the value of each row; NaN for a row to leave out, (N,).
        of_point: returns further fields of the point of a row.
        x: additions to the axis of the lengths.
        y: additions to the axis of the values.
        encoding: the encoding of the points besides the axes.
    """
    known = np.flatnonzero(~np.isnan(values))
    chosen = np.sort(np.random.default_rng(0).permutation(known)[:MOST_POINTS])
    points = [
        {"row": row, "x": round(float(lengths[row]), 4), "y": round(float(values[row]), 3), **of_point(row)}
        for row in chosen.tolist()
    ]
    by_length = known[np.argsort(lengths[known], kind="stable")]
    trend = [
        {
            "x": round(float(np.median(lengths[part])), 4),
            "y": round(float(values[part].mean()), 3),
            "n": len(part),
        }
        for part in np.array_split(by_length, min(12, max(2, len(by_length) // 10)))
        if len(part)
    ]
    axes: dict[str, Spec] = {
        "x": {
            "field": "x",
            "type": "quantitative",
            "scale": {"type": "log", "nice": False},
            **x,
            "axis": {"tickCount": 5, "labelOverlap": True, **x["axis"]},
        },
        "y": {"field": "y", "type": "quantitative", **y, "axis": {"tickCount": 5, **y["axis"]}},
    }
    return {
        "height": 300,
        "layer": [
            {
                "data": {"values": points},
                "mark": {"type": "circle", "size": 22, "cursor": "pointer"},
                "encoding": {**axes, **encoding},
            },
            {
                "data": {"values": trend},
                "mark": {"type": "line", "color": "currentColor", "strokeWidth": 2},
                "encoding": axes,
            },
        ],
    }


def short_labels(labels: Sequence[str]) -> list[str]:
    """Return what an axis shows of these labels: long ones without their middle, where they stay unique."""
    begin, end = _LONGEST_LABEL // 3, _LONGEST_LABEL * 2 // 3
    short = [each if len(each) <= _LONGEST_LABEL else f"{each[:begin]}…{each[-end:]}" for each in labels]
    return [one if short.count(one) == 1 else whole for one, whole in zip(short, labels, strict=True)]


def shares_axis(ticks: int) -> Spec:
    """Return an axis of shares that are stacked to 100 %."""
    return {
        "field": "share",
        "type": "quantitative",
        "stack": "zero",
        "title": None,
        "scale": {"domain": [0, 1]},
        "axis": {"format": "%", "tickCount": ticks},
    }


def _series_colours(listed: ListedRows) -> Spec:
    indices = range(len(listed.series))
    colours = {"domain": list(indices), "range": [series_colour(index) for index in indices]}
    return {"field": "series", "type": "ordinal", "legend": None, "scale": colours}


def _opacity(usual: float) -> Spec:
    """Return the opacity of a datum with `series`: faint if another system is selected in the legend."""
    return {"condition": {"test": "active < 0 || active === datum.series", "value": usual}, "value": 0.2}


def tooltip(**fields: str | tuple[str, str]) -> list[Spec]:
    tips = []
    for title, field in fields.items():
        name, form = field if isinstance(field, tuple) else (field, None)
        tip: Spec = {"field": name, "title": title.replace("_", " ").strip()}
        tips.append(tip | {"type": "quantitative", "format": form} if form else tip | {"type": "nominal"})
    return tips
