"""The judgements of several runs as columns: a few numbers for each, and the place of its line and its text.

A run of 50,000 judgements is a hundred megabytes of text. Memory holds only the numbers that are counted,
drawn, filtered or sorted. A judgement's line and its row's text are read again when it is written to the page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.matching.scores import common_rubric, run_names
from localjudge.analysis.matching.system_names import UNNAMED, SystemNames
from localjudge.records import Judgement, Outcome
from localjudge.records.outcome_columns import RATIONALE, from_bytes, rationale_of
from localjudge.report.page import PageKind, PageRow
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import deciding
from localjudge.runs.journal import journal_lines
from localjudge.runs.reader import JUDGEMENTS, read_outcomes
from localjudge.runs.reread_texts import Text, Texts
from localjudge.runs.run_manifest import read_manifest
from localjudge.system.line_store import LineStore

FAILED, RATIONALE_CUT, CANDIDATE_CUT = 1, 2, 4
"""The bits of a judgement's flags."""
NO_SCORE = -1
"""The place of the score of a row that failed."""
SNIPPET = 160
"""Number of characters of an instruction that the list shows."""


@dataclass(frozen=True, slots=True)
class Columns:
    """N judgements on A aspects, grouped by instruction; the groups are in the order of their first row.

    Attributes:
        series: int16 (N,), an index into the series.
        group: int32 (N,), the number of the instruction; rows with equal instruction and reference share it.
        scores: int16 (A, N), the place of the score among the values of its aspect; `NO_SCORE` if the row
            failed.
        expected: float64 (A, N), the expected score; NaN if it is unknown, or the aspect has no order.
        confidence: float64 (A, N), the probability of the score; NaN if it is unknown.
        overall: float64 (N,), the weighted mean of the expected scores, or of the scores where those are not
            known, over the columns that decide (`deciding`); NaN if the row failed, or no aspect is ordered.
        length: int32 (N,), characters of the candidate; -1 if its text was not found.
        flags: uint8 (N,), a sum of `FAILED` and the other bits.
    """

    series: NDArray[np.int16]
    group: NDArray[np.int32]
    scores: NDArray[np.int16]
    expected: NDArray[np.float64]
    confidence: NDArray[np.float64]
    overall: NDArray[np.float64]
    length: NDArray[np.int32]
    flags: NDArray[np.uint8]


