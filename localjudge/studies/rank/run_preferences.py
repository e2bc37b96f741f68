"""The preferences of runs that compare two responses, of pairs that name both systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.judged_pairs import read_judged_pairs
from localjudge.matching.scores import check_one_judge
from localjudge.statistics.preferences import Preferences


@dataclass(frozen=True, slots=True)
class RunPreferences:
    """The preferences of the judged pairs of one or more runs of one judge, in each aspect.

    `failed` is the number of pairs without preferences, and `unnamed` the number of judged pairs that are left
    out because they do not name both systems. `notices` has the notices of the runs, and `mass_note` the mean
    mass of the values in words.
    """

    aspects: Mapping[str, Preferences]
    failed: int
    unnamed: int
    notices: tuple[str, ...]
    mass_note: str = ""


def read_preferences(folders: Sequence[Path]) -> RunPreferences:
    """Return the preferences of runs that compare two responses.

    Args:
        folders: run directories with the same aspects.

    Raises:
        UsageError: a folder is not a run, or compares no responses; the runs' aspects or judges differ; or no
            pair names two systems.
    """
    pairs = read_judged_pairs(folders)
    check_one_judge(folders, pairs.manifests)
    named = [place for place, systems in enumerate(pairs.systems) if None not in systems]
    if all(first == second for first, second in (pairs.systems[place] for place in named)):
        raise UsageError(
            f"{', '.join(map(str, folders))}: no pair names two systems, which rank compares; name their "
            "columns with --column system_a=COLUMN and --column system_b=COLUMN when you judge"
        )
    names, notes = pairs.names.names()
    compared = [[names[pairs.run[place], system] for system in pairs.systems[place]] for place in named]
    order, places = np.unique(np.array(compared), return_inverse=True)
    first, second = places.reshape(-1, 2).astype(np.int32).T
    lengths = np.log1p(pairs.lengths[named])
    aspects = {
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
    return RunPreferences(
        aspects, pairs.failed, len(pairs.ids) - len(named), (*pairs.notices, *notes), pairs.mass_note
    )
