"""Read the rows of a run again from its inputs, and match their texts to scores."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats
from localjudge.matching.scores import Scores
from localjudge.records import Row
from localjudge.rows.inputs import find_inputs
from localjudge.runs.reread_texts import rows_found

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Measures:
    """Trivial baselines for a judge: length and word overlap of each of n rows.

    `length` is the length of the candidate in characters. `overlap` is the F1 of its words with those of the
    reference; None unless every known row has a reference. `known` is a mask of the rows whose texts were
    found; the values of all other rows are 0.
    """

    length: Floats
    overlap: Floats | None
    known: NDArray[np.bool_]


def judged_rows(scores: Scores, inputs: Sequence[str] = ()) -> Iterator[tuple[int, Row]]:
    """Yield the number of each judged row whose text is found, and the row.

    Args:
        inputs: the files to read; if there are none, the files that the runs name and that still exist.

    Raises:
        UsageError: a file of `inputs` cannot be read.
    """
    find_inputs(inputs)
    for number, manifest in enumerate(scores.manifests):
        places = np.flatnonzero(scores.run == number).tolist()
        for place, row in rows_found(manifest, [scores.digests[place] for place in places], inputs):
            yield places[place], row


def measure(scores: Scores, inputs: Sequence[str] = ()) -> Measures | None:
    """Return length and word overlap of the rows whose texts are found; None if none is found.

    Args:
        inputs: as for `judged_rows`.
    """
    rows = len(scores.ids)
    length, overlap = np.zeros(rows), np.zeros(rows)
    known = np.zeros(rows, dtype=np.bool_)
    referenced = True
    for place, row in judged_rows(scores, inputs):
        known[place] = True
        length[place] = len(row.candidate)
        if row.reference is None:
            referenced = False
        else:
            overlap[place] = word_overlap(row.candidate, row.reference)
    if not known.any():
        return None
    return Measures(length, overlap if referenced else None, known)


def word_overlap(candidate: str, reference: str) -> float:
    """Return the F1 of two texts' words, with repetitions (as in SQuAD's evaluation, arXiv:1606.05250)."""
    ours, theirs = (Counter(_WORD.findall(text.lower())) for text in (candidate, reference))
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0
