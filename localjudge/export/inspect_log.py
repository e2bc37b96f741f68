"""Export a run as Inspect logs, one per system, written by Inspect itself; open them with `inspect view`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.runs.notices import kinds

Line = Mapping[str, Any]
_LONGEST_STEM = 100


def write_logs(
    lines: Iterable[Line],
    manifest: Mapping[str, Any],
    aspects: Sequence[str],
    folder: Path,
    notices: Sequence[str],
) -> int:
    """Write a log for each system and return the number of samples. All texts are held in memory."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSpec, write_eval_log

    start = manifest["starts"][-1]
    samples = defaultdict(list)
    for line in lines:
        samples[line["system"] or "unnamed"].append(_sample(line, aspects))
    folder.mkdir()
    names = _file_names(samples)
    for system, theirs in samples.items():
        spec = EvalSpec(
            created=start["started"],
            task=f"localjudge/{manifest['rubric']['name']}",
            dataset=EvalDataset(name=", ".join(start["inputs"]), samples=len(theirs)),
            model=system,
            config=EvalConfig(),
            tags=kinds(notices).split(", ") if notices else None,
            metadata={
                "judge": manifest["model"]["name"],
                "notices": list(notices),
                "settings": manifest["settings"],
            },
        )
        log = EvalLog(status="success", eval=spec, samples=theirs)
        write_eval_log(log, str(folder / names[system]))
    return sum(map(len, samples.values()))


def _file_names(systems: Iterable[str]) -> dict[str, str]:
    """Return a file name for each system; no two are equal, whatever the case and the signs in their names."""
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


def _sample(line: Line, aspects: Sequence[str]) -> Any:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    scores = {
        aspect: Score(
            value=line[aspect],
            explanation=line["rationale"],
            metadata={name: line[f"{aspect}_{name}"] for name in ("expected", "probabilities")},
        )
        for aspect in aspects
        if line["status"] == "judged"
    }
    error = line["error"]
    return EvalSample(
        id=f"{line['row']}-{line['id']}",
        epoch=1,
        input=line["instruction"] or "",
        target=line["reference"] or "",
        output=ModelOutput.from_content(line["system"] or "unnamed", line["candidate"] or ""),
        scores=scores,
        metadata={"source": line["source"], "rationale_cut": line["rationale_cut"], **line["columns"]},
        error=EvalError(message=error, traceback="", traceback_ansi="") if error else None,
    )
