"""The rows of a page as columns: a few numbers for each, and the places of its lines and its text.

A run of 50,000 judgements is a hundred megabytes of text. Memory holds only the numbers that are counted,
drawn, filtered or sorted. A judgement's line and its row's text are read again when it is written to the page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from localjudge.errors import UsageError
from localjudge.matching.run_rows import RowValues, common_rubric, read_rows
from localjudge.matching.scores import NO_VALUE, ScoreValues, refuse_pairs
from localjudge.matching.system_names import UNNAMED
from localjudge.records import Judgement, Outcome
from localjudge.records.outcome_columns import RATIONALE, from_bytes, rationale_of
from localjudge.report.page import PageKind, PageRow
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import deciding
from localjudge.runs.reader import JUDGEMENTS
from localjudge.runs.reread_texts import RowTexts, RowTextStore
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.studies.score_interval import IntervalsOf
from localjudge.system.line_store import LineStore

_TYPED = {
    "i2": ("Int16Array", "<i2"), "i4": ("Int32Array", "<i4"), "u1": ("Uint8Array", "u1"),
    "f8": ("Float32Array", "<f4"),
}  # fmt: skip
"""The page's array of a numpy type, and the type of its bytes."""
SNIPPET = 160
"""Number of characters of an instruction that the list shows."""


@dataclass(frozen=True, slots=True)
class Columns:
    """N judgements or pairs in A aspects, by instruction; the instructions are in the order of their first row.

    Attributes:
        series: int16 (N,), an index into the series; (2, N) for both responses of a pair.
        group: int32 (N,), the number of the instruction; rows with equal instruction and reference share it.
        scores: int16 (A, N), the place of the score among the values of its aspect, or of a pair's winner in
            `WINNERS`; `NO_VALUE` if the row failed.
        expected: float64 (A, N), the expected score, or the preference for the first response; NaN if it is
            unknown, or the aspect has no order.
        overall: float64 (N,), the weighted mean of the expected scores, or of the scores where those are not
            known, over the columns that decide (`deciding`); NaN if the row failed, or no aspect is ordered.
        length: int32 (N,) or (2, N), characters of the responses; -1 if the texts were not found.
        flags: uint8 (N,), a sum of `FAILED` and the other bits.
        confidence: float64 (A, N), the probability of the score; NaN if it is unknown; None for pairs.
        agree: float64 (A, N), 1 if both orders say the same, a tie or a response, 0 if not; NaN for one order,
            and None for judgements.
        criteria: int32 (N + 1,), where the criteria of each row begin; `scores`, `expected` and `confidence`
            then are (A, M), one for each criterion. None for rows without criteria.
    """

    series: NDArray[np.int16]
    group: NDArray[np.int32]
    scores: NDArray[np.int16]
    expected: NDArray[np.float64]
    overall: NDArray[np.float64]
    length: NDArray[np.int32]
    flags: NDArray[np.uint8]
    confidence: NDArray[np.float64] | None = None
    agree: NDArray[np.float64] | None = None
    criteria: NDArray[np.int32] | None = None

    @property
    def scored_series(self) -> NDArray[np.int16]:
        """The series of each score."""
        return self.series if self.criteria is None else np.repeat(self.series, np.diff(self.criteria))


