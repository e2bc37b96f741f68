"""Export a run as AlpacaEval annotations: for each instruction, which of two systems is preferred.

As in AlpacaEval, the preference is 1 for the first answer, which is the baseline's, 2 for the other answer and
1.5 for a tie. In a run of pairs it is any number from 1 to 2: 1 plus the judge's preference for the other
answer. For scores of single responses it is computed from the means over the ordered aspects of the expected
scores, or of the scores if those are unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import SettingError
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.rubrics.score_column import averaged, overall
from localjudge.runs.reread_texts import RowTexts
from localjudge.runs.run_manifest import RunManifest


def write_annotations(
    read: Callable[[], Iterable[tuple[Outcome, RowTexts | None]]],
    manifest: RunManifest,
    file: Path,
    baseline: str | None,
    origin: Mapping[str, Any],
) -> int:
    """Write the annotations and return their number. A failed row or one without a counterpart has none."""
    first: dict[str | None, tuple[Outcome, RowTexts | None]] = {}
    for outcome, text in read():
        if outcome.system == baseline is not None:
            before, _ = first.setdefault(outcome.group, (outcome, text))
            if before.digest != outcome.digest:
                differ = f"answers the instruction of {before.source} differently in {outcome.source}"
                raise SettingError(
                    "baseline", baseline, f"{differ}, so it has no single answer to compare with"
                )
    if not first:
        systems = sorted({str(outcome.system) for outcome, _ in read()})
        raise SettingError("baseline", baseline, f"give one of the systems {', '.join(systems)}")
    columns = averaged(manifest.rubric.score_columns)
    if not columns:
        lacks = f"the rubric {manifest.rubric.name} has no ordered aspects that all have the same values"
        advice = f"{lacks}, so no mean decides which answer is better; judge with a rubric that has"
        raise SettingError("to", "alpaca-eval", advice)
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
                "annotator": _annotator(manifest),
                "preference": 1.5 if ours == theirs else 2.0 if ours > theirs else 1.0,
                **origin,
            }
        )
    return _write(annotations, file)


def write_preferences(
    pairs: Iterable[tuple[PairOutcome, RowTexts | None]],
    manifest: RunManifest,
    file: Path,
    baseline: str | None,
    origin: Mapping[str, Any],
) -> int:
    """Write an annotation for each judged pair and return their number.

    The preference is the weighted mean over the aspects. The answer of the baseline is the first one, and pairs
    without the baseline are left out. Without a baseline, each pair keeps its order.
    """
    weights = {name: aspect.weight for name, aspect in manifest.rubric.aspects.items()}
    annotations: list[dict[str, Any]] = []
    systems: set[str] = set()
    for pair, text in pairs:
        systems.update(map(str, pair.systems))
        if pair.error is not None or baseline not in (None, *pair.systems):
            continue
        first = sum(pair.preferences[name].value * weight for name, weight in weights.items())
        first /= sum(weights.values())
        responses = text.responses(pair.orders[0].swapped) if text else (None, None)
        sides = [(system, said) for system, said in zip(pair.systems, responses, strict=True)]
        if baseline is not None and pair.systems[0] != baseline:
            sides, first = sides[::-1], 1 - first
        (system_1, output_1), (system_2, output_2) = sides
        annotations.append(
            {
                "instruction": text and text.instruction,
                "output_1": output_1,
                "generator_1": system_1,
                "output_2": output_2,
                "generator_2": system_2,
                "annotator": _annotator(manifest),
                "preference": round(2 - first, 6),
                **origin,
            }
        )
    if baseline is not None and baseline not in systems:
        raise SettingError("baseline", baseline, f"give one of the systems {', '.join(sorted(systems))}")
    return _write(annotations, file)


def _annotator(manifest: RunManifest) -> str:
    return f"localjudge {manifest.model.name} {manifest.rubric.name}"


def _write(annotations: list[dict[str, Any]], file: Path) -> int:
    file.write_text(json.dumps(annotations, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(annotations)
