"""The rows that a run judged, read again from its inputs: which text belongs to which score."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.errors import UsageError
from localjudge.records import Row
from localjudge.rows import STDIN, find_inputs, read_rows
from localjudge.trust.scores import UNNAMED, Floats, Scores

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Measures:
    """What a judge should not be a mere echo of, for each of n rows.

    `length` is the candidate's in characters; `overlap`, the F1 of its words with the reference's (None unless
    every known row has a reference). `known` says which rows' texts were found; elsewhere the numbers are 0.
    """

    length: Floats
    overlap: Floats | None
    known: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """A judged row's texts. `group` is equal for rows of equal instruction and reference."""

    row: Row
    group: str


def rows_again(scores: Scores, inputs: Sequence[str] = ()) -> Iterator[tuple[int, ReadAgain]]:
    """The number of each judged row whose text is found, and the text; in the order of the inputs.

    Args:
        inputs: the files to read; without them, those that the runs name, as far as they are still there.

    Raises:
        UsageError: one of `inputs` cannot be read.
    """
    for number, manifest in enumerate(scores.manifests):
        start = manifest["starts"][-1]
        try:
            names = find_inputs(inputs or [name for name in start["inputs"] if name != STDIN])
        except UsageError:
            if inputs:
                raise
            continue
        by_key: dict[str, list[int]] = defaultdict(list)
        by_id: dict[tuple[str, str], list[int]] = defaultdict(list)
        for place in np.flatnonzero(scores.run == number).tolist():
            by_key[scores.keys[place]].append(place)
            by_id[scores.ids[place], scores.systems[scores.system[place]]].append(place)
        digest = settings_digest(manifest["settings"])
        for row in read_rows(names, start.get("columns")):
            if isinstance(row, Row):
                found = by_key.pop(row_key(digest, row), None)
                if found is None and "jury" in manifest:  # whose keys are made of its members', not of texts
                    found = by_id.pop((row.id, row.system or UNNAMED), None)
                for place in found or ():
                    yield place, ReadAgain(row, group_of(row))


def measure(scores: Scores, inputs: Sequence[str] = ()) -> Measures | None:
    """Length and overlap of the rows whose texts are found, or None where none is.

    Args:
        inputs: as for `rows_again`.
    """
    rows = len(scores.ids)
    length, overlap = np.zeros(rows), np.zeros(rows)
    known = np.zeros(rows, dtype=np.bool_)
    referenced = True
    for place, read in rows_again(scores, inputs):
        known[place] = True
        length[place] = len(read.row.candidate)
        if read.row.reference is None:
            referenced = False
        else:
            overlap[place] = word_overlap(read.row.candidate, read.row.reference)
    if not known.any():
        return None
    return Measures(length, overlap if referenced else None, known)


def word_overlap(candidate: str, reference: str) -> float:
    """The F1 of two texts' words, counted as often as they occur (as SQuAD's evaluation, arXiv:1606.05250)."""
    ours, theirs = (Counter(_WORD.findall(text.lower())) for text in (candidate, reference))
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0


def group_of(row: Row) -> str:
    """Equal for rows of equal instruction and reference, in hex."""
    return hashlib.blake2b(json.dumps([row.instruction, row.reference]).encode(), digest_size=8).hexdigest()


def settings_digest(settings: Mapping[str, Any]) -> str:
    """What stands for a run's settings in its rows' keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def row_key(digest: str, row: Row) -> str:
    """The key of a row's judgement under these settings: what `Judge.key` gives."""
    content = [digest, row.instruction, row.reference, row.candidate]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
