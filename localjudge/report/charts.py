"""The charts of the rows: Vega-Lite specifications with aggregated data.

Text and lines have the colour of the page (`currentColor`), so that the same chart works on a light page, a
dark page and in print. A datum with `series`, `aspect` and `score`, or with `row`, can be clicked: the page
then shows the judgements behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
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
from localjudge.rubrics.score_column import ScoreColumn, deciding
from localjudge.statistics import UNDEFINED, Estimate

SERIES_COLOURS = (
    "#3b7ea1", "#d1743f", "#5a9367", "#a6588f", "#c2a03a", "#6a6fb3", "#8a6d56", "#4aa0a0",
    "#b8506a", "#7d8f3c", "#5f7f9e", "#c68a6a", "#8f7bb8", "#6b9f7f", "#a08a7a", "#7a7f87",
)  # fmt: skip
MOST_POINTS = 1500
_LONGEST_LABEL = 19
"""Number of characters of a system's name that an axis shows."""
_CONFIDENCE_LEVELS = (0.5, 0.7, 0.9, 0.99)
_CONFIDENCE_COLOURS = ["#d8d2e3", "#b5abcb", "#9185b1", "#6f6196", "#4d3f78"]
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_STEPS = 15
"""Number of scores above which a chart draws each in less than the usual height."""

_ACTIVE = [{"name": "active", "value": -1}]
"""Name of the chart parameter with the index of the series selected in the page's legend; -1 if none is."""
_COLOUR = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
_LABELS = {"field": "short", "type": "nominal", "title": None, "sort": None}
_CLICKABLE = {"cursor": "pointer"}

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
    values: list[Spec] = []
    for series in _series(listed):
        mean = found.get(series["label"], UNDEFINED)
        if mean.value is not None:
            low, high = (round(mean.value if end is None else end, 3) for end in (mean.low, mean.high))
            shown = {"mean": round(mean.value, 3), "low": low, "high": high}
            values.append(series | shown | {"interval": mean.ends(" to ") or "none"})
    step = (column.highest - column.lowest) / 8
    below, above = min(each["low"] for each in values), max(each["high"] for each in values)
    ends = [
        column.lowest + step * math.floor((below - column.lowest) / step),
        column.highest - step * math.floor((column.highest - above) / step),
    ]
    share = mean_is_share(column)
    name, form = ("share", ".0%") if share else ("mean", ".2f")
    axis = {"tickCount": 4, "format": "%"} if share else {"tickCount": 4}
    x = _quantity(None, ends, axis)
    tips = {"system": "label", name: ("mean", form), "interval": "interval"}
    colours = _series_colours(listed)
    mark = {"type": "point", "size": 55, "strokeWidth": 2, "opacity": 1}
    fill = colours | {"condition": {"test": "datum.interval === 'none'", "value": "transparent"}}
    return {
        "description": f"{name.capitalize()} of {column.name} for each system with its interval",
        "height": 20 * len(values),
        "data": {"values": values},
        "params": _ACTIVE,
        "encoding": {
            "y": _LABELS,
            "color": colours,
            "opacity": _opacity(1),
            "tooltip": _tooltip(tips),
        },
        "layer": [
            _span({"type": "rule", "strokeWidth": 2}, "low", "high", x),
            {"mark": mark, "encoding": {"x": {"field": "mean", **x}, "fill": fill}},
        ],
    }


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
    chart = _stacked(values, 20 * len({each["series"] for each in values}), 3, _LABELS, "score", _COLOUR, tips)
    mark = {"type": "bar", "stroke": "transparent", "strokeWidth": 0.5, **_CLICKABLE}
    return {
        **chart,
        "description": f"Share of each score of {name} for each system",
        "params": _ACTIVE,
        "mark": mark,
        "encoding": {**chart["encoding"], "opacity": _opacity(1)},
    }


def expected_against_score(listed: ListedRows, name: str) -> Spec | None:
    """Return the chart of expected scores for each score of an aspect: the middle 50 % and 90 %.

    None if no expected score is known, or if the aspect is a boolean, whose expected score is a probability.
    """
    columns, aspect = listed.columns, listed.rubric.aspects[name]
    place = [*listed.rubric.aspects].index(name)
    scores, expected = columns.scores[place], columns.expected[place]
    if aspect.boolean or aspect.numbers is None or np.isnan(expected).all():
        return None
    texts, colours, numbers = value_texts(aspect), value_colours(aspect), [*aspect.numbers.values()]
    values: list[Spec] = []
    for score in np.unique(scores[~np.isnan(expected)]):
        among = expected[(scores == score) & ~np.isnan(expected)]
        value = {"score": int(score), "text": texts[score], "colour": colours[score], "aspect": place}
        found = zip(("p5", "p25", "p50", "p75", "p95"), np.quantile(among, _QUANTILES).tolist(), strict=True)
        values.append({**value, "n": len(among), **{quantile: round(end, 3) for quantile, end in found}})
    x = _quantity("expected", [numbers[0], numbers[-1]], {"tickMinStep": 1, "tickCount": 5})
    order = [each["text"] for each in reversed(values)]
    y = {"field": "text", "type": "ordinal", "title": "given", "sort": order, "axis": {"labelOverlap": True}}
    tips = {"given": "text", "judgements": "n", "median": ("p50", ".2f")}
    tips |= {"from 5": ("p5", ".2f"), "to 95": ("p95", ".2f")}
    step = 20 if len(values) <= _MOST_STEPS else 20 * _MOST_STEPS / len(values)
    tick = {"type": "tick", "color": "currentColor", "thickness": 2, "size": 0.65 * step, **_CLICKABLE}
    return {
        "description": f"Expected scores of {name} for each score",
        "height": step * len(values),
        "data": {"values": values},
        "encoding": {"y": y, "tooltip": _tooltip(tips)},
        "layer": [
            _span({"type": "rule", "strokeWidth": 1.5, **_CLICKABLE}, "p5", "p95", x, _COLOUR),
            _span({"type": "bar", "height": 0.45 * step, **_CLICKABLE}, "p25", "p75", x, _COLOUR),
            {"mark": tick, "encoding": {"x": {"field": "p50", **x}}},
        ],
    }


