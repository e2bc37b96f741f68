"""Merge shards into the run that one machine would have written, if other batches give equal judgements."""

from __future__ import annotations

import filecmp
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from localjudge.errors import RunMismatchError, UsageError
from localjudge.records import Outcome
from localjudge.runs.earlier_starts import changes
from localjudge.runs.journal import read_journal
from localjudge.runs.noise import Noise
from localjudge.runs.reader import is_complete, read_repeated_rows
from localjudge.runs.repeated_rows import RepeatedRow, encoded_rows
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import JUDGEMENTS, MANIFEST, NOISE, SUMMARY
from localjudge.runs.run_manifest import ModelRecord, RunManifest, StartRecord, as_json, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.runs.shard import Shard
from localjudge.runs.summary import Summary, read_summary
from localjudge.system.steps import Report, no_progress, with_progress


@dataclass(frozen=True, slots=True)
class _ShardRun:
    """The run directory of one shard.

    Attributes:
        folder: its path.
        manifest: its manifest.
        shard: which part of the input it is.
        state: its state when it was first read.
    """

    folder: Path
    manifest: RunManifest
    shard: Shard
    state: RunState

    @property
    def start(self) -> StartRecord:
        return self.manifest.last_start


def merge(folders: Sequence[Path], out: Path, report: Report = no_progress) -> Summary:
    """Merge the shards of one run, in the order of the input.

    Args:
        folders: the run directories of all shards.
        out: the run directory to write. It must not contain a run, except this one: a merge can be repeated.
            `run.json` is written last, so nothing reads a half-written merge, and the next merge replaces what
            a stopped one has left.
        report: receives the number of rows that were merged.

    Returns:
        The summary of the whole run.

    Raises:
        RunMismatchError: the folders are not the shards of one run over one input, or a shard was changed while
            it was read. `out` is as it was before.
        UsageError: shards are missing or not complete; the message names each of them.
    """
    parts = sorted((_read(folder) for folder in folders), key=lambda part: part.shard.index)
    _refuse_others(parts)
    _refuse_gaps(parts)
    input_rows = parts[0].start.input_rows
    manifest = _whole_manifest(parts)
    with RunDirectory(out) as run:
        refusal = RunMismatchError(f"`out` {out}: holds a run already; choose another folder")
        is_repeated = (out / MANIFEST).exists()
        if is_repeated and (out / MANIFEST).read_bytes() != as_json(manifest.as_dict()):
            raise refusal
        with run.writing(JUDGEMENTS) as scratch:
            with scratch.open("xb") as stream:
                stream.writelines(with_progress(_in_order(parts), report, total=input_rows))
            repeated_rows = _repeated_rows(parts)
            for part in parts:
                part.state.refuse_change()
            if is_repeated and not _has_judgements(out, scratch):
                raise refusal
        if not is_repeated:
            for name in (SUMMARY, NOISE):  # a stopped merge of these folders, or of others, may have left them
                run.remove(name)
        summary = read_summary(out, manifest=manifest)
        if repeated_rows:
            with run.writing(NOISE) as scratch:
                scratch.write_bytes(b"".join(encoded_rows(repeated_rows)))
            summary.noise = Noise.from_rows(repeated_rows, manifest.rubric.row_columns)
        run.write_json(SUMMARY, summary.as_dict(complete=True, planned=input_rows))
        run.write_json(MANIFEST, manifest.as_dict())
        run.complete = True
    return summary


def _whole_manifest(parts: Sequence[_ShardRun]) -> RunManifest:
    """Return the manifest of the whole run, with the starts of all shards by their time."""
    starts: list[StartRecord] = []
    for part in parts:
        starts += part.manifest.starts
    starts.sort(key=attrgetter("instant"))
    return parts[0].manifest.model_copy(update={"model": _model(parts), "shard": None, "starts": starts})


def _has_judgements(out: Path, merged: Path) -> bool:
    """Return whether a run has the judgements in this file, or lacks its file of judgements."""
    judgements = out / JUDGEMENTS
    return not judgements.exists() or filecmp.cmp(merged, judgements, shallow=False)