class ListedRows(ABC):
    """The rows of a page: what is judged in runs with the same aspects and scale.

    The rows stand by instruction, and the instructions in the order of their first row.

    Args:
        folders: the run directories.
        moved: the input files, if they were moved after the runs.

    Attributes:
        kind: the kind of the page.
        folders: the run directories.
        manifests: the content of each `run.json`.
        rubric: the rubric of the first run.
        rows: the rows.
        ids: their ids.
        lengths: int32 (N, R), characters of the R responses of each row; -1 if its texts were not found.
        snippets: the beginning of each instruction, or the id of its first row if the text was not found.
        series: the systems.
        columns: the numbers.
        notes: remarks on their names.
        problems: the reasons why texts are missing.

    Raises:
        UsageError: a folder is not a run of this kind, the runs differ in their aspects or scale, or a run was
            written while it was read.
    """

    kind: ClassVar[PageKind]
    _digits: ClassVar[int] = 6
    series: list[str]
    columns: Columns

    def __init__(self, folders: Sequence[Path], moved: Sequence[str] = ()) -> None:
        self.folders = list(folders)
        self.manifests = [read_manifest(folder) for folder in folders]
        self.rubric = common_rubric(folders, self.manifests)
        values = self._row_values(self.manifests)
        with ExitStack() as stack:
            files = [folder / JUDGEMENTS for folder in folders]
            self._lines = [stack.enter_context(LineStore.of_file(file)) for file in files]
            rows = read_rows(folders, self.manifests, values)
            for file, lines in zip(files, self._lines, strict=True):
                if not lines.is_in(file):
                    raise UsageError(f"{file}: was written again while it was read; repeat the command")
            _, self.notes = rows.names.names()
            order = np.argsort(rows.group, kind="stable")
            self.rows = rows.take(order)
            self._texts = [
                stack.enter_context(RowTextStore(manifest, self._digests(run), moved))
                for run, manifest in enumerate(self.manifests)
            ]
            self.problems = [
                f"{folder}: {problem}"
                for folder, texts in zip(folders, self._texts, strict=True)
                for problem in texts.problems
            ]
            self.lengths, self.snippets = self._measured()
            self._fill(values, order)
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[str]:
        return self.rows.ids

    @property
    def names_systems(self) -> bool:
        """Whether the page compares systems."""
        return True

    @property
    def found(self) -> int:
        """Number of rows whose texts were found in the inputs."""
        return int((self.lengths[:, 0] >= 0).sum())

    @abstractmethod
    def _row_values(self, manifests: Sequence[RunManifest]) -> RowValues[Any]:
        """Return what collects the values of the rows.

        Raises:
            UsageError: a run is of another kind.
        """

    @abstractmethod
    def _fill(self, values: Any, order: NDArray[np.intp]) -> None:
        """Make the columns of the values, which are in the order of the lines."""

    def arrays(self) -> Mapping[str, tuple[str, bytes]]:
        """Return the columns as the page's typed arrays; NaN means unknown."""
        found = {field.name: getattr(self.columns, field.name) for field in fields(self.columns)}
        return {
            name: typed(np.round(values, self._digits)) for name, values in found.items() if values is not None
        }

    def _digests(self, run: int) -> list[str | None]:
        return [self.rows.shown[row][0] for row in np.flatnonzero(self.rows.run == run).tolist()]

    def text(self, row: int) -> RowTexts | None:
        """Return the texts of a row, by its number; None if they were not found."""
        run = int(self.rows.run[row])
        return self._texts[run].get(self.rows.shown[row][0])

    def responses(self, row: int, text: RowTexts | None) -> tuple[str | None, ...]:
        """Return the responses of a row in the input's order; None for those that were not found."""
        count = len(self.rubric.mode.responses)
        return (None,) * count if text is None else text.responses(self.rows.shown[row][1])[:count]

    def outcomes(self, row: int) -> list[Outcome]:
        """Return the outcomes of a row's prompts, by its number."""
        run = int(self.rows.run[row])
        columns = self.manifests[run].rubric.columns
        return [from_bytes(self._lines[run][line], columns) for line in self.rows.lines[row]]

    def _measured(self) -> tuple[NDArray[np.int32], list[str]]:
        lengths, snippets = array("i"), dict[int, str]()
        for row, group in enumerate(self.rows.group.tolist()):
            text = self.text(row)
            lengths.extend(-1 if each is None else len(each) for each in self.responses(row, text))
            beginning = text and (text.instruction or next(iter(text.fields.values()), ""))
            snippets.setdefault(group, beginning[:SNIPPET] if beginning else self.ids[row])
        shape = -1, len(self.rubric.mode.responses)
        return np.asarray(lengths, np.int32).reshape(shape), list(snippets.values())


def typed(values: NDArray[Any]) -> tuple[str, bytes]:
    """Return the page's typed array of these numbers, little-endian: its name, and its bytes."""
    name, code = _TYPED[values.dtype.kind + str(values.dtype.itemsize)]
    return name, values.astype(code).tobytes()


class Judgements(ListedRows):
    """The judgements of runs with the same aspects and scale.

    Attributes:
        intervals_of: what gives the intervals of an outcome's scores.
    """

    intervals_of: IntervalsOf | None = None

    _digits = 3
    kind = PageKind("judgement_view.js", {"one": "judgement", "many": "judgements", "result": "Score"})

    def page_rows(self) -> Iterator[PageRow]:
        """Yield the judgements as the page reads them, in the order of the columns."""
        for row, group in enumerate(self.rows.group.tolist()):
            (outcome,), text = self.outcomes(row), self.text(row)
            rationale = outcome.rationale if isinstance(outcome, Judgement) else ""
            size = len(rationale) + len(text.candidate if text else "")
            intervals = self.intervals_of(outcome) if self.intervals_of else None
            yield PageRow(group, text, [*_values(outcome, text), intervals], size)

    def _row_values(self, manifests: Sequence[RunManifest]) -> RowValues[Any]:
        refuse_pairs(self.folders, manifests)
        return ScoreValues(self.rubric)

    def _fill(self, values: Any, order: NDArray[np.intp]) -> None:
        systems = [name for (name,) in self.rows.system_names([UNNAMED])]
        self.series = sorted(set(systems), key=lambda name: (name == UNNAMED, name))
        series = {name: place for place, name in enumerate(self.series)}
        self.columns = Columns(
            series=np.asarray([series[name] for name in systems], np.int16),
            group=self.rows.group.astype(np.int32),
            length=self.lengths[:, 0],
            flags=self.rows.flags,
            **self._scores(values, order),
        )

    def _scores(self, values: Any, order: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Return the columns with scores of the values at these places."""
        places = {column.name: place for place, column in enumerate(values.columns)}
        expected = np.full((len(self.rubric.aspects), len(order)), np.nan)
        for aspect, name in enumerate(self.rubric.aspects):
            if name in places:
                expected[aspect] = values.expected[order, places[name]]
        chosen = values.chosen[order].T
        return {
            "scores": chosen,
            "expected": expected,
            "confidence": values.confidence[order].T,
            "overall": _overall(self.rubric, chosen, expected),
        }


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
    return np.where((scores[0] == NO_VALUE) | (weights == 0), np.nan, total / (weights or 1))
