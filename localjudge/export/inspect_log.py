"""Export a run as Inspect logs, one per system, written by Inspect itself; open them with `inspect view`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.runs.notices import kinds

Line = Mapping[str, Any]


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
        write_eval_log(log, str(folder / f"{re.sub(r'[^0-9A-Za-z._-]+', '_', system)}.eval"))
    return sum(map(len, samples.values()))


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
