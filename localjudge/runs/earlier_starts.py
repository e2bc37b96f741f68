"""Earlier starts of a run: whether the folder holds the same run, and which of its lines stay."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from localjudge.errors import RunMismatchError
from localjudge.records import Failure, Outcome
from localjudge.records.outcome_columns import AnswerColumns
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.journal import read_journal
from localjudge.runs.key_index import KeyIndex, key_digest
from localjudge.runs.run_files import JUDGEMENTS, MANIFEST, SET_ASIDE
from localjudge.runs.run_manifest import FORMAT, RunManifest, StartRecord, read_manifest


class LinesOfEarlierStarts:
    """The lines of a run directory when a start begins; they are read, and nothing is written.

    Args:
        folder: the run directory.
        columns: the columns of an answer to the run's rubric.
        key: returns the key of the row at a place of the plan.
        rows: the number of rows of the plan.
        retry_failed: lines of rows that failed do not stay.

    Attributes:
        set_aside: number of lines of the journal that belong to no row of the input.
        rows: the keys of the rows; empty if there are no lines.

    Raises:
        RunMismatchError: a line does not belong to such a run.
    """

    def __init__(
        self, folder: Path, columns: AnswerColumns, *, key: Callable[[int], str], rows: int, retry_failed: bool
    ) -> None:
        self._journal = folder / JUDGEMENTS
        self._aside = folder / SET_ASIDE
        self._columns = columns
        self._key = key
        self._retry_failed = retry_failed
        self.set_aside = 0
        row_keys = bytearray()
        if self._journal.exists() or self._aside.exists():
            for place in range(rows):
                row_keys += key_digest(key(place))
        self.rows = KeyIndex(row_keys)
        in_journal = bytearray()
        staying = bytearray()
        for _, outcome in read_journal(self._journal, columns):
            if outcome.key not in self.rows:
                self.set_aside += 1
                continue
            in_journal += key_digest(outcome.key)
            if not self._must_be_rejudged(outcome):
                staying += key_digest(outcome.key)
        self._in_journal = KeyIndex(in_journal)
        for _, outcome in self._to_restore():
            if outcome.key in self.rows and not self._must_be_rejudged(outcome):
                staying += key_digest(outcome.key)
        self._staying = KeyIndex(staying)

    def has(self, place: int) -> bool:
        """Return whether the row at this place has a line that stays."""
        return self._key(place) in self._staying

    def staying(self) -> Iterator[tuple[str, bytes]]:
        """Yield each line that stays or comes back after its key, of each key at most as many as the rows.

        This method can be called once.
        """
        for line, outcome in chain(read_journal(self._journal, self._columns), self._to_restore()):
            if not self._must_be_rejudged(outcome) and self.rows.take(outcome.key):
                yield outcome.key, line

    def all_set_aside(self) -> Iterator[bytes]:
        """Yield the lines that were set aside before, and those of the journal that belong to no row now.

        A start that ended while it set lines aside has left some in both files.
        """
        digests = set()
        for line, _ in read_journal(self._aside, self._columns):
            digests.add(hashlib.sha256(line).digest())
            yield line
        for line in self._without_row(self._journal):
            if hashlib.sha256(line).digest() not in digests:
                yield line

    def still_set_aside(self) -> Iterator[bytes]:
        """Yield the lines of the file of set-aside lines that belong to no row of the input."""
        return self._without_row(self._aside)

    def _without_row(self, file: Path) -> Iterator[bytes]:
        """Yield the lines of a file that belong to no row of the input."""
        for line, outcome in read_journal(file, self._columns):
            if outcome.key not in self.rows:
                yield line

    def _to_restore(self) -> Iterator[tuple[bytes, Outcome]]:
        """Yield the lines that were set aside and whose key has no line in the journal."""
        for line, outcome in read_journal(self._aside, self._columns):
            if outcome.key not in self._in_journal:
                yield line, outcome

    def _must_be_rejudged(self, outcome: Outcome) -> bool:
        """Return whether an outcome is a failure, and failed rows are judged again."""
        return self._retry_failed and isinstance(outcome, Failure)


def recorded_run(folder: Path, described: Mapping[str, Any]) -> RunManifest | None:
    """Return the manifest of a folder that holds the same run; None for a new run.

    Args:
        folder: the run directory.
        described: settings of this start, by the fields of the manifest.

    Raises:
        RunMismatchError: the folder holds another run, or something else.
    """
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_manifest(folder)
    differences = changes(manifest, described)
    if differences:
        raise RunMismatchError(
            f"`out` {folder}: holds another run; it differs in {'; '.join(differences)}. "
            "Choose another folder, or give the settings of that run"
        )
    return manifest


def with_start(before: RunManifest | None, described: Mapping[str, Any], now: StartRecord) -> RunManifest:
    """Return the manifest with another start.

    Args:
        before: the manifest of the earlier starts; None for a new run.
        described: the settings, by the fields of the manifest.
        now: the start.
    """
    if before is None:
        return RunManifest.model_validate({"format": FORMAT, **described, "starts": [now]})
    # What decides no judgement, such as a weight, is that of the last start.
    rubric = RunManifest.model_validate({**before.as_dict(), **described}).rubric
    return before.model_copy(update={"rubric": rubric, "starts": before.starts + [now]})


def changes(manifest: RunManifest, described: Mapping[str, Any]) -> list[str]:
    """Return how the settings differ, one phrase for each difference.

    Args:
        manifest: the manifest of the run.
        described: the same fields of a judge, by name; its settings may be incomplete.
    """
    recorded = manifest.settings.as_dict()
    settings = described["settings"]
    recorded_names = {"rubric": manifest.rubric.name, "model": manifest.model.name}
    new_names = {"rubric": described["rubric"]["name"], "model": described.get("model", {}).get("name")}
    phrases = []
    for setting in differing_settings(recorded, settings):
        recorded_value = _shown(setting, recorded.get(setting), names=recorded_names)
        new_value = _shown(setting, settings.get(setting), names=new_names)
        phrases.append(f"{setting}: {recorded_value} there, {new_value} now")
    recorded_shard = manifest.shard
    new_shard = described.get("shard")
    if recorded_shard != new_shard:
        phrases.append(
            f"shard: {recorded_shard or 'the whole input'} there, {new_shard or 'the whole input'} now"
        )
    return phrases


def differing_settings(recorded: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that differ from those of a run.

    Args:
        recorded: the settings of the run.
        settings: the settings of a judge. Without `engine`, they are those that are known before the engine is
            open, and a setting that they lack is not compared.
    """
    names = list(settings)
    if "engine" in settings:
        names += [name for name in recorded if name not in settings]
    return [name for name in names if recorded.get(name) != settings.get(name)]


def _shown(setting: str, value: Any, *, names: Mapping[str, str | None]) -> Any:
    """Return the value of a setting for a message; of a digest, the beginning.

    Args:
        setting: the name of the setting.
        value: its value.
        names: the names of what has a digest, by its setting.
    """
    if setting in names:
        return f"{names[setting]} ({value[:8]})" if value else "none"
    if setting == "chat_template" and value is None:
        return "the model's own"
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:8]
    return value


def changed_weights(rubric: Rubric, before: Rubric) -> str:
    """Return in words which weights and best labels differ from those of a rubric of the same digest."""
    changed = []
    for name, aspect in rubric.aspects.items():
        earlier = before.aspects[name]
        if aspect.weight == earlier.weight and aspect.best == earlier.best:
            continue
        change = f"{name} {aspect.weight:g} instead of {earlier.weight:g}"
        if aspect.best != earlier.best:
            change += f", best {aspect.best} instead of {earlier.best}"
        changed.append(change)
    return "; ".join(changed)
