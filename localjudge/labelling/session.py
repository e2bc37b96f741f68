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
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric
from localjudge.system.quantities import counted

_SAME = 1e-9
_MOST_SECONDS = 1_000_000


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
        self.rubric, self._candidates, self._file, self._seed = rubric, candidates, file, seed
        self._check_labels()
        drawn = draw(candidates.chance, np.random.default_rng(seed))
        self._common = set(drawn[: math.ceil(overlap * len(drawn))].tolist())
        self._places = np.flatnonzero(np.isin(candidates.group, drawn))
        self._place_of = {candidates.keys[place]: place for place in self._places.tolist()}
        self._orders: dict[str, list[int]] = {}
        self._on_screen: dict[int, str] = {}  # the row on each person's screen
        self._by: dict[str, set[str]] = {}  # who has answered each row
        self._read_lines()

    def __len__(self) -> int:
        """The number of rows in the sample."""
        return len(self._places)

    def progress(self, annotator: str) -> dict[str, float]:
        """Return how many rows a person has labelled and skipped, how many are left, and the seconds a row."""
        own = [line for line in self._file.lines if line["annotator"] == annotator]
        skipped = sum(line["label"]["skipped"] is not None for line in own)
        left = sum(self._is_open(place, annotator) for place in self._places.tolist())
        seconds = [line["label"]["seconds"] or 0 for line in own]
        pace = sum(seconds) / len(own) if own else 0
        return {"labelled": len(own) - skipped, "skipped": skipped, "left": left, "pace": pace}

    def next(self, annotator: str) -> dict[str, Any] | None:
        """Return a person's next row as the page shows it; None at the end."""
        self._on_screen = {place: name for place, name in self._on_screen.items() if name != annotator}
        for place in self._order(annotator):
            if self._is_open(place, annotator) and (place not in self._on_screen or self._is_common(place)):
                self._on_screen.setdefault(place, annotator)
                return self._shown(place, annotator)
        return None

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
        place = self._place_of.get(key)
        if place is None:
            raise UsageError("this row is not in the sample; reload the page")
        if self._file.refresh():
            self._read_lines()
        if annotator in self._by.get(key, ()):
            return False
        self._file.add(self._line(place, annotator, answer))
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
        place = self._place_of.get(line["label"]["row"])
        if place is None:
            return None
        self._on_screen = {at: name for at, name in self._on_screen.items() if name != annotator} | {
            place: annotator
        }
        return {**self._shown(place, annotator), "before": line["label"]}

    def said_of_changes(self) -> str:
        """Return what another program has removed from the file since the last call; empty for nothing."""
        lost, self._file.lost = self._file.lost, 0
        said = (
            f"Another program has removed {counted(lost, 'answer')} from the file; these rows are asked again."
        )
        return said if lost else ""

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
            values = [*aspect.values.values()] if aspect.preference is None else ["a", "tie", "b"]
            for number, line in enumerate(self._file.lines, 1):
                is_missing = name not in line and line["label"]["skipped"] is not None
                if not is_missing and line.get(name) not in values:
                    raise UsageError(
                        f"`out`, line {number}: has no label of {name} ({aspect}); correct it, or choose "
                        "another file for another rubric"
                    )

    def _check_sample(self) -> None:
        """Check that the labels of the file and those to come belong to one sample with known chances."""
        for label in (line["label"] for line in self._file.lines):
            place = self._place_of.get(label["row"])
            is_other = place is None or abs(self._chance(place) - label["chance"]) > _SAME
            if is_other and (self._candidates.prefer or label.get("prefer")):
                raise UsageError(
                    "`out`: was begun with another sample, so that the chances would not be known; give the "
                    "same `sample`, `prefer` and `seed`, or another file"
                )

    def _chance(self, place: int) -> float:
        return float(self._candidates.chance[self._candidates.group[place]])

    def _row(self, place: int) -> Row:
        row = self._candidates.rows[place]
        assert isinstance(row, Row)  # unreadable rows are no candidates
        return row

    def _order(self, annotator: str) -> list[int]:
        """Return the rows in a person's own order: instructions at random, and the rows of each at random."""
        if annotator not in self._orders:
            random = np.random.default_rng([self._seed, *hashlib.sha256(annotator.encode()).digest()])
            groups = self._candidates.group[self._places]
            turn = random.permutation(len(self._candidates.chance))[groups]
            self._orders[annotator] = self._places[np.lexsort((random.random(len(groups)), turn))].tolist()
        return self._orders[annotator]

    def _is_common(self, place: int) -> bool:
        return int(self._candidates.group[place]) in self._common

    def _is_open(self, place: int, annotator: str) -> bool:
        by = self._by.get(self._candidates.keys[place], ())
        return annotator not in by if self._is_common(place) else not by

    def _shows_reversed(self, place: int, annotator: str) -> bool:
        """Whether a person sees the responses of a pair in the reverse of the input's order."""
        text = f"{self._seed} {annotator} {self._candidates.keys[place]}"
        if self.rubric.mode.pairs is None:
            return False
        return hashlib.sha256(text.encode()).digest()[0] % 2 == 1

    def _shown(self, place: int, annotator: str) -> dict[str, Any]:
        row = self._row(place)
        texts = row.texts[::-1] if self._shows_reversed(place, annotator) else row.texts
        return {
            "key": self._candidates.keys[place],
            "instruction": row.instruction,
            "reference": row.reference if "reference" in self.rubric.fields else None,
            "fields": dict(row.fields),
            "responses": texts,
            "judged": self._candidates.judged.get(place),
            **self.progress(annotator),
        }

    def _line(self, place: int, annotator: str, answer: Mapping[str, Any]) -> dict[str, Any]:
        row, key = self._row(place), self._candidates.keys[place]
        turned, skipped = self._shows_reversed(place, annotator), _text_of(answer, "skipped")
        names, digests = (
            (PAIR_SYSTEMS, PAIR_DIGESTS) if len(row.responses) > 1 else (("system",), RESPONSE_DIGESTS[:1])
        )
        values = answer.get("values") or {}
        if not isinstance(values, Mapping):
            raise UsageError("values: give an object with the text of each aspect's value")
        texts = {name: values.get(name) for name in self.rubric.aspects if skipped is None}
        given = {name: _value(name, self.rubric.aspects[name], text, turned) for name, text in texts.items()}
        return {
            "id": row.id,
            **dict(zip(names, (each.system for each in row.responses), strict=True)),
            **dict(zip(digests, row.response_digests, strict=True)),
            "annotator": annotator,
            **given,
            "label": {
                "row": key,
                "group": row.group,
                "shows": [*row.shared_texts],
                "chance": self._chance(place),
                "prefer": self._candidates.prefer,
                "skipped": skipped,
                "note": _text_of(answer, "note"),
                "seconds": _seconds(answer),
                "labelled": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "shown_reversed": turned,
                "saw_judge": place in self._candidates.judged,
                "values": texts,
            },
        }


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
    seconds = answer.get("seconds")
    if seconds is None or (type(seconds) in (int, float) and 0 <= seconds <= _MOST_SECONDS):
        return seconds
    raise UsageError(f"seconds: give a number from 0 to {_MOST_SECONDS:,}, or null")


def _value(name: str, aspect: Aspect, text: Any, turned: bool) -> Any:
    """Return the label of a text that the page has sent; a preference is a, tie or b of the input's order.

    Raises:
        UsageError: the text is not a value of the aspect.
    """
    if not isinstance(text, str) or text not in aspect.values:
        raise UsageError(f"{name}: {str(text)[:40]} is not one of {', '.join(aspect.values)}")
    value = aspect.values[text]
    if aspect.preference is None:
        return value
    assert aspect.numbers is not None  # a preference has an order
    number = -aspect.numbers[value] if turned else aspect.numbers[value]
    return "a" if number > 0 else "b" if number < 0 else "tie"
