"""The charts of the judge's confidence: the probability of its scores, over all systems."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from localjudge.report.charts import COLOUR, Spec, shares_axis, tooltip
from localjudge.report.listed_rows import ListedRows
from localjudge.report.shown_values import ORDERED_COLOURS, value_colours, value_texts

_CONFIDENCE_LEVELS = (0.5, 0.7, 0.9, 0.99)
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_STEPS = 15
"""Number of scores above which a chart draws each in less than the usual height."""


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
    values = []
    for score in np.unique(scores[~np.isnan(expected)]):
        among = expected[(scores == score) & ~np.isnan(expected)]
        p5, p25, p50, p75, p95 = (round(float(each), 3) for each in np.quantile(among, _QUANTILES))
        values.append(
            {
                "score": int(score), "text": texts[score], "colour": colours[score], "aspect": place,
                "n": len(among), "p5": p5, "p25": p25, "p50": p50, "p75": p75, "p95": p95,
            }
        )  # fmt: skip
    x = {
        "type": "quantitative",
        "scale": {"domain": [numbers[0], numbers[-1]], "nice": False, "zero": False},
        "title": "expected",
        "axis": {"tickMinStep": 1, "tickCount": 5},
    }
    y = {
        "field": "text",
        "type": "ordinal",
        "title": "given",
        "sort": [each["text"] for each in reversed(values)],
        "axis": {"labelOverlap": True},
    }
    shown = tooltip(
        given="text", judgements="n", median=("p50", ".2f"), from_5=("p5", ".2f"), to_95=("p95", ".2f")
    )
    clickable = {"cursor": "pointer"}
    step = 20 if len(values) <= _MOST_STEPS else 20 * _MOST_STEPS / len(values)
    return {
        "description": f"Expected scores of {name} for each score",
        "height": step * len(values),
        "data": {"values": values},
        "encoding": {"y": y, "tooltip": shown},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5, **clickable},
                "encoding": {"x": {"field": "p5", **x}, "x2": {"field": "p95"}, "color": COLOUR},
            },
            {
                "mark": {"type": "bar", "height": 0.45 * step, **clickable},
                "encoding": {"x": {"field": "p25", **x}, "x2": {"field": "p75"}, "color": COLOUR},
            },
            {
                "mark": {
                    "type": "tick",
                    "color": "currentColor",
                    "thickness": 2,
                    "size": 0.65 * step,
                    **clickable,
                },
                "encoding": {"x": {"field": "p50", **x}},
            },
        ],
    }


def confidence(listed: ListedRows) -> Spec:
    """Return the chart of the judge's confidence: the probability that it gave to the chosen score."""
    known = listed.columns.confidence
    names = [f"below {_CONFIDENCE_LEVELS[0]:.0%}"]
    names += [f"{low:.0%} to {high:.0%}" for low, high in pairwise(_CONFIDENCE_LEVELS)]
    names += [f"{_CONFIDENCE_LEVELS[-1]:.0%} or more"]
    values = []
    names_of_aspects = [*listed.rubric.aspects]
    for place, aspect in enumerate(names_of_aspects):
        confidence = known[place][~np.isnan(known[place])]
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
            "x": shares_axis(ticks=5),
            "order": {"field": "rank"},
            "color": {
                "field": "class",
                "type": "ordinal",
                "sort": names,
                "scale": {"domain": names, "range": list(ORDERED_COLOURS)},
                "legend": {"title": None, "orient": "bottom", "columns": 3},
            },
            "tooltip": tooltip(aspect="aspect", probability="class", judgements="n", share=("share", ".1%")),
        },
    }
