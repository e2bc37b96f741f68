"""The charts of a report: Vega-Lite specifications with aggregated data.

Text and lines have the colour of the page (`currentColor`), so that the same chart works on a light page, a
dark page and in print. A datum with `series`, `aspect` and `score`, or with `row`, can be clicked: the page
then shows the judgements behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from localjudge.analysis.interval import UNDEFINED, Estimate
from localjudge.report.judgements import NO_SCORE, Judgements

SERIES_COLOURS = (
    "#3b7ea1", "#d1743f", "#5a9367", "#a6588f", "#c2a03a", "#6a6fb3", "#8a6d56", "#4aa0a0",
)  # fmt: skip
SCORE_COLOURS = ("#b5533c", "#dd9b6b", "#b9b4a6", "#78a5b8", "#2f6f95")
"""Colours from the lowest score to the highest, interpolated between them."""
MOST_POINTS = 1500
_CONFIDENCE_LEVELS = (0.5, 0.7, 0.9, 0.99)
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

_ACTIVE = [{"name": "active", "value": -1}]
"""Name of the chart parameter with the index of the series selected in the page's legend; -1 if none is."""
_LABELS = {"field": "label", "type": "nominal", "title": None, "sort": None}

Spec = dict[str, Any]


def series_colour(index: int) -> str:
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def means(judgements: Judgements, aspect: int, found: Mapping[str, Estimate]) -> Spec:
    """Return the chart of each system's mean of one aspect, with its interval.

    The axis ends at eighths of the scale around the intervals, so that close means stay distinct.

    Args:
        found: the mean for each series' label.
    """
    scale = judgements.rubric.score_columns[aspect]
    values, lows, highs = [], [], []
    for index, series in enumerate(judgements.series):
        mean = found.get(series.label, UNDEFINED)
        if mean.value is not None:
            lows.append(round(mean.value if mean.low is None else mean.low, 3))
            highs.append(round(mean.value if mean.high is None else mean.high, 3))
            own = {"mean": round(mean.value, 3), "low": lows[-1], "high": highs[-1]}
            values.append({"series": index, "label": series.label, **own})
    step = (scale.highest - scale.lowest) / 8
    ends = [
        scale.lowest + step * math.floor((min(lows) - scale.lowest) / step),
        scale.highest - step * math.floor((scale.highest - max(highs)) / step),
    ]
    x = {
        "type": "quantitative",
        "title": None,
        "scale": {"domain": ends, "nice": False, "zero": False},
        "axis": {"tickCount": 4},
    }
    return {
        "description": f"Mean {scale.name} score of each system with its interval",
        "height": 20 * len(values),
        "data": {"values": values},
        "params": _ACTIVE,
        "encoding": {
            "y": _LABELS,
            "color": _series_colours(judgements),
            "opacity": _opacity(1),
            "tooltip": _tooltip(system="label", mean=("mean", ".2f"), from_=("low", ".2f"), to=("high", ".2f")),
        },
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}},
            },
            {"mark": {"type": "circle", "size": 60, "opacity": 1}, "encoding": {"x": {"field": "mean", **x}}},
        ],
    }


def distribution(judgements: Judgements, aspect: int) -> Spec:
    """Return the chart of score shares per system for one aspect."""
    columns, scale = judgements.columns, judgements.rubric.score_columns[aspect]
    values = []
    for index, series in enumerate(judgements.series):
        scores = columns.scores[aspect, (columns.series == index) & (columns.scores[aspect] != NO_SCORE)]
        for score, count in zip(*np.unique(scores, return_counts=True), strict=True):
            values.append(
                {
                    "series": index,
                    "label": series.label,
                    "aspect": aspect,
                    "score": int(score),
                    "n": int(count),
                    "share": round(int(count) / len(scores), 4),
                }
            )
    return {
        "description": f"Share of each {judgements.rubric.score_columns[aspect].name} score for each system",
        "height": 20 * len({each["series"] for each in values}),
        "data": {"values": values},
        "params": _ACTIVE,
        "mark": {"type": "bar", "cursor": "pointer", "stroke": "transparent", "strokeWidth": 0.5},
        "encoding": {
            "y": _LABELS,
            "x": _shares(ticks=3),
            "opacity": _opacity(1),
            "order": {"field": "score"},
            "color": {"field": "score", "type": "quantitative", "scale": _score_scale(scale), "legend": None},
            "tooltip": _tooltip(system="label", score="score", judgements="n", share=("share", ".0%")),
        },
    }


