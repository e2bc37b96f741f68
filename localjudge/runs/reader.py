"""Read a run directory: its outcomes, whether it is complete, and its notices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.errors import RunMismatchError
from localjudge.modes.row_outcome import Join, RowOutcome
from localjudge.records import Judgement, Outcome
from localjudge.records.keys import row_key, settings_digest
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.journal import read_journal
from localjudge.runs.noise import Noise
from localjudge.runs.notices import is_dry_run, notices
from localjudge.runs.repeated_rows import RepeatedRow, read_noise_lines
from localjudge.runs.run_files import JUDGEMENTS, MANIFEST, SUMMARY
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.warning_signs import WarningSigns

_ROUNDING = 1e-3
"""The largest error of a number in a line, which is rounded."""
_BLOCK = 2**20
"""The number of bytes that are read at once."""


def read_outcomes(folder: Path, manifest: RunManifest | None = None) -> Iterator[Outcome]:
    """Yield the outcomes of a run, in the order of its lines; an incomplete last line is ignored.

    Args:
        folder: the run directory.
        manifest: its manifest; None to read it, too.

    Raises:
        RunMismatchError: the folder is not a run directory, or a line does not belong to the run: it is
            damaged, outside the scale, or made with other settings than `run.json` has.
    """
    if manifest is None:
        manifest = read_manifest(folder)
    file = folder / JUDGEMENTS
    rubric = manifest.rubric
    settings = settings_digest(manifest.settings.as_dict())
    problem_of = validity(rubric)
    has_row_keys = manifest.jury is None  # a jury's keys are computed from the jurors' keys
    for number, (_, outcome) in enumerate(read_journal(file, rubric.columns), 1):
        if has_row_keys and outcome.digest and outcome.key != _key(settings, outcome.digest):
            raise RunMismatchError(
                f"{file}:{number}: not made with the settings in {MANIFEST}: one of the two files is from "
                "another run or was edited; if this line is wrong, delete it, and the same score command "
                "judges its row again"
            )
        if isinstance(outcome, Judgement):
            problem = problem_of(outcome)
            if problem is not None:
                raise RunMismatchError(
                    f"{file}:{number}: {problem}; delete this line, and the same score command judges its row "
                    "again"
                )
        yield outcome


def read_row_outcomes(folder: Path, manifest: RunManifest | None = None) -> Iterator[RowOutcome]:
    """Return the outcome of each row (a response, pair or list of criteria) whose prompts all have a line.

    The arguments and errors are those of `read_outcomes`.
    """
    if manifest is None:
        manifest = read_manifest(folder)
    return manifest.join().all(read_outcomes(folder, manifest))


def numbered_row_outcomes(
    folder: Path, manifest: RunManifest, join: Join[Any] | None = None
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the outcomes of a run with this manifest, each after the numbers of its lines, from 0.

    Args:
        folder: the run directory.
        manifest: its manifest.
        join: joins the outcomes of prompts; None for the join of the run's rows.
    """
    if join is None:
        join = manifest.join()
    line_numbers: dict[int | None, int] = {}
    for line_number, prompt_outcome in enumerate(read_outcomes(folder, manifest)):
        line_numbers[prompt_outcome.row] = line_number
        outcome = join.add(prompt_outcome)
        if outcome is not None:
            prompt_numbers = dict.fromkeys(prompt.row for prompt in outcome.prompts)
            yield tuple(line_numbers.pop(number) for number in prompt_numbers), outcome


def refuse_single(folder: Path, rubric: Rubric) -> None:
    """Refuse the rubric of a run that does not compare responses."""
    rubric.mode.require_pairs(f"{folder}: its rubric {rubric.name}", ", so it has no pairs")


def _key(settings: bytes, digest: str) -> str | None:
    """Return the key of a row's judgement; None if the digest is not one.

    Args:
        settings: the digest of the settings, 32 bytes.
        digest: the digest of the row, in hex.
    """
    try:
        return row_key(settings, bytes.fromhex(digest))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _ColumnLimits:
    """What a score column allows.

    Attributes:
        column: the column.
        aspect: its aspect.
        lowest, highest: the limits of an expected score.
    """

    column: ScoreColumn
    aspect: Aspect
    lowest: float
    highest: float


