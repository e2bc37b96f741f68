"""The command `escalate`: a large judge only where a small one is not sure enough, and people for the rest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from localjudge.cli.options import RunFolder, check_out
from localjudge.cli.statistics_options import LabelFiles, LabelOptions
from localjudge.errors import UsageError
from localjudge.settings import Flag
from localjudge.system.quantities import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localjudge.studies.escalation import Selection, Verdicts


def escalate(
    run: RunFolder,
    labels: LabelFiles,
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
    people.require("escalate")
    if (to is None) != (out is None):
        raise UsageError("--to and --out: give both, or none of them to see the plan")
    if out is not None:
        check_out(out)
        if out.exists() and any(out.iterdir()):
            raise UsageError(f"--out {out}: is not empty; choose another folder")
    if rest is not None:
        _check_rest(rest)
    from localjudge.cli.progress import Progress
    from localjudge.matching.labels import label_targets, parse_mapping
    from localjudge.rows.columns import responses_of
    from localjudge.rows.row import record_of
    from localjudge.runs.notices import refuse_dry_run
    from localjudge.runs.pipeline import score_run
    from localjudge.runs.reread_texts import rows_found
    from localjudge.runs.row_source import RowSource
    from localjudge.runs.run_manifest import MANIFEST, read_manifest
    from localjudge.studies.escalation import Verdicts, select
    from localjudge.studies.joined_runs import write_escalated
    from localjudge.system.durable import replacing

    progress, manifest = Progress(), read_manifest(run)
    refuse_dry_run(manifest, run)
    aspects = [*manifest.rubric.aspects]
    if by is None and len(aspects) > 1:
        raise UsageError(f"--by is missing: name the aspect that decides, one of {', '.join(aspects)}")
    verdicts, ours = (
        Verdicts.read(run, by or aspects[0], within),
        parse_mapping(people.mapping or (), label_targets(manifest.rubric)),
    )

    def selected(judged: Verdicts, among: NDArray[np.bool_] | None = None) -> Selection:
        known = judged.labels(labels, ours, people.moved)
        found = select(judged, known, agreement, among)
        progress.say(found.in_words(agreement), always=True)
        return found

    small, item = selected(verdicts), manifest.rubric.mode.item
    rows = [row for _, row in rows_found(manifest, small.passed_on, people.moved)]
    passed = counted(len(small.passed_on), item)
    progress.say(f"passed on: {passed}, {len(rows):,} of them found in the inputs")
    if rest is not None:
        with replacing(rest) as scratch, scratch.open("w", encoding="utf-8") as stream:
            records = (record_of(row, responses_of(manifest.rubric.fields)) for row in rows)
            stream.writelines(json.dumps(record) + "\n" for record in records)
    if to is None or out is None:
        return
    if not small.passed_on:
        progress.say(f"no {item} is passed on, so no large judge is needed", always=True)
        large = None
    else:
        folder = Path(to)
        if not (folder / MANIFEST).is_file():
            small.check_labels(agreement)
            if not rows:
                raise UsageError(
                    f"{run}: {passed} passed on, none found in its inputs; give them with --inputs"
                )
            folder = out.with_name(f"{out.name}-large")
            config = manifest.config_of(manifest.last_start)
            if config is None:
                raise UsageError(f"{run}: was not judged by localjudge; judge the rows of --rest with score")
            config = config.replace(model=to, adapter=None, engine="auto", engine_args={})
            start = manifest.last_start
            pairs = None if start.pairing is None else start.pairing.model_copy(update={"forms": False})
            prompts = rows if pairs is None else pairs.rows(rows)
            source = RowSource(prompts, start.inputs, start.columns, start.max_row_bytes, start.pairing)
            score_run(config, source, folder, observer=progress)
        second = Verdicts.read(folder, verdicts.aspect, within)
        large = selected(second, small.has_passed_on(second.rows))
    summary = write_escalated(small, large, out)
    for reason, count in summary.reasons.most_common(10):
        progress.say(f"{count:,} {reason}")
    progress.say(f"{summary.judged:,} kept, {summary.failed:,} for people · {out}")


def _check_rest(rest: Path) -> None:
    """Check that the file of the rows that are passed on can be written.

    Raises:
        UsageError: it exists, or its folder does not or cannot be written.
    """
    if os.path.lexists(rest):
        raise UsageError(f"--rest {rest}: exists; choose another file, or remove it")
    if not os.access(rest.parent, os.W_OK):
        why = "cannot be written" if rest.parent.is_dir() else "does not exist"
        raise UsageError(f"--rest {rest}: its folder {why}; choose another one")
