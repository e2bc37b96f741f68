"""Export a run as AlpacaEval annotations: for each instruction, which of two systems is preferred.

As in AlpacaEval, the preference is 1 for the baseline's answer, 2 for the other answer and 1.5 for a tie. It is
computed from the means over all aspects of the expected scores, or of the integers if those are not known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError

Line = Mapping[str, Any]


def write_annotations(
    lines: Callable[[], Iterable[Line]],
    manifest: Mapping[str, Any],
    aspects: Sequence[str],
    file: Path,
    baseline: str | None,
    origin: Mapping[str, Any],
) -> int:
    """Write the annotations and return their number. A failed row or one without a counterpart has none."""
    first = {line["group"]: line for line in lines() if line["system"] == baseline is not None}
    if not first:
        systems = sorted({str(line["system"]) for line in lines()})
        raise UsageError(f"--baseline {baseline}: give one of the systems {', '.join(systems)}")
    annotator = f"localjudge {manifest['model']['name']} {manifest['rubric']['name']}"
    annotations = []
    for line in lines():
        other = first.get(line["group"])
        if line["system"] == baseline or other is None or "failed" in (line["status"], other["status"]):
            continue
        ours, theirs = _mean(line, aspects), _mean(other, aspects)
        annotations.append(
            {
                "instruction": line["instruction"],
                "output_1": other["candidate"],
                "generator_1": baseline,
                "output_2": line["candidate"],
                "generator_2": line["system"],
                "annotator": annotator,
                "preference": 1.5 if ours == theirs else 2.0 if ours > theirs else 1.0,
                **origin,
            }
        )
    file.write_text(json.dumps(annotations, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(annotations)


def _mean(line: Line, aspects: Sequence[str]) -> float:
    expected = [line[f"{aspect}_expected"] for aspect in aspects]
    scores = [line[aspect] for aspect in aspects] if None in expected else expected
    return float(sum(scores)) / len(scores)
