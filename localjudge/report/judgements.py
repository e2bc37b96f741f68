"""The rows of a page as columns: a few numbers for each, and the places of its lines and its text.

A run of 50,000 judgements is a hundred megabytes of text. Memory holds only the numbers that are counted,
drawn, filtered or sorted. A judgement's line and its row's text are read again when it is written to the page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, Self

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
from localjudge.runs.reread_texts import RowTexts, RowTextStore
from localjudge.runs.run_manifest import read_manifest
from localjudge.system.line_store import LineStore

FAILED, RATIONALE_CUT, CANDIDATE_CUT = 1, 2, 4
"""The bits of a judgement's flags."""
NO_SCORE = -1
"""The place of the score of a row that failed."""
_TYPED = {
    "i2": ("Int16Array", "<i2"), "i4": ("Int32Array", "<i4"), "u1": ("Uint8Array", "u1"),
    "f8": ("Float32Array", "<f4"),
}  # fmt: skip
"""The page's array of a numpy type, and the type of its bytes."""
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


class ListedRows(ABC):
    """The rows of a page: what is judged in runs with the same aspects and scale.

    Args:
        folders: the run directories.
        moved: the input files, if they were moved after the runs.

    Attributes:
        manifests: the content of each `run.json`.
        rubric: the rubric of the first run.
        ids: the ids of the rows, in the order of the columns.
        snippets: the beginning of each instruction, or the id of its first row if the text was not found.
        problems: the reasons why texts are missing.

    Raises:
        UsageError: a folder is not a run of this kind, or the runs differ in their aspects or scale.
    """

    def __init__(self, folders: Sequence[Path], moved: Sequence[str] = ()) -> None:
        self.folders = list(folders)
        self.manifests = [read_manifest(folder) for folder in folders]
        self.rubric = common_rubric(folders, self.manifests)
        self._systems = SystemNames(run_names(folders), [manifest.judge for manifest in self.manifests])
        self._texts: list[RowTextStore] = []
        self._files: list[IO[bytes]] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.snippets: list[str] = []
        self._groups: dict[str, int] = {}
        self._runs, self._group = array("h"), array("i")
        self._places: list[tuple[int, ...]] = []
        with ExitStack() as stack:
            for folder, manifest in zip(self.folders, self.manifests, strict=True):
                texts = RowTextStore(manifest, self._with_texts(folder), moved)
                self._texts.append(stack.enter_context(texts))
                self._files.append(stack.enter_context((folder / JUDGEMENTS).open("rb")))
                self.problems += [f"{folder}: {problem}" for problem in texts.problems]
            self._lines = [LineStore(file) for file in self._files]
            self._read()
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __len__(self) -> int:
        return len(self.ids)

    @abstractmethod
    def _with_texts(self, folder: Path) -> Iterable[Outcome]:
        """Return the outcomes of a run whose texts the page shows."""

    @abstractmethod
    def _read(self) -> None:
        """Read all runs into columns."""

    def _outcomes(self) -> Iterator[tuple[int, int, Outcome]]:
        """Yield each outcome with the numbers of its run and its line."""
        for run, (file, manifest) in enumerate(zip(self._files, self.manifests, strict=True)):
            for place, (piece, outcome) in enumerate(journal_lines(file, manifest.rubric.columns)):
                self._lines[run].add(len(piece))
                yield run, place, outcome

    def _outcome(self, run: int, place: int) -> Outcome:
        return from_bytes(self._lines[run][place], self.manifests[run].rubric.columns)

    def _add(self, run: int, places: tuple[int, ...], outcome: Outcome) -> RowTexts | None:
        """Add a row, and return its texts if they were found.

        Args:
            run: the number of its run.
            places: the numbers of its lines.
            outcome: the outcome in the first of them.
        """
        text = self._texts[run].get(outcome)
        same = outcome.group or f"{self.folders[run]}\0{outcome.source}"
        if same not in self._groups:
            self._groups[same] = len(self._groups)
            beginning = text and (text.instruction or next(iter(text.fields.values()), ""))
            self.snippets.append(beginning[:SNIPPET] if beginning else outcome.id)
        self._runs.append(run)
        self._places.append(places)
        self.ids.append(outcome.id)
        self._group.append(self._groups[same])
        return text

    def _sorted(self) -> NDArray[np.int64]:
        """Sort the rows by instruction, and return their order."""
        order = np.argsort(np.asarray(self._group, np.int32), kind="stable")
        self._runs = array("h", np.asarray(self._runs, np.int16)[order].tobytes())
        self._group = array("i", np.asarray(self._group, np.int32)[order].tobytes())
        self._places = [self._places[place] for place in order.tolist()]
        self.ids = [self.ids[place] for place in order.tolist()]
        return order


