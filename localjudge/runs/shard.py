"""A shard: the part of an input that one of several runs judges.

A row's shard follows from its instruction and reference alone. So rows whose prompts begin alike stay together,
and a shard that is started again, alone or with others, has the same rows as before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localjudge.errors import UsageError

SLURM = "slurm"


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` of `count`, counted from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str | None, environment: Mapping[str, str]) -> Shard:
        """What `--shard` says: `3/16`, or `slurm` for the place of this task in its Slurm array.

        Args:
            text: the flag's value; None for the whole input.
            environment: where Slurm says which task this is.

        Raises:
            UsageError: it names no shard.
        """
        if text is None:
            return WHOLE
        if text == SLURM:
            return _from_slurm(environment)
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if not found:
            raise UsageError(f"--shard {text}: write INDEX/COUNT, such as 3/16, or {SLURM}")
        shard = cls(int(found[1]), int(found[2]))
        if not 1 <= shard.index <= shard.count:
            raise UsageError(f"--shard {text}: shards are counted from 1 to {shard.count}")
        return shard

    def holds(self, group: int) -> bool:
        """Whether rows of this group (64 bits of a digest) are of this shard."""
        return group % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


WHOLE = Shard(1, 1)


def _from_slurm(environment: Mapping[str, str]) -> Shard:
    names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "COUNT", "MIN", "MAX")]
    try:
        task, count, lowest, highest = (int(environment[name]) for name in names)
    except (KeyError, ValueError):
        raise UsageError(f"--shard {SLURM}: this is no task of a Slurm array; {names[0]} is not set") from None
    # Of a part of an array that is submitted again, Slurm tells only the part.
    if lowest not in (0, 1) or highest - lowest + 1 != count:
        raise UsageError(
            f"--shard {SLURM}: tasks {lowest} to {highest} of {count} are no whole array; say of how many: "
            "--shard $SLURM_ARRAY_TASK_ID/COUNT"
        )
    return Shard(task - lowest + 1, count)
