"""The random order of a shuffled run: while the run is incomplete, the first finished instructions are a random
sample of all, because nothing about them decides their place.

Rows that finish first are no random sample otherwise: the input can be sorted, and short prompts are faster.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from localjudge.runs.reader import read_outcomes

ORDER = "order.txt"
"""The file of an incomplete run: the digest of each instruction, and the number of its different rows, in the
order of judging."""


@dataclass(frozen=True, slots=True)
class FinishedInstructions:
    """The instructions before the first one with a row that is not done.

    Attributes:
        places: the place of each row's instruction in the order of judging, by the digest of the row's texts.
        planned: number of instructions of the run.
    """

    places: Mapping[str, int]
    planned: int


def random_place(group: int, seed: int) -> int:
    """Return where an instruction stands in a random order, 64 bits; other instructions do not change it.

    Args:
        group: the digest of the instruction, 64 bits.
        seed: the seed of the order.
    """
    text = f"{seed} {group}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8])


def order_lines(instructions: Iterable[tuple[str, int]]) -> Iterable[bytes]:
    """Yield the lines of the file."""
    return (f"{group} {rows}\n".encode() for group, rows in instructions)


def finished_instructions(folder: Path) -> FinishedInstructions | None:
    """Return the first finished instructions of an incomplete run; None if it was not shuffled."""
    try:
        lines = (folder / ORDER).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return None
    planned = [(group, int(rows)) for group, rows in map(str.split, lines)]
    done: dict[str | None, set[str]] = defaultdict(set)
    for outcome in read_outcomes(folder):
        if outcome.digest:
            done[outcome.group].add(outcome.digest)
    finished = takewhile(lambda each: len(done[each[0]]) == each[1], planned)
    places = {digest: place for place, (group, _) in enumerate(finished) for digest in done[group]}
    return FinishedInstructions(places, len(planned))
