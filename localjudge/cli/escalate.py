"""The command `escalate`, which joins a small judge and a large one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from localjudge.cli.options import RunFolders, check_out
from localjudge.cli.progress import Progress
from localjudge.errors import UsageError
from localjudge.report.study_options import LabelOptions
from localjudge.settings import Flag
from localjudge.system.durable import after_writing, write_text
from localjudge.system.quantities import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localjudge.records import Failure, Row
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.run_manifest import RunManifest
    from localjudge.studies.escalation import JudgeVerdicts, Selection


def escalate(
    runs: RunFolders,
    *,
    agreement: Annotated[
        float,
        Flag("The share of the rows it keeps that must agree with people.", "RATE", least=0.5, most=0.99),
    ] = 0.9,
    by: Annotated[str | None, Flag("The aspect.  [default: the rubric's only one]", "ASPECT")] = None,
    within: Annotated[int, Flag("Scores that differ by N or less agree.", "N", least=0)] = 0,
    to: Annotated[
        str | None,
        Flag(
            "The large judge: a model, or its run on the rows that are passed on. Without it, only "
            "what would be kept is printed.",
            "MODEL|DIR",
        ),
    ] = None,
    rest: Annotated[
        Path | None, Flag("Write the rows that are passed on as JSONL, to judge them with score.", "FILE")
    ] = None,
    out: Annotated[Path | None, Flag("The run directory to write.", "DIR")] = None,
    people: LabelOptions,
) -> None:
    """Keep a small judge's verdicts where they agree with people at a rate; give the rest to a large judge."""
    from localjudge.matching.labels import label_targets, parse_mapping
    from localjudge.runs.notices import refuse_dry_run
    from localjudge.runs.reread_texts import rows_found
    from localjudge.runs.run_files import MANIFEST
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.studies.escalated_run import write_escalated
    from localjudge.studies.escalation import JudgeVerdicts

    people.require_labels()
    people.require("escalate")
    if len(runs) > 1:
        raise UsageError("escalate: takes one run; merge shards first: localjudge merge DIR... --out DIR")
    run = runs[0]
    if (to is None) != (out is None):
        raise UsageError("--to and --out: give both, or none of them to see the plan")
    if out is not None:
        check_out(out)
        if out.exists() and any(out.iterdir()):
            raise UsageError(f"--out {out}: is not empty; choose another folder")
    if rest is not None:
        _check_rest(rest)

    progress = Progress()
    manifest = read_manifest(run)
    refuse_dry_run(manifest, run)
    aspect = _deciding_aspect(manifest.rubric, by)
    verdicts = JudgeVerdicts.read(run, aspect, within=within)
    manifest = verdicts.manifest
    selecting = _Selecting(
        people=people,
        mapping=parse_mapping(people.mapping or (), label_targets(manifest.rubric)),
        agreement=agreement,
        progress=progress,
    )
    small = selecting.select(verdicts)
    item = manifest.rubric.mode.item
    rows = [row for _, row in rows_found(manifest, small.passed_on, people.moved)]
    verdicts.state.refuse_change()
    passed_on = counted(len(small.passed_on), item)
    progress.say(f"passed on: {passed_on}, {len(rows):,} of them found in the inputs")
    if rest is not None:
        _write_rest(rest, _as_json_lines(rows, manifest.rubric.fields))
    if to is None or out is None:
        return

    large = None
    if not small.passed_on:
        progress.say(f"no {item} is passed on, so no large judge is needed", always=True)
    else:
        large_run = Path(to)
        if not (large_run / MANIFEST).is_file():
            small.check_labels(agreement)
            if not rows:
                raise UsageError(
                    f"{run}: {passed_on} passed on, none found in its inputs; give them with --inputs"
                )
            large_run = out.with_name(f"{out.name}-large")
            _judge_passed_on(rows, run, manifest, model=to, out=large_run, progress=progress)
        large_verdicts = JudgeVerdicts.read(large_run, verdicts.aspect, within=within)
        large = selecting.select(large_verdicts, among=small.has_passed_on(large_verdicts.rows))
    summary = write_escalated(small, large, out=out)
    with after_writing(out):
        for reason, count in summary.reasons.most_common(10):
            progress.say(f"{count:,} {reason}")
        progress.say(f"{summary.judged:,} kept, {summary.failed:,} for people · {out}")