def validity(rubric: Rubric) -> Callable[[Judgement], str | None]:
    """Return a function that says why the rubric does not allow a judgement; None if it does."""
    value_counts = {name: len(aspect.values) for name, aspect in rubric.aspects.items()}
    limits_of_columns = [
        _ColumnLimits(
            column=column,
            aspect=rubric.aspects[column.aspect],
            lowest=column.lowest - _ROUNDING,
            highest=column.highest + _ROUNDING,
        )
        for column in rubric.score_columns
    ]

    def problem_of(judgement: Judgement) -> str | None:
        for name, probabilities in judgement.probabilities.items():
            count = value_counts[name]
            if (
                len(probabilities) != count
                or min(probabilities) < -_ROUNDING
                or abs(sum(probabilities) - 1) > _ROUNDING
            ):
                return f"{name}_probabilities are not {count} probabilities whose sum is 1"
        for limits in limits_of_columns:
            name = limits.column.aspect
            value = judgement.scores[name]
            if value not in limits.column.numbers or type(value) is not limits.aspect.kind:
                return f"{name} is not one of its values ({limits.aspect})"
            expected = limits.column.expected(judgement)
            if expected is not None and not limits.lowest <= expected <= limits.highest:
                return f"{name}_expected is beyond its values ({limits.aspect})"
        return None

    return problem_of


def is_complete(folder: Path) -> bool:
    """Return whether the summary marks the run as complete, and counts as many rows as there are lines.

    The summary is written last.
    """
    if not (folder / SUMMARY).is_file():
        return False
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        return summary["complete"] is True and int(summary["rows"]) == count_lines(folder)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def read_repeated_rows(folder: Path) -> list[RepeatedRow]:
    """Return the rows of a complete run that were judged again to measure its noise; none if it has none.

    Its summary, which is written last, says whether they are rows of the run as it is now.

    Raises:
        RunMismatchError: `noise.jsonl` is damaged.
    """
    if not is_complete(folder):
        return []
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    if not summary.get("noise"):
        return []
    return read_noise_lines(folder)


def lacks_noise(folder: Path) -> bool:
    """Return whether a complete run has judged rows, and its noise was not measured."""
    if not is_complete(folder):
        return False
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return summary.get("judged") != 0 and not summary.get("noise")


def read_noise(folder: Path, manifest: RunManifest) -> Noise | None:
    """Return the noise of a complete run with this manifest; None if it was not measured.

    Raises:
        RunMismatchError: `noise.jsonl` is damaged.
    """
    rows = read_repeated_rows(folder)
    if not rows:
        return None
    return Noise.from_rows(rows, manifest.rubric.row_columns)


def count_lines(folder: Path) -> int:
    """Return the number of lines of a run, one for each outcome."""
    file = folder / JUDGEMENTS
    if not file.is_file():
        return 0
    lines = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            lines += block.count(b"\n")
    return lines


def read_notices(folder: Path) -> tuple[str, ...]:
    """Return what a reader needs before the scores of a run: its notices, and the warning signs in its rows.

    A dry run has no warning signs, because its scores mean nothing.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    manifest = read_manifest(folder)
    complete = is_complete(folder)
    run_notices = _notices(folder, manifest, complete=complete)
    if is_dry_run(manifest):
        return run_notices
    signs = None
    if complete:
        signs = _stored_signs(folder)
    if signs is None:
        signs = _signs_in_lines(folder, manifest)
    return tuple(dict.fromkeys(run_notices + signs))


def notices_of_run(folder: Path) -> tuple[str, ...]:
    """Return the notices of a run, without the warning signs in its rows.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    return _notices(folder, read_manifest(folder), complete=is_complete(folder))


def _notices(folder: Path, manifest: RunManifest, *, complete: bool) -> tuple[str, ...]:
    """Return the notices of a run; its lines are read only if a notice can follow from them."""
    rows = 0
    candidates_cut = 0
    settings = manifest.settings
    cuts_candidates = settings.on_overflow != "fail" or settings.max_result_tokens is not None
    if not complete or cuts_candidates:
        for outcome in read_outcomes(folder):
            rows += 1
            if isinstance(outcome, Judgement) and outcome.candidate_cut > 0:
                candidates_cut += 1
    return notices(manifest, complete=complete, rows=rows, candidates_cut=candidates_cut)


def _stored_signs(folder: Path) -> tuple[str, ...] | None:
    """Return the warning signs in the summary of a complete run; None if it has none."""
    signs = json.loads((folder / SUMMARY).read_text(encoding="utf-8")).get("warning_signs")
    if isinstance(signs, list) and all(isinstance(sign, str) for sign in signs):
        return tuple(signs)
    return None


def _signs_in_lines(folder: Path, manifest: RunManifest) -> tuple[str, ...]:
    """Return the warning signs in the lines of a run."""
    signs = WarningSigns(manifest.rubric, mass_is_lower_bound=manifest.mass_is_lower_bound)
    for row in manifest.join().all(read_outcomes(folder, manifest)):
        signs.add(row)
    return signs.lines
