"""The part of a report above the pairs: win rates, strengths, system against system, the effect of order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.modes.pair_preference import WINNERS
from localjudge.report import charts
from localjudge.report.listed_rows import ListedRows
from localjudge.report.overview import figure
from localjudge.report.report_tables import estimate_value, table
from localjudge.report.shown_values import share_colour
from localjudge.report.tables.ranking_tables import ranks, win_rates
from localjudge.statistics import Estimate
from localjudge.statistics.system_order import differences_in_words
from localjudge.studies.rank.preference_ranking import PreferenceOrder, PreferenceRanking, cycles_in_words


def pair_sections(pairs: ListedRows, ranking: PreferenceRanking | None) -> dict[str, Any]:
    """Return what the page shows of preferences, besides the pairs.

    Args:
        pairs: the pairs of the report.
        ranking: the comparison of the systems; None if the pairs do not name any.
    """
    return {
        "aspects": [
            {
                "name": name,
                "kind": "pair",
                "values": WINNERS,
                "colours": [share_colour(share) for share in (1, 0.5, 0, 0.5)],
                "labels": list(aspect.values.values()),
            }
            for name, aspect in pairs.rubric.aspects.items()
        ],
        "table": ranking and _systems(pairs, ranking),
        "leads": {"systems": _SYSTEMS, "length": _LENGTH},
        "means": "",
        "legend": [],
        "figures": {"length": [figure(None, _length_chart(pairs))] if _measured(pairs).any() else []},
        "matrix": ranking and _matrix(pairs, ranking),
        "position": _position(pairs, ranking),
    }


_SYSTEMS = (
    "A win rate is the share of its comparisons that a system wins; the judge's probability counts, averaged "
    "over both orders, and a tie counts half. A strength is in log-odds (the model of Bradley and Terry); it "
    "also accounts for the strength of the opponents. Intervals are at 95 %. A rank is a range if differences "
    "of strengths are not significant."
)
_MATRIX = (
    "The share of comparisons that the system of the row wins against the system of the column, with the "
    "number n of pairs. Select a cell to read its pairs."
)
_POSITION = (
    "Without an effect of the order, the first place has a win rate of one half, and both orders name the same "
    "response in all pairs without a tie, those in which both name a response."
)
_LENGTH = (
    "The preference for the first response of each pair (a sample if there are many) against how much longer "
    "it is than the second; the line is the mean of all pairs. Select a point to read its pair."
)


def _systems(pairs: ListedRows, ranking: PreferenceRanking) -> dict[str, Any]:
    """Return the table of the systems, in the order of the deciding aspect."""
    decides = ranking.aspects[ranking.by]
    index_of = {name: index for index, name in enumerate(pairs.series)}
    several = len(ranking.aspects) > 1
    rates = {
        aspect: {system.name: system.win_rate for system in order.systems}
        for aspect, order in ranking.aspects.items()
    }
    share = {"kind": "share", "bounds": [0, 1]}
    columns = [
        {"name": "system", "kind": "text"},
        *({"name": f"win rate, {aspect}" if several else "win rate", **share} for aspect in rates),
        {"name": f"strength, {ranking.by}" if several else "strength", "kind": "estimate"},
        {"name": "rank", "kind": "number"},
        {"name": "pairs", "kind": "number"},
        {"name": "instructions", "kind": "number"},
    ]
    rows = [
        [
            system.name,
            *(estimate_value(own[system.name]) for own in rates.values()),
            estimate_value(system.strength),
            ranks(system.ranks, " to "),
            system.pairs,
            system.instructions,
        ]
        for system in decides.systems
    ]
    lines = (
        *differences_in_words("in strength", decides.groups, decides.untested, decides.detectable),
        *cycles_in_words(decides),
    )
    return {
        "columns": columns,
        "rows": rows,
        "dots": [index_of[system.name] for system in decides.systems],
        "notes": [*(f"{line}." for line in lines), *ranking.notes],
    }


def _matrix(pairs: ListedRows, ranking: PreferenceRanking) -> dict[str, Any]:
    """Return a table for each aspect; the tables of the aspects that do not decide are folded."""
    several = len(ranking.aspects) > 1
    first, *others = sorted(ranking.aspects.items(), key=lambda each: each[0] != ranking.by)
    tables = [_against(pairs, name if several else None, order, False) for name, order in [first]]
    return {
        "leads": [_MATRIX],
        "tables": [*tables, *(_against(pairs, name, order, True) for name, order in others)],
    }


def _against(pairs: ListedRows, caption: str | None, order: PreferenceOrder, folded: bool) -> dict[str, Any]:
    """Return the table of the win rates of each system against each other one."""
    place = {name: index for index, name in enumerate(pairs.series)}
    names = [system.name for system in order.systems]
    sizes = {frozenset((each.first, each.second)): each.pairs for each in order.pairs}
    cells = {
        (one, other): {
            "share": rate.value,
            "low": rate.low,
            "high": rate.high,
            "n": sizes[frozenset((one, other))],
            "colour": share_colour(rate.value),
            "at": [place[one], place[other]],
        }
        for (one, other), rate in win_rates(order).items()
        if rate.value is not None
    }
    rows = [[name, *(cells.get((name, other)) for other in names)] for name in names]
    return table(caption or "", [("against", "text"), *((name, "rate") for name in names)], rows, folded)


def _position(pairs: ListedRows, ranking: PreferenceRanking | None) -> dict[str, Any] | None:
    """Return the table of the effect of the order in each aspect; None if no pair was judged."""
    details = pairs.details
    judged = details.first.judged
    if not judged:
        return None
    unnamed = set(pairs.series) <= set(pairs.kind.unnamed)
    without = {"ties": "tie", "undecided": None}
    found = {
        name: [details.share_without_winner(aspect, winner) for aspect in details.aspects]
        for name, winner in without.items()
    }
    shown = {name: shares for name, shares in found.items() if any(shares)}
    rows = []
    for place, (aspect, effect) in enumerate(details.aspects.items()):
        shown_first = Estimate(effect.first_wins / judged)
        consistency = Estimate(effect.same_response / effect.decided if effect.decided else None)
        if ranking:
            order = ranking.aspects[aspect]
            shown_first, consistency = order.position, order.consistency
        first = Estimate(details.first.columns[aspect].mean)
        shares = [Estimate(each[place]) for each in shown.values()]
        values = [shown_first, consistency, *shares, *([first] * unnamed)]
        rows.append([aspect, *map(estimate_value, values), judged])
    columns = [
        ("aspect", "text"),
        ("win rate of the first place", "share"),
        ("same response in both orders", "share"),
        *((name, "share") for name in shown),
    ]
    columns += [("first response of the input wins", "share")] * unnamed + [("pairs", "number")]
    return {"leads": [_POSITION], "tables": [table("", columns, rows)]}


def _measured(pairs: ListedRows) -> NDArray[np.bool_]:
    """Return which pairs have a preference and both texts, (N,)."""
    known: NDArray[np.bool_] = (pairs.columns.length[0] >= 0) & ~np.isnan(pairs.columns.overall)
    return known


def _length_chart(pairs: ListedRows) -> charts.Spec:
    """Return the chart of the preference against the ratio of the lengths of both responses."""
    columns = pairs.columns
    first, second = np.maximum(columns.length, 0)
    spec = charts.length_chart(
        (first + 1) / (second + 1),
        np.where(_measured(pairs), columns.overall, np.nan),
        lambda row: {
            "pair": " vs ".join(pairs.series[index] for index in columns.series[:, row]),
            "a": int(first[row]),
            "b": int(second[row]),
        },
        x={"title": "characters of a / characters of b", "axis": {"grid": False}},
        y={"title": "preference for a", "scale": {"domain": [0, 1]}, "axis": {}},
        encoding={
            "color": {"value": charts.series_colour(0)},
            "opacity": {"value": 0.55},
            "tooltip": charts.tooltip(
                pair="pair", preference=("y", ".2f"), characters_of_a="a", characters_of_b="b"
            ),
        },
    )
    return spec | {"description": "Preference for the first response against the ratio of the lengths"}
