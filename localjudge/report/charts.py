"""The charts of the rows: Vega-Lite specifications with aggregated data.

Text and lines have the colour of the page (`currentColor`), so that the same chart works on a light page, a
dark page and in print. A datum with `series`, `aspect` and `score`, or with `row`, can be clicked: the page
then shows the judgements behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from localjudge.arrays import Floats
from localjudge.report.listed_rows import ListedRows
from localjudge.report.shown_values import (
    decides,
    mean_is_share,
    value_colours,
    value_texts,
)
from localjudge.rubrics.score_column import deciding

SERIES_COLOURS = (
    "#3b7ea1", "#d1743f", "#5a9367", "#a6588f", "#c2a03a", "#6a6fb3", "#8a6d56", "#4aa0a0",
    "#b8506a", "#7d8f3c", "#5f7f9e", "#c68a6a", "#8f7bb8", "#6b9f7f", "#a08a7a", "#7a7f87",
)  # fmt: skip
MOST_POINTS = 1500
_LONGEST_LABEL = 19
"""Number of characters of a system's name that an axis shows."""

_ACTIVE = [{"name": "active", "value": -1}]
"""Name of the chart parameter with the index of the series selected in the page's legend; -1 if none is."""
_CLICKABLE = {"cursor": "pointer"}

Spec = dict[str, Any]


def series_colour(index: int) -> str:
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def distribution(listed: ListedRows, name: str) -> Spec:
    """Return the chart of the share of each score of an aspect: one stacked bar for each system."""
    columns, aspect = listed.columns, listed.rubric.aspects[name]
    place = [*listed.rubric.aspects].index(name)
    texts, colours = value_texts(aspect), value_colours(aspect)
    values: list[Spec] = []
    for series in _series(listed):
        own = columns.scored_series == series["series"]
        scores = columns.scores[place, own & (columns.scores[place] >= 0)]
        for score, count in zip(*np.unique(scores, return_counts=True), strict=True):
            value = {"aspect": place, "score": int(score), "text": texts[score], "colour": colours[score]}
            values.append(series | value | {"n": int(count), "share": round(int(count) / len(scores), 4)})
    tips = {"system": "label", "score": "text", "judgements": "n", "share": ("share", ".0%")}
    axis = {"format": "%", "tickCount": 3}
    x = {"field": "share", "type": "quantitative", "stack": "zero", "title": None, "axis": axis}
    encoding = {
        "y": {"field": "short", "type": "nominal", "title": None, "sort": None},
        "x": x | {"scale": {"domain": [0, 1]}},
        "order": {"field": "score"},
        "color": {"field": "colour", "type": "nominal", "scale": None, "legend": None},
        "tooltip": _tooltip(tips),
        "opacity": _opacity(1),
    }
    return {
        "description": f"Share of each score of {name} for each system",
        "height": 20 * len({each["series"] for each in values}),
        "data": {"values": values},
        "params": _ACTIVE,
        "mark": {"type": "bar", "stroke": "transparent", "strokeWidth": 0.5, **_CLICKABLE},
        "encoding": encoding,
    }


