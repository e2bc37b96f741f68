"""Write a jury's scores as a run: the median and the mean of the jurors for each row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.analysis.run_writer import write_run
from localjudge.analysis.scores import common_rubric, run_names
from localjudge.records import Failure, Judgement, Outcome
from localjudge.runs.notices import is_dry_run, together
from localjudge.runs.reader import read_lines, read_notices
from localjudge.runs.run_manifest import read_manifest
from localjudge.runs.summary import Summary


def write_jury(folders: Sequence[Path], out: Path) -> Summary:
    """Write the jury's scores as a run: the integer is the jurors' median, the expected score their mean.

    A row that a juror has not judged is a failure, because a mean over fewer jurors is not comparable.

    Args:
        folders: the runs, one per juror.
        out: the run directory to create.

    Raises:
        UsageError: the folder holds something, or the runs' aspects or scales differ.
    """
    manifests = [read_manifest(folder) for folder in folders]
    names = run_names(folders)
    rubric = common_rubric(folders, manifests)
    settings = [manifest["settings"] for manifest in manifests]
    start = manifests[0]["starts"][-1]
    return write_run(
        out,
        _outcomes(folders, names, rubric.aspects),
        rubric=rubric,
        settings={
            "engine": "jury",
            "rubric": rubric.digest,
            "model": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        },
        model=f"jury of {', '.join(names)}",
        inputs=start["inputs"],
        columns=start["columns"],
        jury=[
            {"name": name, "run": str(folder.resolve()), "model": manifest["model"]["name"], "settings": own}
            for name, folder, manifest, own in zip(names, folders, manifests, settings, strict=True)
        ],
        dry_run=any(map(is_dry_run, manifests)),
        inherited_notices=together(names, [read_notices(folder) for folder in folders]),
    )


def _outcomes(folders: Sequence[Path], names: Sequence[str], aspects: tuple[str, ...]) -> Iterator[Outcome]:
    others = [_Lookup(folder) for folder in folders[1:]]
    for line in read_lines(folders[0]):
        lines = [line, *(other.find(line["id"], line["system"]) for other in others)]
        common = {name: line[name] for name in ("id", "system", "group", "digest", "source", "columns")}
        keys = [each and each["key"] for each in lines]
        common["key"] = hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:32]
        missing = next(
            (place for place, each in enumerate(lines) if each is None or each["status"] == "failed"), None
        )
        if missing is not None:
            found = lines[missing]
            why = "has no such row" if found is None else f"failed: {found['error']}"
            yield Failure(**common, error=f"juror {names[missing]} {why}")
            continue
        yield _together([each for each in lines if each], names, aspects, common)


def _together(
    lines: Sequence[Mapping[str, Any]], names: Sequence[str], aspects: tuple[str, ...], common: dict[str, Any]
) -> Judgement:
    """Return one judgement from several of the same row."""
    expected = {}
    for aspect in aspects:
        own = [line[f"{aspect}_expected"] for line in lines]
        own = [line[aspect] for line in lines] if None in own else own
        expected[aspect] = sum(own) / len(own)
    each = {name: {aspect: line[aspect] for aspect in aspects} for name, line in zip(names, lines, strict=True)}
    return Judgement(
        **{**common, "columns": {**common["columns"], "jury": each}},
        rationale="\n\n".join(f"{name}: {line['rationale']}" for name, line in zip(names, lines, strict=True)),
        scores={aspect: median([line[aspect] for line in lines]) for aspect in aspects},
        expected=expected,
        probabilities=_mean_probabilities(lines, aspects),
        rationale_cut=any(line["rationale_cut"] for line in lines),
        candidate_cut=max(line["candidate_cut"] or 0 for line in lines),
        prompt_tokens=sum(line["prompt_tokens"] for line in lines),
        output_tokens=sum(line["output_tokens"] for line in lines),
    )


def _mean_probabilities(
    lines: Sequence[Mapping[str, Any]], aspects: tuple[str, ...]
) -> dict[str, list[float]] | None:
    found = {}
    for aspect in aspects:
        own = [line[f"{aspect}_probabilities"] for line in lines]
        if None in own:
            return None
        found[aspect] = [sum(values) / len(values) for values in zip(*own, strict=True)]
    return found


class _Lookup:
    """The lines of a run by their row. Only those that come before their turn are kept, and runs of the same
    input have theirs in the same order."""

    def __init__(self, folder: Path) -> None:
        self._lines = read_lines(folder)
        self._waiting: dict[tuple[str, str | None], list[dict[str, Any]]] = {}

    def find(self, name: str, system: str | None) -> dict[str, Any] | None:
        """Return the next line of this row."""
        if waiting := self._waiting.get((name, system)):
            return waiting.pop(0)
        for line in self._lines:
            if (line["id"], line["system"]) == (name, system):
                return line
            self._waiting.setdefault((line["id"], line["system"]), []).append(line)
        return None


def median(values: Sequence[int]) -> int:
    """Return the median; of two middle scores, the one closer to the mean, and on a tie the lower."""
    ranked = sorted(values)
    low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    mean = sum(ranked) / len(ranked)
    return high if high - mean < mean - low else low