def expected_against_integer(judgements: Judgements, aspect: int) -> Spec:
    """Return the chart of expected scores for each integer score: the middle 50 % and 90 %."""
    columns, scale = judgements.columns, judgements.rubric.score_columns[aspect]
    scores, expected = columns.scores[aspect], columns.expected[aspect]
    values = []
    for score in np.unique(scores[(scores != NO_SCORE) & ~np.isnan(expected)]):
        among = expected[(scores == score) & ~np.isnan(expected)]
        p5, p25, p50, p75, p95 = (round(float(each), 3) for each in np.quantile(among, _QUANTILES))
        values.append(
            {
                "score": int(score), "aspect": aspect, "n": len(among),
                "p5": p5, "p25": p25, "p50": p50, "p75": p75, "p95": p95,
            }
        )  # fmt: skip
    x = {
        "type": "quantitative",
        "scale": {"domain": [scale.lowest, scale.highest], "nice": False, "zero": False},
        "title": "expected",
        "axis": {"tickMinStep": 1, "tickCount": 5},
    }
    y = {"field": "score", "type": "ordinal", "title": "given", "sort": "descending"}
    colour = {"field": "score", "type": "quantitative", "scale": _score_scale(scale), "legend": None}
    tooltip = _tooltip(
        given="score", judgements="n", median=("p50", ".2f"), from_5=("p5", ".2f"), to_95=("p95", ".2f")
    )
    clickable = {"cursor": "pointer"}
    return {
        "description": f"Expected {judgements.rubric.score_columns[aspect].name} scores for each integer score",
        "height": 20 * len(values),
        "data": {"values": values},
        "encoding": {"y": y, "tooltip": tooltip},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5, **clickable},
                "encoding": {"x": {"field": "p5", **x}, "x2": {"field": "p95"}, "color": colour},
            },
            {
                "mark": {"type": "bar", "height": 9, "minBandSize": 3, **clickable},
                "encoding": {"x": {"field": "p25", **x}, "x2": {"field": "p75"}, "color": colour},
            },
            {
                "mark": {"type": "tick", "color": "currentColor", "thickness": 2, "size": 13, **clickable},
                "encoding": {"x": {"field": "p50", **x}},
            },
        ],
    }


def confidence(judgements: Judgements) -> Spec:
    """Return the chart of the judge's confidence: the probability that it gave to the chosen score."""
    names = [f"below {_CONFIDENCE_LEVELS[0]:.0%}"]
    names += [f"{low:.0%} to {high:.0%}" for low, high in pairwise(_CONFIDENCE_LEVELS)]
    names += [f"{_CONFIDENCE_LEVELS[-1]:.0%} or more"]
    values = []
    names_of_aspects = [column.name for column in judgements.rubric.score_columns]
    for place, aspect in enumerate(names_of_aspects):
        confidence = judgements.columns.confidence[place]
        confidence = confidence[~np.isnan(confidence)]
        classes = np.searchsorted(_CONFIDENCE_LEVELS, confidence, side="right")
        for rank, name in enumerate(names):
            count = int((classes == rank).sum())
            if count:
                values.append(
                    {
                        "aspect": aspect, "rank": rank, "class": name, "n": count,
                        "share": round(count / len(confidence), 4),
                    }
                )  # fmt: skip
    return {
        "description": "Confidence of the judge in its scores, for each aspect",
        "height": 24 * len({each["aspect"] for each in values}),
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "aspect", "type": "nominal", "title": None, "sort": names_of_aspects},
            "x": _shares(ticks=5),
            "order": {"field": "rank"},
            "color": {
                "field": "class",
                "type": "ordinal",
                "sort": names,
                "scale": {"domain": names, "range": list(SCORE_COLOURS)},
                "legend": {"title": None, "orient": "bottom", "columns": 3},
            },
            "tooltip": _tooltip(aspect="aspect", probability="class", judgements="n", share=("share", ".1%")),
        },
    }


