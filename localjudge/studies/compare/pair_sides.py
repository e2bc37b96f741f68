"""The preference of each pair of two runs that is compared: that for its system, or for its first response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.matching.identity import Identity
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.studies.compare.pair_subject import PairSubject

FIRST_RESPONSE = "the first response of a pair"
"""The name of the preference of a pair that names no systems."""


def recorded_baselines(pairs: JudgedPairs) -> set[str]:
    """Return the baselines that the runs record."""
    baselines: set[str] = set()
    for manifest in pairs.manifests:
        pairing = manifest.last_start.pairing
        if pairing is not None and pairing.baseline:
            baselines.add(pairing.baseline)
    return baselines


@dataclass(frozen=True, slots=True)
class PairSide:
    """The preference of a pair that is compared.

    Attributes:
        identity: what identifies the pair, with the response whose preference counts first.
        is_reversed: whether that is the second response of the input.
        name: the name of the preference.
        is_chosen: whether it is of a system that is compared.
    """

    identity: Identity
    is_reversed: bool
    name: str
    is_chosen: bool


def named_side(identity: Identity, subject: PairSubject) -> PairSide:
    """Return the preference of a pair for the system that counts."""
    if None in identity.systems:  # a failed pair can lack a name that every judged pair has
        return PairSide(identity, is_reversed=False, name=FIRST_RESPONSE, is_chosen=True)
    is_reversed = subject.is_reversed(identity.systems)
    if is_reversed:
        identity = identity.reversed()
    return PairSide(
        identity,
        is_reversed=is_reversed,
        name=subject.name(identity.systems),
        is_chosen=subject.counts(identity.systems),
    )


def unnamed_sides(identities: Sequence[Identity], pairs: JudgedPairs) -> list[PairSide]:
    """Return the preference of each pair for its first response, in the order in which OLD has the two.

    Args:
        identities: what identifies each pair, those with a score first.
        pairs: the pairs with a score.
    """
    digests_in_old = {pairs.identities[row].digests for row in np.flatnonzero(pairs.run == 0).tolist()}
    sides = []
    for row, identity in enumerate(identities):
        digests = identity.digests
        is_scored_in_new = row < len(pairs.run) and bool(pairs.run[row] == 1)
        is_reversed = is_scored_in_new and digests not in digests_in_old and digests[::-1] in digests_in_old
        side = PairSide(
            identity.reversed() if is_reversed else identity,
            is_reversed=is_reversed,
            name=FIRST_RESPONSE,
            is_chosen=True,
        )
        sides.append(side)
    return sides
