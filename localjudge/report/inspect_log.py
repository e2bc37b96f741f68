"""Export a run as Inspect logs, one per system, written by Inspect itself; open them with `inspect view`.

Inspect computes the results of a log, too: for each aspect the mean of the judged samples and its standard
error, or the share of each label. A result that too few samples leave undefined is omitted, not written as 0.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from localjudge.records import Judgement, Outcome
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.notices import kinds
from localjudge.runs.reread_texts import RowTexts
from localjudge.runs.run_manifest import RunManifest

_LONGEST_STEM = 100


def write_logs(
    outcomes: Iterable[tuple[Outcome, RowTexts | None]],
    manifest: RunManifest,
    folder: Path,
    notices: Sequence[str],
    completed: datetime,
) -> int:
    """Write a log for each system and return the number of samples. All texts are held in memory.

    Args:
        outcomes: the outcomes of the run, each with its texts.
        manifest: the manifest of the run.
        folder: the folder to create.
        notices: the notices of the run.
        completed: the time when the last line of the run was written; Inspect's view shows a duration.
    """
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalSpec,
        EvalStats,
        recompute_metrics,
        write_eval_log,
    )

    start = manifest.last_start
    samples = defaultdict(list)
    for outcome, text in outcomes:
        samples[_system(outcome)].append(_sample(outcome, text))
    folder.mkdir()
    names = _file_names(samples)
    for system, theirs in samples.items():
        judged = sum(sample.error is None for sample in theirs)
        spec = EvalSpec(
            created=start.started,
            task=f"localjudge/{manifest.rubric.name}",
            dataset=EvalDataset(name=", ".join(start.inputs), samples=len(theirs)),
            model=system,
            config=EvalConfig(),
            scorers=_scorers(manifest.rubric.aspects, judged),
            tags=kinds(notices).split(", ") if notices else None,
            metadata={
                "judge": manifest.model.judge,
                "notices": list(notices),
                "settings": manifest.settings.as_dict(),
            },
        )
        stats = EvalStats(started_at=manifest.starts[0].started, completed_at=completed.isoformat())
        log = EvalLog(status="success", eval=spec, stats=stats, samples=theirs)
        recompute_metrics(log)
        write_eval_log(log, str(folder / names[system]))
    return sum(map(len, samples.values()))


def _scorers(aspects: Mapping[str, Aspect], judged: int) -> list[dict[str, Any]]:
    """Return the scorers of a log, one for each aspect, with the metrics that are defined.

    Args:
        aspects: the aspects.
        judged: number of judged samples.
    """
    if not judged:
        return []
    numbers = ["mean", "stderr"] if judged > 1 else ["mean"]
    metrics: list[dict[str, Any]] = [{"name": f"inspect_ai/{name}"} for name in numbers]
    return [
        {"name": name, "metrics": metrics if aspect.labels is None else [_shares(aspect.labels.values())]}
        for name, aspect in aspects.items()
    ]


def _shares(labels: Iterable[str]) -> dict[str, Any]:
    """Return the metric that has the share of each label."""
    return {"name": "inspect_ai/frequency", "options": {"categories": list(labels), "normalize": True}}


def _file_names(systems: Iterable[str]) -> dict[str, str]:
    """Return a different file name for each system, even if names differ only in case or special characters."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for system in systems:
        stem = re.sub(r"[^0-9A-Za-z._-]+", "_", system)[:_LONGEST_STEM]
        name, number = stem, 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.lower())
        names[system] = f"{name}.eval"
    return names


def _system(outcome: Outcome) -> str:
    return outcome.system or "unnamed"


def _sample(outcome: Outcome, text: RowTexts | None) -> Any:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    judged = outcome if isinstance(outcome, Judgement) else None
    scores = (
        {
            aspect: Score(
                value=score,
                explanation=judged.rationale,
                metadata={
                    "expected": judged.expected.get(aspect),
                    "probabilities": judged.probabilities.get(aspect),
                    "mass": judged.mass.get(aspect),
                },
            )
            for aspect, score in judged.scores.items()
        }
        if judged
        else {}
    )
    error = outcome.error
    return EvalSample(
        id=f"{outcome.row}-{outcome.id}",
        epoch=1,
        input=text.instruction if text else "",
        target=(text.reference if text else None) or "",
        output=ModelOutput.from_content(_system(outcome), text.candidate if text else ""),
        scores=scores,
        metadata={
            **outcome.columns,
            "source": outcome.source,
            "rationale_cut": judged and judged.rationale_cut,
        },
        error=EvalError(message=error, traceback="", traceback_ansi="") if error else None,
    )