def length_against_score(listed: ListedRows) -> Spec:
    """Return the chart of the number that decides against the length of the response.

    That is a score, such as the overall one. Of a pair, it is the probability that a, the first response, is
    better against the ratio of the lengths of both.
    """
    columns = listed.columns
    lengths = np.maximum(columns.length, 0).astype(np.float64)
    values = np.where((columns.length >= 0).all(axis=0), columns.overall, np.nan)
    if len(lengths) > 1:
        first, second = lengths

        def of_pair(row: int) -> Spec:
            systems = " vs ".join(listed.series[index] for index in columns.series[:, row])
            return {"pair": systems, "a": int(first[row]), "b": int(second[row])}

        better = "probability that a is better"
        tips = {"pair": "pair", better: ("y", ".2f"), "characters of a": "a", "characters of b": "b"}
        encoding = {"color": {"value": series_colour(0)}, "opacity": {"value": 0.55}, "tooltip": _tooltip(tips)}
        x = {"title": "characters of a / characters of b", "axis": {"grid": False}}
        y: Spec = {"title": better, "scale": {"domain": [0, 1]}, "axis": {}}
        spec = _length_chart((first + 1) / (second + 1), values, of_pair, x, y, encoding)
        return spec | {
            "description": "Probability that a, the first response, is better against the ratio of the lengths"
        }

    def of_row(row: int) -> Spec:
        series = int(columns.series[0, row])
        return {"series": series, "label": listed.series[series], "length": max(1, int(lengths[0, row]))}

    decider = deciding(listed.rubric.row_columns)[0]
    lowest = min(decider.lowest, np.nanmin(columns.overall))  # a row with criteria can be below the scale
    form = {"format": "%"} if mean_is_share(decider) else {}
    tips = {"system": "label", "characters": "length", "mean": ("y", ".0%" if form else ".2f")}
    encoding = {"color": _series_colours(listed), "opacity": _opacity(0.55), "tooltip": _tooltip(tips)}
    x = {"title": "characters of the candidate", "axis": {"format": "~s"}}
    scale = {"domain": (lowest, decider.highest), "nice": False}
    y = {"title": decides(listed.rubric), "scale": scale, "axis": form}
    spec = _length_chart(np.maximum(lengths[0], 1), values, of_row, x, y, encoding)
    return spec | {"description": "Overall score against the candidate's length", "params": _ACTIVE}


def _length_chart(
    lengths: Floats, values: Floats, of_point: Callable[[int], Spec], x: Spec, y: Spec, encoding: Spec
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
    parts = np.array_split(by_length, min(12, max(2, len(by_length) // 10)))
    means = [(np.median(lengths[part]), values[part].mean(), len(part)) for part in parts if len(part)]
    trend = [{"x": round(float(at), 4), "y": round(float(mean), 3), "n": n} for at, mean, n in means]
    log = {"type": "log", "nice": False}
    axes = {
        "x": {"field": "x", "type": "quantitative", "scale": log, **x},
        "y": {"field": "y", "type": "quantitative", **y},
    }
    axes["x"]["axis"] = {"tickCount": 5, "labelOverlap": True, **x["axis"]}
    axes["y"]["axis"] = {"tickCount": 5, **y["axis"]}
    circle = {"type": "circle", "size": 22, **_CLICKABLE}
    line = {"type": "line", "color": "currentColor", "strokeWidth": 2}
    return {
        "height": 300,
        "layer": [
            {"data": {"values": points}, "mark": circle, "encoding": {**axes, **encoding}},
            {"data": {"values": trend}, "mark": line, "encoding": axes},
        ],
    }


def _series(listed: ListedRows) -> list[Spec]:
    """Return the fields of a datum that name its system, for each system."""
    short = short_labels(listed.series)
    return [{"series": n, "label": label, "short": short[n]} for n, label in enumerate(listed.series)]


def short_labels(labels: Sequence[str]) -> list[str]:
    """Return what an axis shows of these labels: long ones without their middle, where they stay unique."""
    begin, end = _LONGEST_LABEL // 3, _LONGEST_LABEL * 2 // 3
    short = [each if len(each) <= _LONGEST_LABEL else f"{each[:begin]}…{each[-end:]}" for each in labels]
    return [one if short.count(one) == 1 else whole for one, whole in zip(short, labels, strict=True)]


def _series_colours(listed: ListedRows) -> Spec:
    indices = [*range(len(listed.series))]
    colours = {"domain": indices, "range": [*map(series_colour, indices)]}
    return {"field": "series", "type": "ordinal", "legend": None, "scale": colours}


def _opacity(usual: float) -> Spec:
    """Return the opacity of a datum with `series`: faint if another system is selected in the legend."""
    return {"condition": {"test": "active < 0 || active === datum.series", "value": usual}, "value": 0.2}


def _tooltip(fields: Mapping[str, Any]) -> list[Spec]:
    """Return what is shown of a datum: by its title, the name of a field, or the name and its format."""
    return [
        {"field": field[0], "title": title, "type": "quantitative", "format": field[1]}
        if isinstance(field, tuple)
        else {"field": field, "title": title, "type": "nominal"}
        for title, field in fields.items()
    ]