def length_against_score(judgements: Judgements) -> Spec:
    """Return the chart of overall score against candidate length.

    The points are a sample of the judgements. The line is the mean of all judgements, in up to twelve groups by
    length.
    """
    columns, ends = judgements.columns, judgements.rubric.score_columns
    overall = columns.overall
    known = np.flatnonzero((columns.length >= 0) & ~np.isnan(overall))
    chosen = np.sort(np.random.default_rng(0).permutation(known)[:MOST_POINTS])
    points = [
        {
            "row": int(row),
            "series": int(columns.series[row]),
            "label": judgements.series[columns.series[row]].label,
            "length": max(1, int(columns.length[row])),
            "overall": round(float(overall[row]), 3),
        }
        for row in chosen
    ]
    by_length = known[np.argsort(columns.length[known], kind="stable")]
    bins = np.array_split(by_length, max(1, min(12, len(by_length) // 10))) if len(by_length) else []
    trend = [
        {
            "length": max(1, round(float(np.median(columns.length[part])))),
            "overall": round(float(overall[part].mean()), 3),
            "n": len(part),
        }
        for part in bins
    ]
    x = {
        "field": "length",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False},
        "title": "characters of the candidate",
        "axis": {"tickCount": 5, "format": "~s", "labelOverlap": True},
    }
    y = {
        "field": "overall",
        "type": "quantitative",
        "title": "mean over the aspects",
        "scale": {
            "domain": [min(each.lowest for each in ends), max(each.highest for each in ends)],
            "nice": False,
        },
        "axis": {"tickCount": 5},
    }
    return {
        "description": "Overall score against the candidate's length",
        "height": 300,
        "params": _ACTIVE,
        "layer": [
            {
                "data": {"values": points},
                "mark": {"type": "circle", "size": 22, "cursor": "pointer"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _series_colours(judgements),
                    "opacity": _opacity(0.55),
                    "tooltip": _tooltip(system="label", characters="length", mean=("overall", ".2f")),
                },
            },
            {
                "data": {"values": trend},
                "mark": {"type": "line", "color": "currentColor", "strokeWidth": 2, "point": False},
                "encoding": {"x": x, "y": y},
            },
        ],
    }


def _shares(ticks: int) -> Spec:
    """Return an axis of shares that are stacked to 100 %."""
    return {
        "field": "share",
        "type": "quantitative",
        "stack": "zero",
        "title": None,
        "scale": {"domain": [0, 1]},
        "axis": {"format": "%", "tickCount": ticks},
    }


def _series_colours(judgements: Judgements) -> Spec:
    indices = range(len(judgements.series))
    colours = {"domain": list(indices), "range": [series_colour(index) for index in indices]}
    return {"field": "series", "type": "ordinal", "legend": None, "scale": colours}


def _opacity(usual: float) -> Spec:
    """Return the opacity of a datum with `series`: faint if another system is selected in the legend."""
    return {"condition": {"test": "active < 0 || active === datum.series", "value": usual}, "value": 0.2}


def _score_scale(scale: Any) -> Spec:
    domain = np.linspace(scale.lowest, scale.highest, len(SCORE_COLOURS))
    return {"type": "linear", "domain": [float(each) for each in domain], "range": list(SCORE_COLOURS)}


def _tooltip(**fields: str | tuple[str, str]) -> list[Spec]:
    tips = []
    for title, field in fields.items():
        name, form = field if isinstance(field, tuple) else (field, None)
        tip: Spec = {"field": name, "title": title.replace("_", " ").strip()}
        tips.append(tip | {"type": "quantitative", "format": form} if form else tip | {"type": "nominal"})
    return tips