def _read(folder: Path) -> _ShardRun:
    """Read the manifest of a shard.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
        UsageError: the run is not a shard.
    """
    state = RunState.of(folder)
    manifest = read_manifest(folder)
    if manifest.shard is None:
        raise UsageError(f"{folder}: is not a shard; it holds the whole input, so give this run alone")
    return _ShardRun(folder=folder, manifest=manifest, shard=Shard.parse(manifest.shard, {}), state=state)


def _model(parts: Sequence[_ShardRun]) -> ModelRecord:
    """Return the description of the model; prefer a shard whose model has changed since it was verified."""
    for part in parts:
        if part.manifest.model.changed_since_verified:
            return part.manifest.model
    return parts[0].manifest.model


def _refuse_others(parts: Sequence[_ShardRun]) -> None:
    """Refuse a shard of another run or another input than the first, and a shard that is given twice."""
    first = parts[0]
    for before, part in pairwise(parts):
        differences = _differences(first, part)
        if differences:
            raise RunMismatchError(
                f"{part.folder}: not of one run with {first.folder}: {'; '.join(differences)}"
            )
        if part.shard == before.shard:
            raise RunMismatchError(
                f"{part.folder}: is shard {part.shard}, and so is {before.folder}; give each shard once"
            )


def _differences(first: _ShardRun, part: _ShardRun) -> list[str]:
    """Return by what a shard is not of one run with the first shard, one phrase for each difference."""
    described = part.manifest.as_dict() | {"shard": first.manifest.shard}
    differences = changes(first.manifest, described)
    if part.shard.count != first.shard.count:
        differences.append(f"shards: {first.shard.count} there, {part.shard.count} here")
    if part.start.input_digest != first.start.input_digest:
        rows = f"{first.start.input_rows} rows there, {part.start.input_rows} here"
        differences.append(f"input: other rows, or in another order ({rows})")
    if part.start.readings != first.start.readings:
        differences.append("readings: a field has another column or kind; see `readings` in run.json")
    return differences


def _refuse_gaps(parts: Sequence[_ShardRun]) -> None:
    """Refuse shards if one is missing or not complete."""
    count = parts[0].shard.count
    indices = {part.shard.index for part in parts}
    gaps = [f"{Shard(index, count)} is missing" for index in range(1, count + 1) if index not in indices]
    for part in parts:
        if not is_complete(part.folder):
            gaps.append(f"{part.shard} ({part.folder}) is not complete")
    if gaps:
        raise UsageError(f"shards: {'; '.join(gaps)}; run these again and then merge")


def _repeated_rows(parts: Sequence[_ShardRun]) -> list[RepeatedRow]:
    """Return the rows that all shards have judged again to measure the noise, in the order of the input."""
    rows: list[RepeatedRow] = []
    for part in parts:
        rows += read_repeated_rows(part.folder)
    return sorted(rows, key=lambda row: row.prompts[0].row or 0)


def _in_order(parts: Sequence[_ShardRun]) -> Iterator[bytes]:
    """Yield the lines of all shards in ascending order of row numbers, which each shard has already."""
    columns = parts[0].manifest.rubric.columns
    journals = [read_journal(part.folder / JUDGEMENTS, columns) for part in parts]
    rows_read = 0
    for line, outcome in heapq.merge(*journals, key=_row_number):
        expected = rows_read + 1
        if outcome.row != expected:
            raise _lacks_row(min(outcome.row or 0, expected))
        rows_read = expected
        yield line
    if rows_read != parts[0].start.input_rows:
        raise _lacks_row(rows_read + 1)


def _lacks_row(number: int) -> RunMismatchError:
    return RunMismatchError(
        f"shards: row {number} of the input has no line, or two; run their score commands again and then merge"
    )


def _row_number(line: tuple[bytes, Outcome]) -> int:
    return line[1].row or 0
