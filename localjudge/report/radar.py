"""The radar of a report, each system's profile over the aspects: in Vega, as Vega-Lite has none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from localjudge.analysis.interval import Estimate
from localjudge.report.charts import SERIES_COLOURS, Spec, series_colour
from localjudge.report.judgements import Judgements

MOST_IN_RADAR = len(SERIES_COLOURS)
_FONT = "system-ui, sans-serif"


def radar(judgements: Judgements, means: Mapping[str, Mapping[str, Estimate]]) -> Spec:
    """The profile of each system over the aspects . Of very many, the best on the whole.

    Args:
        means: for each series' label, best first, the mean of each aspect.
    """
    scale = judgements.rubric.scale
    aspects = [aspect for aspect in judgements.rubric.aspects if all(aspect in own for own in means.values())]
    index_of = {series.label: index for index, series in enumerate(judgements.series)}
    shown = sorted(index_of[label] for label in list(means)[:MOST_IN_RADAR])
    values = [
        {"series": index, "label": label, "aspect": aspect, "mean": round(value, 3)}
        for index in shown
        for label in [judgements.series[index].label]
        for aspect in aspects
        if (value := means[label][aspect].value) is not None
    ]
    rings = [round(float(value), 3) for value in np.linspace(scale.lowest, scale.highest, 5)]
    reach = "scale('radius', {})"
    point = {
        axis: {"signal": f"{reach.format('datum.mean')} * {turn}(scale('angle', datum.aspect) - PI / 2)"}
        for axis, turn in (("x", "cos"), ("y", "sin"))
    }
    spoke = {
        axis: {"signal": f"radius * {turn}(scale('angle', datum.data) - PI / 2)"}
        for axis, turn in (("x2", "cos"), ("y2", "sin"))
    }
    label = {
        axis: {"signal": f"(radius + 12) * {turn}(scale('angle', datum.data) - PI / 2)"}
        for axis, turn in (("x", "cos"), ("y", "sin"))
    }
    dim = "active < 0 || active === datum.series ? 1 : 0.12"
    return {
        "description": "Mean score of each system on each aspect",
        "autosize": {"type": "none"},
        "padding": 0,
        "signals": [
            {"name": "radius", "update": "max(40, min(width / 2 - 96, height / 2 - 28))"},
            {"name": "active", "value": -1},
        ],
        "data": [
            {"name": "means", "values": values},
            {"name": "aspects", "values": list(aspects)},
            {"name": "rings", "values": rings},
        ],
        "scales": [
            {
                "name": "angle",
                "type": "point",
                "range": {"signal": "[0, 2 * PI]"},
                "padding": 0.5,
                "domain": list(aspects),
            },
            {
                "name": "radius",
                "type": "linear",
                "range": {"signal": "[0, radius]"},
                "zero": False,
                "nice": False,
                "domain": [scale.lowest, scale.highest],
            },
            {
                "name": "colour",
                "type": "ordinal",
                "domain": shown,
                "range": [series_colour(index) for index in shown],
            },
        ],
        "marks": [
            {
                "type": "group",
                "encode": {"update": {"x": {"signal": "width / 2"}, "y": {"signal": "height / 2"}}},
                "marks": [
                    {
                        "type": "arc",
                        "from": {"data": "rings"},
                        "interactive": False,
                        "encode": {
                            "update": {
                                "startAngle": {"value": 0},
                                "endAngle": {"signal": "2 * PI"},
                                "innerRadius": {"signal": reach.format("datum.data")},
                                "outerRadius": {"signal": reach.format("datum.data")},
                                "stroke": {"value": "currentColor"},
                                "strokeOpacity": {"value": 0.18},
                            }
                        },
                    },
                    {
                        "type": "rule",
                        "from": {"data": "aspects"},
                        "encode": {
                            "update": {
                                "x": {"value": 0},
                                "y": {"value": 0},
                                **spoke,
                                "stroke": {"value": "currentColor"},
                                "strokeOpacity": {"value": 0.18},
                            }
                        },
                    },
                    {
                        "type": "group",
                        "from": {"facet": {"name": "one", "data": "means", "groupby": ["series", "label"]}},
                        "marks": [
                            {
                                "type": "line",
                                "from": {"data": "one"},
                                "interactive": False,
                                "encode": {
                                    "update": {
                                        **point,
                                        "interpolate": {"value": "linear-closed"},
                                        "stroke": {"scale": "colour", "field": "series"},
                                        "strokeWidth": {"value": 1.75},
                                        "strokeOpacity": {"signal": dim},
                                        "fill": {"scale": "colour", "field": "series"},
                                        "fillOpacity": {"signal": "active === datum.series ? 0.14 : 0"},
                                    }
                                },
                            },
                            {
                                "type": "symbol",
                                "from": {"data": "one"},
                                "encode": {
                                    "update": {
                                        **point,
                                        "size": {"value": 26},
                                        "fill": {"scale": "colour", "field": "series"},
                                        "opacity": {"signal": dim},
                                        "tooltip": {
                                            "signal": "{system: datum.label, aspect: datum.aspect, "
                                            "mean: format(datum.mean, '.2f')}"
                                        },
                                    }
                                },
                            },
                        ],
                    },
                    {
                        "type": "text",
                        "from": {"data": "rings"},
                        "interactive": False,
                        "encode": {
                            "update": {
                                "y": {"signal": f"-{reach.format('datum.data')}"},
                                "x": {"value": 4},
                                "dy": {"value": 10},
                                "text": {"signal": "format(datum.data, '~r')"},
                                "font": {"value": _FONT},
                                "fontSize": {"value": 10},
                                "fill": {"value": "currentColor"},
                                "fillOpacity": {"value": 0.55},
                            }
                        },
                    },
                    {
                        "type": "text",
                        "from": {"data": "aspects"},
                        "interactive": False,
                        "encode": {
                            "update": {
                                **label,
                                "text": {"field": "data"},
                                "font": {"value": _FONT},
                                "fontSize": {"value": 12},
                                "fill": {"value": "currentColor"},
                                "align": {
                                    "signal": "abs(sin(scale('angle', datum.data))) < 0.1 ? 'center' : "
                                    "sin(scale('angle', datum.data)) > 0 ? 'left' : 'right'"
                                },
                                "baseline": {
                                    "signal": "cos(scale('angle', datum.data)) > 0.9 ? 'bottom' : "
                                    "cos(scale('angle', datum.data)) < -0.9 ? 'top' : 'middle'"
                                },
                            }
                        },
                    },
                ],
            }
        ],
    }