def confidence(listed: ListedRows) -> Spec:
    """Return the chart of the judge's confidence: the probability that it gave to the chosen score."""
    levels = [f"{low:.0%} to {high:.0%}" for low, high in pairwise(_CONFIDENCE_LEVELS)]
    levels = [f"below {_CONFIDENCE_LEVELS[0]:.0%}", *levels, f"{_CONFIDENCE_LEVELS[-1]:.0%} or more"]
    values, aspects = list[Spec](), [*listed.rubric.aspects]
    for aspect, shares in zip(aspects, listed.columns.confidence, strict=True):
        known = shares[~np.isnan(shares)]
        classes = np.searchsorted(_CONFIDENCE_LEVELS, known, side="right")
        for rank, count in zip(*np.unique(classes, return_counts=True), strict=True):
            value = {"aspect": aspect, "rank": int(rank), "class": levels[rank], "n": int(count)}
            values.append(value | {"share": round(int(count) / len(known), 4)})
    tips = {"aspect": "aspect", "probability": "class", "judgements": "n", "share": ("share", ".1%")}
    y = {"field": "aspect", "type": "nominal", "title": None, "sort": aspects}
    scale = {"domain": levels, "range": _CONFIDENCE_COLOURS}
    legend = {"title": None, "orient": "bottom", "columns": 3}
    colour = {"field": "class", "type": "ordinal", "sort": levels, "scale": scale, "legend": legend}
    chart = _stacked(values, 24 * len({each["aspect"] for each in values}), 5, y, "rank", colour, tips)
    return chart | {"description": "Confidence of the judge in its scores, for each aspect"}


def length_against_score(listed: ListedRows) -> Spec:
    """Return the chart of the number that decides against the length of the response.

    That is a score, such as the overall one. Of a pair, it is the preference for the first response against the
    ratio of the lengths of both.
    """
    columns = listed.columns
    lengths = np.maximum(columns.length, 0).astype(np.float64)
    values = np.where((columns.length >= 0).all(axis=0), columns.overall, np.nan)
    if len(lengths) > 1:
        first, second = lengths

        def of_pair(row: int) -> Spec:
            systems = " vs ".join(listed.series[index] for index in columns.series[:, row])
            return {"pair": systems, "a": int(first[row]), "b": int(second[row])}

        tips = {"pair": "pair", "preference": ("y", ".2f"), "characters of a": "a", "characters of b": "b"}
        encoding = {"color": {"value": series_colour(0)}, "opacity": {"value": 0.55}, "tooltip": _tooltip(tips)}
        x = {"title": "characters of a / characters of b", "axis": {"grid": False}}
        y: Spec = {"title": "probability that a is better", "scale": {"domain": [0, 1]}, "axis": {}}
        spec = _length_chart((first + 1) / (second + 1), values, of_pair, x, y, encoding)
        return spec | {"description": "Preference for the first response against the ratio of the lengths"}

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


def _stacked(
    values: list[Spec], height: int, ticks: int, y: Spec, order: str, colour: Spec, tips: Mapping[str, Any]
) -> Spec:
    """Return a chart of shares that are stacked to 100 %, a bar for each place on the axis `y`."""
    axis = {"format": "%", "tickCount": ticks}
    x = {"field": "share", "type": "quantitative", "stack": "zero", "title": None, "axis": axis}
    x |= {"scale": {"domain": [0, 1]}}
    encoding = {"y": y, "x": x, "order": {"field": order}, "color": colour, "tooltip": _tooltip(tips)}
    return {"height": height, "data": {"values": values}, "mark": {"type": "bar"}, "encoding": encoding}


def _span(mark: Spec, begin: str, end: str, x: Spec, colour: Spec | None = None) -> Spec:
    """Return a layer that marks the axis `x` from one field to another."""
    encoding = {"x": {"field": begin, **x}, "x2": {"field": end}} | ({"color": colour} if colour else {})
    return {"mark": mark, "encoding": encoding}


def _quantity(title: str | None, ends: Sequence[float], axis: Spec) -> Spec:
    """Return an axis of numbers with these ends."""
    scale = {"domain": ends, "nice": False, "zero": False}
    return {"type": "quantitative", "title": title, "scale": scale, "axis": axis}


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