class Judgements(AbstractContextManager["Judgements"]):
    """The judgements of runs with the same aspects and scale.

    Args:
        folders: the run directories.
        moved: the input files, if they were moved after the runs.

    Attributes:
        manifests: the content of each `run.json`.
        rubric: the rubric of the first run.
        series: the systems, in the order of their names.
        names: the name of each system by the number of its run and its name there, as in `SystemNames`.
        notes: remarks on these names.
        ids: the ids of the rows, in the order of the columns.
        snippets: the beginning of each instruction, or the id of its first row if the text was not found.
        columns: the numbers.
        problems: the reasons why texts are missing.

    Raises:
        UsageError: a folder is not a run, or the runs differ in their aspects or scale.
    """

    kind = PageKind("judgement_view.js", {"one": "judgement", "many": "judgements", "result": "Score"})

    def __init__(self, folders: Sequence[Path], moved: Sequence[str] = ()) -> None:
        self.folders = list(folders)
        self.manifests = [read_manifest(folder) for folder in folders]
        self.rubric = common_rubric(folders, self.manifests)
        self._texts: list[Texts] = []
        self._files: list[IO[bytes]] = []
        self.problems: list[str] = []
        with ExitStack() as stack:
            for folder, manifest in zip(self.folders, self.manifests, strict=True):
                texts = Texts(manifest, read_outcomes(folder), moved)
                self._texts.append(stack.enter_context(texts))
                self._files.append(stack.enter_context((folder / JUDGEMENTS).open("rb")))
            self._lines = [LineStore(file) for file in self._files]
            self._read()
            self._open = stack.pop_all()

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[Outcome, Text | None]]:
        """Yield each outcome with the texts of its row, in the order of the columns."""
        for run, place in zip(self._runs, self._places, strict=True):
            outcome = from_bytes(self._lines[run][place], self.manifests[run].rubric.columns)
            yield outcome, self._texts[run].get(outcome)

    def page_rows(self) -> Iterator[PageRow]:
        """Yield the judgements as the page reads them, in the order of the columns."""
        for instruction, (outcome, text) in zip(self.columns.group.tolist(), self, strict=True):
            rationale = outcome.rationale if isinstance(outcome, Judgement) else ""
            size = len(rationale) + len(text.candidate if text else "")
            yield PageRow(instruction, text, _values(outcome, text), size)

    def arrays(self) -> Mapping[str, tuple[str, bytes]]:
        """Return the columns as the page's typed arrays, little-endian; NaN means unknown."""
        columns = self.columns

        def rounded(values: NDArray[np.float64]) -> bytes:
            return np.round(values, 3).astype("<f4").tobytes()

        return {
            "series": ("Int16Array", columns.series.astype("<i2").tobytes()),
            "group": ("Int32Array", columns.group.astype("<i4").tobytes()),
            "scores": ("Int16Array", columns.scores.astype("<i2").tobytes()),
            "expected": ("Float32Array", rounded(columns.expected)),
            "confidence": ("Float32Array", rounded(columns.confidence)),
            "overall": ("Float32Array", rounded(columns.overall)),
            "length": ("Int32Array", columns.length.astype("<i4").tobytes()),
            "flags": ("Uint8Array", columns.flags.tobytes()),
        }

    @property
    def found(self) -> int:
        """Number of judgements whose row was found in the inputs."""
        return int((self.columns.length >= 0).sum())

    def _read(self) -> None:
        aspects = self.rubric.aspects
        places_of = {
            name: {value: place for place, value in enumerate(aspect.values.values())}
            for name, aspect in aspects.items()
        }
        names = SystemNames(run_names(self.folders), [manifest.judge for manifest in self.manifests])
        systems: list[tuple[int, str | None]] = []
        groups: dict[str, int] = {}
        ids, snippets = [], []
        runs, places, group = array("h"), array("q"), array("i")
        scores, expected, confidence = array("h"), array("d"), array("d")
        length, flags = array("i"), array("B")
        unknown = [np.nan] * len(aspects)
        for run, folder in enumerate(self.folders):
            rubric = self.manifests[run].rubric
            for place, (piece, outcome) in enumerate(journal_lines(self._files[run], rubric.columns)):
                self._lines[run].add(len(piece))
                text = self._texts[run].get(outcome)
                same = outcome.group or f"{folder}\0{outcome.source}"
                if same not in groups:
                    groups[same] = len(groups)
                    told = text and (text.instruction or next(iter(text.fields.values()), ""))
                    snippets.append(told[:SNIPPET] if told else outcome.id)
                runs.append(run)
                places.append(place)
                ids.append(outcome.id)
                names.add_outcome(run, outcome)
                systems.append((run, outcome.system))
                group.append(groups[same])
                length.append(len(text.candidate) if text else -1)
                if not isinstance(outcome, Judgement):
                    flags.append(FAILED)
                    scores.extend([NO_SCORE] * len(aspects))
                    expected.extend(unknown)
                    confidence.extend(unknown)
                    continue
                flags.append(
                    RATIONALE_CUT * outcome.rationale_cut + CANDIDATE_CUT * (outcome.candidate_cut > 0)
                )
                for name, place_of in places_of.items():
                    chosen, shares = place_of[outcome.scores[name]], outcome.probabilities.get(name)
                    scores.append(chosen)
                    expected.append(outcome.expected.get(name, np.nan))
                    confidence.append(np.nan if shares is None else shares[chosen])
        order = np.argsort(np.asarray(group), kind="stable") if ids else np.array([], np.int64)
        self.names, self.notes = names.names()
        self.series = sorted(set(self.names.values()), key=lambda name: (name == UNNAMED, name))
        place_of_series = {name: place for place, name in enumerate(self.series)}
        wide = (-1, len(aspects))
        self._runs = np.asarray(runs)[order].tolist()
        self._places = np.asarray(places)[order].tolist()
        self.ids = [ids[place] for place in order.tolist()]
        self.snippets = snippets
        scores_of = np.asarray(scores, np.int16).reshape(wide)[order].T
        expected_of = np.asarray(expected).reshape(wide)[order].T
        self.columns = Columns(
            series=np.asarray([place_of_series[self.names[each]] for each in systems], np.int16)[order],
            group=np.asarray(group, np.int32)[order],
            scores=scores_of,
            expected=expected_of,
            confidence=np.asarray(confidence).reshape(wide)[order].T,
            overall=_overall(self.rubric, scores_of, expected_of),
            length=np.asarray(length, np.int32)[order],
            flags=np.asarray(flags, np.uint8)[order],
        )
        for folder, texts in zip(self.folders, self._texts, strict=True):
            self.problems += [f"{folder}: {problem}" for problem in texts.problems]


def _values(outcome: Outcome, text: Text | None) -> list[Any]:
    """Return what the page shows of a judgement; `FIELDS` in `judgement_view.js` names the values."""
    judged = outcome if isinstance(outcome, Judgement) else None
    own = judged and {
        aspect: judged.texts[rationale_of(aspect)]
        for aspect in judged.scores
        if rationale_of(aspect) in judged.texts
    }
    return [
        text.candidate if text else None,
        judged and judged.texts.get(RATIONALE),
        None if isinstance(outcome, Judgement) else outcome.error,
        judged and judged.thoughts,
        rounded_shares(judged) if judged else None,
        outcome.source,
        judged.candidate_cut if judged else 0,
        outcome.columns,
        own or None,
    ]


def rounded_shares(judgement: Judgement) -> dict[str, list[float]] | None:
    """Return the probabilities of each aspect as the page shows them; None without any."""
    found = judgement.probabilities.items()
    return {aspect: [round(share, 4) for share in shares] for aspect, shares in found} or None


def _overall(rubric: Rubric, scores: NDArray[np.int16], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean over the columns that decide which response is better, (N,).

    Args:
        rubric: the rubric.
        scores: the places of the scores among the values of their aspects, (A, N).
        expected: the expected scores, (A, N).
    """
    total, weights = np.zeros(scores.shape[1]), 0.0
    for column in deciding(rubric.score_columns):
        place = [*rubric.aspects].index(column.name)
        numbers, means = np.array([*column.numbers.values()]), expected[place]
        total += column.weight * np.where(np.isnan(means), numbers[scores[place]], means)
        weights += column.weight
    return np.where((scores[0] == NO_SCORE) | (weights == 0), np.nan, total / (weights or 1))
