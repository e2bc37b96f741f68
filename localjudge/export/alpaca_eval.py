"""Export a run as AlpacaEval annotations: for each instruction, which of two systems is preferred.

As in AlpacaEval, the preference is 1 for the baseline's answer, 2 for the other answer and 1.5 for a tie. It is
computed from the means over the ordered aspects of the expected scores, or of the scores if those are unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.score_column import overall
from localjudge.runs.reread_texts import Text
from localjudge.runs.run_manifest import RunManifest


def write_annotations(
    read: Callable[[], Iterable[tuple[Outcome, Text | None]]],
    manifest: RunManifest,
    file: Path,
    baseline: str | None,
    origin: Mapping[str, Any],
) -> int:
    """Write the annotations and return their number. A failed row or one without a counterpart has none."""
    first = {
        outcome.group: (outcome, text) for outcome, text in read() if outcome.system == baseline is not None
    }
    if not first:
        systems = sorted({str(outcome.system) for outcome, _ in read()})
        raise UsageError(f"--baseline {baseline}: give one of the systems {', '.join(systems)}")
    columns = manifest.rubric.score_columns
    if not any(column.weight for column in columns):
        raise UsageError(
            f"--to alpaca-eval: the rubric {manifest.rubric.name} has no ordered aspect, so no mean decides "
            "which answer is better"
        )
    annotator = f"localjudge {manifest.model.judge} {manifest.rubric.name}"
    annotations = []
    for outcome, text in read():
        other, other_text = first.get(outcome.group, (None, None))
        if outcome.system == baseline or not (isinstance(outcome, Judgement) and isinstance(other, Judgement)):
            continue
        ours, theirs = overall(outcome, columns), overall(other, columns)
        annotations.append(
            {
                "instruction": text and text.instruction,
                "output_1": other_text and other_text.candidate,
                "generator_1": baseline,
                "output_2": text and text.candidate,
                "generator_2": outcome.system,
                "annotator": annotator,
                "preference": 1.5 if ours == theirs else 2.0 if ours > theirs else 1.0,
                **origin,
            }
        )
    file.write_text(json.dumps(annotations, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(annotations)
