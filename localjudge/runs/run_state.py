"""Whether a start has changed a run while it was read.

A start renews `run.json`, then removes `summary.json`, and only then changes lines. While it judges on a
server, it renews `run.json` again when a reply has a name or a fingerprint that no earlier one had. At its end,
it puts the lines in order and then writes `summary.json`, and once more after it has measured the noise. So
where both are as they were before the lines were read, the lines and what the run says of itself belong
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from localjudge.errors import RunMismatchError
from localjudge.runs.run_files import MANIFEST, SUMMARY


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run at a moment.

    Attributes:
        folder: the run directory.
        manifest: the content of `run.json`; None if it cannot be read.
        summary: the content of `summary.json`; None if it cannot be read.
    """

    folder: Path
    manifest: bytes | None
    summary: bytes | None

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the state of a run now."""
        return cls(folder=folder, manifest=_content(folder / MANIFEST), summary=_content(folder / SUMMARY))

    def refuse_change(self, again: str = "give this command again") -> None:
        """Check that the run still has this state.

        Args:
            again: what to do when the start has ended, for the message.

        Raises:
            RunMismatchError: a start has changed it.
        """
        if RunState.of(self.folder) != self:
            raise RunMismatchError(
                f"{self.folder}: its score command has changed it while it was read; when that has ended, "
                f"{again}"
            )


def _content(file: Path) -> bytes | None:
    """Return the content of a file; None if it cannot be read, about which its reader raises an error."""
    try:
        if not file.is_file():  # a pipe would be waited for
            return None
        return file.read_bytes()
    except OSError:
        return None


@contextmanager
def unchanged(folders: Iterable[Path]) -> Iterator[None]:
    """Enclose the reading of runs; at the end of the block, refuse those that have changed meanwhile.

    Raises:
        RunMismatchError: a start has changed a run.
    """
    states = [RunState.of(folder) for folder in folders]
    yield
    for state in states:
        state.refuse_change()
