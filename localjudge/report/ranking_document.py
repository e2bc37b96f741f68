"""The documents of `localjudge rank --json`: a ranking by means, and one by preferences.

`localjudge help compare` and `localjudge help pairs` describe the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localjudge.report.estimate_document import (
    estimate_document,
    estimate_documents,
    optional_estimate_document,
    optional_estimate_documents,
    optional_table_document,
)
from localjudge.report.gate_document import gate_document
from localjudge.report.preference_lines import order_notes, preference_notes
from localjudge.report.ranking_lines import ranking_notes
from localjudge.statistics.ranked_column import Pair
from localjudge.studies.conditions import Condition
from localjudge.studies.rank import Ranking, SystemRank
from localjudge.studies.rank.preference_ranking import (
    PreferenceOrder,
    PreferenceRanking,
    PreferredSystem,
    SystemPair,
)
from localjudge.studies.rank.rows_of_systems import LostRows


def ranking_document(ranking: Ranking, conditions: Sequence[Condition]) -> dict[str, Any]:
    """Return the document of a ranking by means, with the conditions of its gate."""
    return {
        "columns": list(ranking.columns),
        "of": ranking.of,
        "basis": ranking.basis,
        "systems": [_system(system) for system in ranking.systems],
        "pairs": [_pair(pair) for pair in ranking.pairs],
        "groups": {column: _name_lists(groups) for column, groups in ranking.groups.items()},
        "untested": {column: _name_lists(pairs) for column, pairs in ranking.untested.items()},
        "detectable": dict(ranking.detectable),
        "contradictions": [_pair(pair) for pair in ranking.contradictions],
        "without_intervals": ranking.without_intervals,
        "by_tag": optional_table_document(ranking.by_tag),
        "lost": [_lost_rows(lost) for lost in ranking.lost],
        "notes": ranking_notes(ranking),
        "notices": list(ranking.notices),
        "gate": gate_document(conditions),
    }


def preference_ranking_document(ranking: PreferenceRanking, conditions: Sequence[Condition]) -> dict[str, Any]:
    """Return the document of a ranking by preferences, with the conditions of its gate."""
    return {
        "by": ranking.by,
        "aspects": {aspect: _order(order) for aspect, order in ranking.aspects.items()},
        "lost": [_lost_rows(lost) for lost in ranking.lost],
        "notes": preference_notes(ranking),
        "notices": list(ranking.notices),
        "gate": gate_document(conditions),
    }


def _system(system: SystemRank) -> dict[str, Any]:
    return {
        "name": system.name,
        "rows": system.rows,
        "instructions": system.instructions,
        "length": system.length,
        "component": system.component,
        "means": estimate_documents(system.means),
        "same_instructions": optional_estimate_documents(system.same_instructions),
        "ranks": _ranks(system.ranks),
        "length_held": optional_estimate_documents(system.length_held),
        "human": optional_estimate_documents(system.human),
    }


def _ranks(ranks: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Return the best and the worst rank in each column."""
    return {column: list(ends) for column, ends in ranks.items()}


def _pair(pair: Pair) -> dict[str, Any]:
    """Return the comparison of two systems by their means."""
    return {
        "first": pair.first,
        "second": pair.second,
        "column": pair.column,
        "instructions": pair.instructions,
        "difference": estimate_document(pair.difference),
        "p": pair.p,
        "wins": pair.wins,
        "losses": pair.losses,
        "ties": pair.ties,
        "sign_p": pair.sign_p,
    }


def _name_lists(names: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return sets of systems, or pairs of systems, each with the reason why it is not tested."""
    return [list(together) for together in names]


def _lost_rows(lost: LostRows) -> dict[str, Any]:
    return {
        "system": lost.system,
        "lost": lost.lost,
        "rows": lost.rows,
        "if_lowest": lost.if_lowest,
        "if_highest": lost.if_highest,
    }


def _order(order: PreferenceOrder) -> dict[str, Any]:
    """Return the order of the systems in one aspect."""
    return {
        "systems": [_preferred_system(system) for system in order.systems],
        "pairs": [_system_pair(pair) for pair in order.pairs],
        "groups": _name_lists(order.groups),
        "untested": _name_lists(order.untested),
        "detectable": order.detectable,
        "length": optional_estimate_document(order.length),
        "position": estimate_document(order.position),
        "consistency": estimate_document(order.consistency),
        "unlimited": order.unlimited,
        "notes": order_notes(order),
    }


def _preferred_system(system: PreferredSystem) -> dict[str, Any]:
    return {
        "name": system.name,
        "pairs": system.pairs,
        "instructions": system.instructions,
        "win_rate": estimate_document(system.win_rate),
        "strength": estimate_document(system.strength),
        "ranks": list(system.ranks),
        "component": system.component,
        "win_rate_at_equal_length": optional_estimate_document(system.win_rate_at_equal_length),
        "strength_at_equal_length": optional_estimate_document(system.strength_at_equal_length),
        "shown_first": estimate_document(system.shown_first),
        "shown_second": estimate_document(system.shown_second),
    }


def _system_pair(pair: SystemPair) -> dict[str, Any]:
    """Return the comparison of two systems by the preferences for their responses."""
    return {
        "first": pair.first,
        "second": pair.second,
        "pairs": pair.pairs,
        "win_rate": estimate_document(pair.win_rate),
        "difference": estimate_document(pair.difference),
        "p": pair.p,
        "wins": pair.wins,
        "ties": pair.ties,
        "losses": pair.losses,
        "sign_p": pair.sign_p,
        "significant": pair.significant,
        "contradicts": pair.contradicts,
        "contradiction_p": pair.contradiction_p,
        "contradiction_significant": pair.contradiction_significant,
    }
