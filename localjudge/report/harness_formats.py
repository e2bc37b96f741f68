"""Export a run to the formats of two harnesses: AlpacaEval's annotations, and Inspect's logs.

AlpacaEval has, for each instruction, which of two systems is preferred: 1 for the first answer, which is the
baseline's, 2 for the other answer and 1.5 for a tie. In a run of pairs it is any number from 1 to 2: 1 plus the
judge's preference for the other answer. For scores of single responses it is computed from the means over the
ordered aspects of the expected scores, or of the scores if those are unknown.

Inspect has a log for each system, written by Inspect itself; open them with `inspect view`. It computes the
results of a log, too: for each aspect the mean of the judged samples and its standard error, or the share of
each label. A result that too few samples leave undefined is omitted, not written as 0.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from localjudge.errors import SettingError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Judgement, Outcome, Row
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import averaged
from localjudge.runs.notices import kinds
from localjudge.runs.run_manifest import RunManifest

_LONGEST_STEM = 100
"""Largest number of characters of a system's name in the name of its log."""
Rows = Iterable[tuple[RowOutcome, Row | None]]
Answer = tuple[str | None, str | None]
"""A system, and its answer."""
Comparison = tuple[Row | None, Answer, Answer, float]
"""The texts of a row, two answers to its instruction, and the preference between them."""


def write_annotations(
    read: Callable[[], Rows],
    manifest: RunManifest,
    file: Path,
    baseline: str | None,
    origin: Mapping[str, Any],
) -> int:
    """Write the annotations and return their number.

    A failed row, or a response without a counterpart, has none. Pairs without the baseline are left out;
    without a baseline, each pair keeps its order.

    Args:
        read: yields the rows with their texts, each time that it is called.
        manifest: the manifest of the run.
        file: the file to write.
        baseline: the system of the first answers; responses need one.
        origin: columns that each annotation has besides its own.

    Raises:
        SettingError: no row is of the baseline, or no mean decides which response is better.
    """
    rubric = manifest.rubric
    is_compared = len(rubric.mode.responses) > 1
    found = _judged_pairs(read(), baseline) if is_compared else _matched_responses(read, rubric, baseline)
    annotations = [
        {
            "instruction": text.instruction if text else None,
            "output_1": first[1],
            "generator_1": first[0],
            "output_2": second[1],
            "generator_2": second[0],
            "annotator": f"localjudge {manifest.model.name} {rubric.name}",
            "preference": preference,
            **origin,
        }
        for text, first, second, preference in found
    ]
    file.write_text(json.dumps(annotations, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(annotations)


def _matched_responses(read: Callable[[], Rows], rubric: Rubric, baseline: str | None) -> Iterator[Comparison]:
    """Yield each response with that of the baseline to the same instruction."""
    of_baseline: dict[str | None, tuple[RowOutcome, Row | None]] = {}
    for row, text in read():
        if row.systems == (baseline,) and baseline is not None:
            before, _ = of_baseline.setdefault(row.first.group, (row, text))
            if before.first.digest != row.first.digest:
                differ = f"answers the instruction of {before.first.source} differently in {row.first.source}"
                advice = f"{differ}, so it has no single answer to compare with"
                raise SettingError("baseline", baseline, advice)
    if not of_baseline:
        systems = sorted({str(row.first.system) for row, _ in read()})
        raise SettingError("baseline", baseline, f"give one of the systems {', '.join(systems)}")
    if not averaged(rubric.score_columns):
        lacks = f"the rubric {rubric.name} has no ordered aspects that all have the same values"
        advice = f"{lacks}, so no mean decides which answer is better; judge with a rubric that has"
        raise SettingError("to", "alpaca-eval", advice)
    for row, text in read():
        other, other_text = of_baseline.get(row.first.group, (None, None))
        if row.first.system == baseline or other is None or row.error or other.error:
            continue
        ours, theirs = row.overall, other.overall
        first = baseline, other_text.candidate if other_text else None
        second = row.first.system, text.candidate if text else None
        yield text, first, second, 1.5 if ours == theirs else 2.0 if ours > theirs else 1.0


def _judged_pairs(pairs: Rows, baseline: str | None) -> Iterator[Comparison]:
    """Yield each judged pair; the preference is the weighted mean over the aspects."""
    systems: set[str] = set()
    for pair, text in pairs:
        systems.update(map(str, pair.systems))
        if pair.error is not None or baseline not in (None, *pair.systems):
            continue
        responses = text.texts_in_input_order(pair.first.swapped) if text else (None, None)
        first, second = zip(pair.systems, responses, strict=True)
        preference = pair.overall
        if baseline is not None and first[0] != baseline:
            first, second, preference = second, first, 1 - preference
        yield text, first, second, round(2 - preference, 6)
    if baseline is not None and baseline not in systems:
        raise SettingError("baseline", baseline, f"give one of the systems {', '.join(sorted(systems))}")


def write_logs(
    outcomes: Iterable[tuple[Outcome, Row | None]],
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
                "judge": manifest.model.name,
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
    found = []
    for name, aspect in aspects.items():
        options = {"categories": [*(aspect.labels or {}).values()], "normalize": True}
        shares = [{"name": "inspect_ai/frequency", "options": options}]
        found.append({"name": name, "metrics": metrics if aspect.labels is None else shares})
    return found


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


def _sample(outcome: Outcome, text: Row | None) -> Any:
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
