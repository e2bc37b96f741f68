"""The preferences of runs that compare two responses, of pairs that name both systems."""

from __future__ import annotations

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.matching.scores import check_one_judge
from localjudge.statistics.preferences import Preferences


def preferences_of(pairs: JudgedPairs) -> dict[str, Preferences]:
    """Return the preferences of the pairs that name both systems, in each aspect.

    Raises:
        UsageError: the runs' judges differ, or no pair names two systems.
    """
    check_one_judge(pairs.folders, pairs.manifests)
    named = [place for place, systems in enumerate(pairs.systems) if None not in systems]
    if all(first == second for first, second in (pairs.systems[place] for place in named)):
        raise UsageError(
            f"{pairs.where}: no pair names two systems, which rank compares; name their "
            "columns with --column system_a=COLUMN and --column system_b=COLUMN when you judge"
        )
    names, _ = pairs.names.names()
    compared = [[names[pairs.run[place], system] for system in pairs.systems[place]] for place in named]
    order, places = np.unique(np.array(compared), return_inverse=True)
    first, second = places.reshape(-1, 2).astype(np.int32).T
    lengths = np.log1p(pairs.lengths[named])
    return {
        name: Preferences(
            systems=tuple(order.tolist()),
            first=first,
            second=second,
            group=np.unique(pairs.group[named], return_inverse=True)[1].astype(np.int32),
            preference=verdicts.preference[named, 0],
            shown_first=verdicts.shown_first[named],
            agree=verdicts.same_response[named],
            length_difference=lengths[:, 0] - lengths[:, 1],
        )
        for name, verdicts in pairs.aspects.items()
    }