def typed(values: NDArray[Any]) -> tuple[str, bytes]:
    """Return the page's typed array of these numbers, little-endian: its name, and its bytes."""
    name, code = _TYPED[values.dtype.kind + str(values.dtype.itemsize)]
    return name, values.astype(code).tobytes()


class Judgements(ListedRows):
    """The judgements of runs with the same aspects and scale.

    Attributes:
        series: the systems, in the order of their names.
        names: the name of each system by the number of its run and its name there, as in `SystemNames`.
        notes: remarks on these names.
        columns: the numbers.
    """

    kind = PageKind("judgement_view.js", {"one": "judgement", "many": "judgements", "result": "Score"})

    def __iter__(self) -> Iterator[tuple[Outcome, RowTexts | None]]:
        """Yield each outcome with the texts of its row, in the order of the columns."""
        for run, place in zip(self._runs, self._places, strict=True):
            outcome = self._outcome(run, *place)
            yield outcome, self._texts[run].get(outcome)

    def page_rows(self) -> Iterator[PageRow]:
        """Yield the judgements as the page reads them, in the order of the columns."""
        for instruction, (outcome, text) in zip(self.columns.group.tolist(), self, strict=True):
            rationale = outcome.rationale if isinstance(outcome, Judgement) else ""
            size = len(rationale) + len(text.candidate if text else "")
            yield PageRow(instruction, text, _values(outcome, text), size)

    def arrays(self) -> Mapping[str, tuple[str, bytes]]:
        """Return the columns as the page's typed arrays; NaN means unknown."""
        found = {field.name: getattr(self.columns, field.name) for field in fields(self.columns)}
        return {name: typed(np.round(values, 3)) for name, values in found.items()}

    @property
    def found(self) -> int:
        """Number of judgements whose row was found in the inputs."""
        return int((self.columns.length >= 0).sum())

    def _with_texts(self, folder: Path) -> Iterable[Outcome]:
        return read_outcomes(folder)

    def _read(self) -> None:
        aspects = self.rubric.aspects
        places_of = {
            name: {value: place for place, value in enumerate(aspect.values.values())}
            for name, aspect in aspects.items()
        }
        systems: list[tuple[int, str | None]] = []
        scores, expected, confidence = array("h"), array("d"), array("d")
        length, flags = array("i"), array("B")
        unknown = [np.nan] * len(aspects)
        for run, place, outcome in self._outcomes():
            text = self._add(run, (place,), outcome)
            self._systems.add_outcome(run, outcome)
            systems.append((run, outcome.system))
            length.append(len(text.candidate) if text else -1)
            if not isinstance(outcome, Judgement):
                flags.append(FAILED)
                scores.extend([NO_SCORE] * len(aspects))
                expected.extend(unknown)
                confidence.extend(unknown)
                continue
            flags.append(RATIONALE_CUT * outcome.rationale_cut + CANDIDATE_CUT * (outcome.candidate_cut > 0))
            for name, place_of in places_of.items():
                chosen, shares = place_of[outcome.scores[name]], outcome.probabilities.get(name)
                scores.append(chosen)
                expected.append(outcome.expected.get(name, np.nan))
                confidence.append(np.nan if shares is None else shares[chosen])
        order = self._sorted()
        self.names, self.notes = self._systems.names()
        self.series = sorted(set(self.names.values()), key=lambda name: (name == UNNAMED, name))
        place_of_series = {name: place for place, name in enumerate(self.series)}
        wide = (-1, len(aspects))
        scores_of = np.asarray(scores, np.int16).reshape(wide)[order].T
        expected_of = np.asarray(expected).reshape(wide)[order].T
        self.columns = Columns(
            series=np.asarray([place_of_series[self.names[each]] for each in systems], np.int16)[order],
            group=np.asarray(self._group, np.int32),
            scores=scores_of,
            expected=expected_of,
            confidence=np.asarray(confidence).reshape(wide)[order].T,
            overall=_overall(self.rubric, scores_of, expected_of),
            length=np.asarray(length, np.int32)[order],
            flags=np.asarray(flags, np.uint8)[order],
        )


def _values(outcome: Outcome, text: RowTexts | None) -> list[Any]:
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