def _deciding_aspect(rubric: Rubric, by: str | None) -> str:
    """Return the aspect that decides which verdicts are kept.

    Raises:
        UsageError: none is named, and the rubric has several.
    """
    if by:
        return by
    aspects = list(rubric.aspects)
    if by is None and len(aspects) > 1:
        raise UsageError(f"--by is missing: name the aspect that decides, one of {', '.join(aspects)}")
    return aspects[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selecting:
    """How the verdicts that a judge may keep are chosen, for both judges.

    Attributes:
        people: the labels.
        mapping: how the values of the labels are read.
        agreement: the share of the kept verdicts that must agree with people.
        progress: where each choice is reported.
    """

    people: LabelOptions
    mapping: Mapping[str, str]
    agreement: float
    progress: Progress

    def select(self, verdicts: JudgeVerdicts, *, among: NDArray[np.bool_] | None = None) -> Selection:
        """Return the verdicts that a judge may keep, and report them.

        Args:
            verdicts: the verdicts of the judge, on n rows.
            among: whether each row counts, [n]; None if all do.
        """
        from localjudge.report.selection_lines import selection_line
        from localjudge.studies.escalation import select

        labels = verdicts.labels(self.people.labels or (), self.mapping, inputs=self.people.moved)
        selection = select(verdicts, labels, rate=self.agreement, among=among)
        self.progress.say(selection_line(selection, self.agreement), always=True)
        return selection


def _as_json_lines(rows: Sequence[Row], fields: Sequence[str]) -> str:
    """Return rows as records that `score` reads, a line each."""
    from localjudge.rows.row import record_of

    lines = [json.dumps(record_of(row, fields)) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def _judge_passed_on(
    rows: Sequence[Row], run: Path, manifest: RunManifest, *, model: str, out: Path, progress: Progress
) -> None:
    """Judge the rows that are passed on with a large model, with the other settings of the small judge.

    Args:
        rows: the rows.
        run: the run directory of the small judge.
        manifest: its manifest.
        model: the large model.
        out: the run directory to write.
        progress: receives the messages.

    Raises:
        UsageError: the run was not judged by localjudge.
    """
    from localjudge.runs.pipeline import score_run
    from localjudge.runs.row_source import RowSource

    start = manifest.last_start
    config = manifest.config_of(start)
    if config is None:
        raise UsageError(f"{run}: was not judged by localjudge; judge the rows of --rest with score")
    prompts: Iterable[Row | Failure] = rows
    if start.pairing is not None:
        pairing = start.pairing.model_copy(update={"forms": False})  # the rows are pairs already
        prompts = pairing.rows(rows)
    source = RowSource(
        rows=prompts,
        inputs=start.inputs,
        columns=start.columns,
        max_row_bytes=start.max_row_bytes,
        pairing=start.pairing,
        readings=start.reading_of(start.inputs),
    )
    large_config = config.replace(model=model, engine="auto", engine_args={})
    score_run(large_config, source, out, observer=progress)


def _check_rest(rest: Path) -> None:
    """Check that the file of the rows that are passed on can be written, or is a file of an earlier start.

    Raises:
        UsageError: it is something else than a file, or its folder does not exist or cannot be written.
    """
    if os.path.lexists(rest) and not os.path.isfile(rest):
        raise UsageError(f"--rest {rest}: exists and is not a file; choose another file")
    if not os.access(rest.parent, os.W_OK):
        problem = "cannot be written" if rest.parent.is_dir() else "does not exist"
        raise UsageError(f"--rest {rest}: its folder {problem}; choose another one")


def _write_rest(rest: Path, text: str) -> None:
    """Write the rows that are passed on, unless an earlier start of the same command has written them.

    Raises:
        UsageError: the file has something else.
    """
    if not os.path.exists(rest):
        write_text(rest, text)
    elif rest.read_bytes() != text.encode():
        raise UsageError(f"--rest {rest}: exists; choose another file, or remove it")
