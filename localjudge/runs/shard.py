"""The shard of the input that one of several runs judges.

The instruction and the reference of a row determine its shard. So rows with the same prompt prefix are in the
same shard, and a shard that is started again has the same rows as before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localjudge.errors import UsageError

SLURM = "slurm"
"""Names the position of this task in its Slurm array as the shard."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The part `index` of `count` parts; indices start at 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str | None, environment: Mapping[str, str]) -> Shard:
        """Return the shard that a text names.

        Args:
            text: `3/16`, or `slurm` for the position of this task in its Slurm array; None for the whole input.
            environment: the environment variables, from which `slurm` reads the position.

        Raises:
            UsageError: the text does not name a shard.
        """
        if text is None:
            return WHOLE
        if text == SLURM:
            return _from_slurm(environment)
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match is None:
            raise UsageError(f"`shard` {text}: write INDEX/COUNT, such as 3/16, or {SLURM}")
        shard = cls(index=int(match[1]), count=int(match[2]))
        if not 1 <= shard.index <= shard.count:
            raise UsageError(f"`shard` {text}: shards are counted from 1 to {shard.count}")
        return shard

    def holds(self, group: int) -> bool:
        """Return whether the rows of a group, given by a digest of 64 bits, belong to this shard."""
        return group % self.count == self.index - 1

    @property
    def recorded(self) -> str | None:
        """The shard as `run.json` records it, such as "3/16"; None for the whole input."""
        return None if self == WHOLE else str(self)

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


WHOLE = Shard(index=1, count=1)
"""The whole input."""
_TASK = "SLURM_ARRAY_TASK_ID"
_COUNT = "SLURM_ARRAY_TASK_COUNT"
_LOWEST = "SLURM_ARRAY_TASK_MIN"
_HIGHEST = "SLURM_ARRAY_TASK_MAX"


def _from_slurm(environment: Mapping[str, str]) -> Shard:
    """Return the position of a task in its Slurm array.

    Raises:
        UsageError: the environment is not that of such a task, or only a part of the array was submitted.
    """
    names = (_TASK, _COUNT, _LOWEST, _HIGHEST)
    missing = [name for name in names if not environment.get(name, "").isdecimal()]
    if missing:
        raise UsageError(
            f"`shard` {SLURM}: this is not a task of a Slurm array; {', '.join(missing)}: unset or not a number"
        )
    count = int(environment[_COUNT])
    lowest = int(environment[_LOWEST])
    highest = int(environment[_HIGHEST])
    # If only a part of an array is submitted again, Slurm gives the size of that part.
    if lowest not in (0, 1) or highest - lowest + 1 != count:
        raise UsageError(
            f"`shard` {SLURM}: tasks {lowest} to {highest}, {count} in all, are only a part of an array; give "
            "the size of the whole array: --shard $SLURM_ARRAY_TASK_ID/COUNT"
        )
    return Shard(index=int(environment[_TASK]) - lowest + 1, count=count)
