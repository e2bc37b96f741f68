"""What people label: which row a person gets next, what is shown of it, and what is kept of the answer."""

from __future__ import annotations

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from localjudge.errors import UsageError
from localjudge.labelling.label_file import LabelFile
from localjudge.labelling.sample import Candidates, draw
from localjudge.records import Row
from localjudge.records.keys import RESPONSE_DIGESTS
from localjudge.records.outcome_columns import PAIR_DIGESTS, PAIR_SYSTEMS
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric
from localjudge.system.quantities import counted

_SAME = 1e-9
"""Largest difference of two equal chances."""
_MOST_SECONDS = 1_000_000
"""The longest time that a row can have been visible."""


class LabelSession:
    """The people and their rows.

    Args:
        rubric: the aspects.
        candidates: the rows.
        file: the file of labels; its lines are not asked for again.
        overlap: the share of the instructions that everyone labels; the others are labelled by one person.
        seed: seed of the sample and of each person's order.

    Raises:
        UsageError: the file was begun with another sample.
    """

    def __init__(
        self,
        rubric: Rubric,
        candidates: Candidates,
        file: LabelFile,
        overlap: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.rubric = rubric
        self._candidates = candidates
        self._file = file
        self._seed = seed
        self._check_labels()
        drawn = draw(candidates.chance, np.random.default_rng(seed))  # the instructions of the sample
        labelled_by_everyone = drawn[: math.ceil(overlap * len(drawn))]
        self._common = set(labelled_by_everyone.tolist())
        self._rows = np.flatnonzero(np.isin(candidates.group, drawn))  # the rows of the sample
        self._row_of_key = {candidates.keys[row]: row for row in self._rows.tolist()}
        self._orders: dict[str, list[int]] = {}
        self._on_screen: dict[int, str] = {}  # the row on each person's screen
        self._by: dict[str, set[str]] = {}  # who has answered each row
        self._read_lines()

    def __len__(self) -> int:
        """The number of rows in the sample."""
        return len(self._rows)

    def progress(self, annotator: str) -> dict[str, float]:
        """Return how many rows a person has labelled and skipped, how many are left, and the seconds a row."""
        answers = [line["label"] for line in self._file.lines if line["annotator"] == annotator]
        skipped = sum(answer["skipped"] is not None for answer in answers)
        left = sum(self._is_open(row, annotator) for row in self._rows.tolist())
        seconds = sum(answer["seconds"] or 0 for answer in answers)
        pace = seconds / len(answers) if answers else 0
        return {"labelled": len(answers) - skipped, "skipped": skipped, "left": left, "pace": pace}

    def next(self, annotator: str) -> dict[str, Any] | None:
        """Return a person's next row as the page shows it; None at the end."""
        self._clear_screen(annotator)
        for row in self._order(annotator):
            is_free = row not in self._on_screen or self._is_common(row)
            if is_free and self._is_open(row, annotator):
                self._on_screen.setdefault(row, annotator)
                return self._shown(row, annotator)
        return None

    def _clear_screen(self, annotator: str) -> None:
        """Forget which row a person sees."""
        self._on_screen = {row: name for row, name in self._on_screen.items() if name != annotator}

    def add(self, annotator: str, key: str, answer: Mapping[str, Any]) -> bool:
        """Keep a person's answer; False if the person has answered this row already.

        Args:
            annotator: the person.
            key: the key of the row.
            answer: the text of the value of each aspect in `values`; or why the row is skipped in `skipped`.
                Also `seconds` and `note`.

        Raises:
            UsageError: there is no such row, a value is not one of its aspect or another part of the answer is
                invalid, or the file is not a label file of this sample any more.
            OSError: the answer could not be written.
        """
        row = self._row_of_key.get(key)
        if row is None:
            raise UsageError("this row is not in the sample; reload the page")
        if self._file.refresh():
            self._read_lines()
        if annotator in self._by.get(key, ()):
            return False
        self._file.add(self._line(row, annotator, answer))
        self._read_lines()
        return True

    def undo(self, annotator: str) -> dict[str, Any] | None:
        """Remove a person's last label, and return its row; None if there is none."""
        try:
            line = self._file.remove_last(lambda line: bool(line["annotator"] == annotator))
        finally:
            self._read_lines()
        if line is None:
            return None
        row = self._row_of_key.get(line["label"]["row"])
        if row is None:
            return None
        self._clear_screen(annotator)
        self._on_screen[row] = annotator
        shown = self._shown(row, annotator)
        shown["before"] = line["label"]
        return shown

    def message_of_changes(self) -> str:
        """Return what another program has removed from the file since the last call; empty for nothing."""
        lost = self._file.lost
        self._file.lost = 0
        if not lost:
            return ""
        answers = counted(lost, "answer")
        return f"Another program has removed {answers} from the file; these rows are asked again."

    def _read_lines(self) -> None:
        """Read from the lines of the file who has answered each row.

        Raises:
            UsageError: the lines are not of this rubric or of this sample.
        """
        self._check_labels()
        self._check_sample()
        self._by = defaultdict(set)
        for line in self._file.lines:
            self._by[line["label"]["row"]].add(line["annotator"])

    def _check_labels(self) -> None:
        """Check that the labels of the file are of the rubric's aspects."""
        for name, aspect in self.rubric.aspects.items():
            labels: list[Value] = ["a", "tie", "b"]
            if aspect.preference is None:
                labels = list(aspect.values.values())
            for number, line in enumerate(self._file.lines, 1):
                is_skipped = name not in line and line["label"]["skipped"] is not None
                if not is_skipped and line.get(name) not in labels:
                    raise UsageError(
                        f"`out`, line {number}: has no label of {name} ({aspect}); correct it, or choose "
                        "another file for another rubric"
                    )

    def _check_sample(self) -> None:
        """Check that the labels of the file and those to come belong to one sample with known chances."""
        for line in self._file.lines:
            label = line["label"]
            row = self._row_of_key.get(label["row"])
            is_other = row is None or abs(self._chance(row) - label["chance"]) > _SAME
            has_unequal_chances = self._candidates.prefer or label.get("prefer")
            if is_other and has_unequal_chances:
                raise UsageError(
                    "`out`: was begun with another sample, so that the chances would not be known; give the "
                    "same `sample`, `prefer` and `seed`, or another file"
                )

    def _chance(self, row: int) -> float:
        """Return the chance of a row to be in the sample: that of its instruction."""
        return float(self._candidates.chance[self._candidates.group[row]])

    def _content(self, row: int) -> Row:
        content = self._candidates.rows[row]
        assert isinstance(content, Row)  # unreadable rows are no candidates
        return content

    def _order(self, annotator: str) -> list[int]:
        """Return the rows in a person's own order: instructions at random, and the rows of each at random."""
        if annotator not in self._orders:
            random = np.random.default_rng([self._seed, *hashlib.sha256(annotator.encode()).digest()])
            groups = self._candidates.group[self._rows]
            rank_of_instruction = random.permutation(len(self._candidates.chance))[groups]
            rank_within = random.random(len(groups))
            self._orders[annotator] = self._rows[np.lexsort((rank_within, rank_of_instruction))].tolist()
        return self._orders[annotator]

    def _is_common(self, row: int) -> bool:
        """Return whether everyone labels a row."""
        return int(self._candidates.group[row]) in self._common

    def _is_open(self, row: int, annotator: str) -> bool:
        """Return whether a person is still to label a row."""
        people = self._by.get(self._candidates.keys[row], set())
        if self._is_common(row):
            return annotator not in people
        return not people

    def _shows_reversed(self, row: int, annotator: str) -> bool:
        """Return whether a person sees the responses of a pair in the reverse of the input's order."""
        if self.rubric.mode.pairs is None:
            return False
        text = f"{self._seed} {annotator} {self._candidates.keys[row]}"
        return hashlib.sha256(text.encode()).digest()[0] % 2 == 1

    def _shown(self, row: int, annotator: str) -> dict[str, Any]:
        """Return a row as the page shows it to a person."""
        content = self._content(row)
        responses = content.texts
        if self._shows_reversed(row, annotator):
            responses = responses[::-1]
        shown = {
            "key": self._candidates.keys[row],
            "instruction": content.instruction,
            "reference": content.reference if "reference" in self.rubric.fields else None,
            "fields": dict(content.fields),
            "responses": responses,
            "judged": self._candidates.judged.get(row),
        }
        return shown | self.progress(annotator)

    def _line(self, row: int, annotator: str, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the line of the label file for a person's answer.

        Raises:
            UsageError: a part of the answer is invalid.
        """
        content = self._content(row)
        is_reversed = self._shows_reversed(row, annotator)
        skipped = _text_of(answer, "skipped")
        texts: dict[str, Any] = {}
        if skipped is None:
            texts = self._value_texts(answer)
        line: dict[str, Any] = {"id": content.id}
        systems = [response.system for response in content.responses]
        line.update(zip(self._system_columns, systems, strict=True))
        line.update(zip(self._digest_columns, content.response_digests, strict=True))
        line["annotator"] = annotator
        for name, text in texts.items():
            line[name] = _label(name, self.rubric.aspects[name], text, is_reversed=is_reversed)
        line["label"] = {
            "row": self._candidates.keys[row],
            "group": content.group,
            "shows": list(content.shared_texts),
            "chance": self._chance(row),
            "prefer": self._candidates.prefer,
            "skipped": skipped,
            "note": _text_of(answer, "note"),
            "seconds": _seconds(answer),
            "labelled": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "shown_reversed": is_reversed,
            "saw_judge": row in self._candidates.judged,
            "values": texts,
        }
        return line

    @property
    def _system_columns(self) -> tuple[str, ...]:
        return ("system",) if self.rubric.mode.pairs is None else PAIR_SYSTEMS

    @property
    def _digest_columns(self) -> tuple[str, ...]:
        return RESPONSE_DIGESTS[:1] if self.rubric.mode.pairs is None else PAIR_DIGESTS

    def _value_texts(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the text of the value of each aspect in an answer, None without one.

        Raises:
            UsageError: the answer has no object of texts.
        """
        values = answer.get("values") or {}
        if not isinstance(values, Mapping):
            raise UsageError("values: give an object with the text of each aspect's value")
        return {name: values.get(name) for name in self.rubric.aspects}


def _text_of(answer: Mapping[str, Any], name: str) -> str | None:
    """Return a text that an answer may have; None without it.

    Raises:
        UsageError: it is not a text.
    """
    text = answer.get(name) or None  # false is what some programs write for none
    if text is not None and not isinstance(text, str):
        raise UsageError(f"{name}: give a text, or null")
    return text


def _seconds(answer: Mapping[str, Any]) -> float | None:
    """Return for how long the row of an answer was visible; None if it does not say so.

    Raises:
        UsageError: it is not a number of seconds.
    """
    seconds: Any = answer.get("seconds")
    if seconds is None:
        return None
    if type(seconds) in (int, float) and 0 <= seconds <= _MOST_SECONDS:
        number: float = seconds
        return number
    raise UsageError(f"seconds: give a number from 0 to {_MOST_SECONDS:,}, or null")


def _label(name: str, aspect: Aspect, text: Any, *, is_reversed: bool) -> Value:
    """Return the label of a text that the page has sent; a preference is a, tie or b of the input's order.

    Args:
        name: the name of the aspect.
        aspect: the aspect.
        text: what the page has sent.
        is_reversed: whether the page showed the responses in the reverse of the input's order.

    Raises:
        UsageError: the text is not a value of the aspect.
    """
    if not isinstance(text, str) or text not in aspect.values:
        raise UsageError(f"{name}: {str(text)[:40]} is not one of {', '.join(aspect.values)}")
    value = aspect.values[text]
    if aspect.preference is None:
        return value
    assert aspect.numbers is not None  # a preference has an order
    number = aspect.numbers[value]
    if is_reversed:
        number = -number
    if number > 0:
        return "a"
    if number < 0:
        return "b"
    return "tie"
