"""The values in a column of labels, read as numbers.

A scale has numbers. A boolean has true, false, yes, no, or a number from 0 to 1; so has the share of one label.
Choices have the label's text or the judge's code; ordered choices also have numbers from 1. Case and
surrounding spaces do not matter. An empty value, null or "N/A" means that there is no label; so does -1 in a
judgement of MT-Bench, whose program writes it if it cannot read the judge's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from localjudge.errors import UsageError
from localjudge.rows.paths import ABSENT, value_at
from localjudge.rubrics.aspect import Aspect

_LARGEST = 1e9
"""Largest absolute label: squares of larger numbers lose precision, and finally overflow."""
NO_LABEL = frozenset({"", "n/a", "na", "nan", "none", "null", "-"})
"""Texts of a value that is not a label."""
_OF_MT_BENCH = frozenset({"judge", "judgment", "turn"})
"""Columns of a judgement of MT-Bench."""
_YES_OR_NO = {"no": 0, "false": 0, "yes": 1, "true": 1, "i": 0, "c": 1}
"""Texts of a boolean; Inspect writes C for correct, I for incorrect."""


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """A column of labels, and how its values are read.

    Attributes:
        name: the name of the column, or the path of a nested value.
        target: the aspect, or the share of one of its labels.
        texts: the number of each text that is a label.
        numbers: the smallest and the largest number that is a label; None if no number is.
        known: the labels, for a message.
    """

    name: str
    target: str
    texts: Mapping[str, float | None]
    numbers: tuple[float, float] | None
    known: str

    @classmethod
    def from_aspect(cls, name: str, target: str, aspect: Aspect) -> LabelColumn:
        """Return the column of an aspect; labels without an order are numbered from 0."""
        if aspect.scale is not None:
            return cls(name, target, {}, (-_LARGEST, _LARGEST), "")
        if aspect.choices is None:
            return cls.from_share(name, target)
        numbers = aspect.numbers or {label: place for place, label in enumerate(aspect.choices.values())}
        pairs = [*aspect.choices.items(), *((label, label) for label in aspect.choices.values())]
        folded = {text.casefold(): numbers[label] for text, label in pairs}
        known = ", ".join(
            label if code == label else f"{label} ({code})" for code, label in aspect.choices.items()
        )
        ends = (1.0, float(len(numbers))) if aspect.ordered else None
        known += f", or a number from 1 to {len(numbers)}" if aspect.ordered else ""
        return cls(name, target, folded | {text: numbers[label] for text, label in pairs}, ends, known)

    @classmethod
    def from_share(cls, name: str, target: str) -> LabelColumn:
        """Return the column of the share of a label, or of a boolean."""
        return cls(name, target, _YES_OR_NO, (0.0, 1.0), "yes, no, true, false, or a number from 0 to 1")

    def with_codes(self, codes: Mapping[str, str]) -> Self:
        """Return the column with codes, each of which stands for a label, instead of the labels.

        Raises:
            UsageError: a code stands for something else.
        """
        if not codes:
            return self
        numbers = {code: self._number(label, f"`mapping` {self.target}") for code, label in codes.items()}
        return replace(self, texts=numbers, numbers=None, known=", ".join(codes))

    def read(self, record: Mapping[str, Any], where: str) -> list[float | None]:
        """Return the labels of a record: one, or one per annotator; an empty list without this column.

        Raises:
            UsageError: a value is not a label.
        """
        found = value_at(record, self.name)
        inner = record.get("scores")
        if found in (ABSENT, None) and isinstance(inner, Mapping):
            found = value_at(inner, self.name)
        if found in (ABSENT, None) or (found == -1 and record.keys() >= _OF_MT_BENCH):
            return []
        return [self._number(value, where) for value in (found if isinstance(found, list) else [found])]

    def _number(self, value: Any, where: str) -> float | None:
        if value is None:
            return None
        text = f"{value:g}" if isinstance(value, float) else str(value).strip()
        for each in (text, text.casefold()):
            if each in self.texts:
                return self.texts[each]
        if text.casefold() in NO_LABEL:
            return None
        says = f"{where}: {self.name!r} holds {str(value)[:40]!r}"
        labels = f", which is not a label of {self.target}; its labels are {self.known}"
        if self.numbers is None:
            raise UsageError(says + labels)
        lowest, highest = self.numbers
        try:
            number = float("" if isinstance(value, bool) else value)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(says + (labels if self.texts else ", which is not a number")) from None
        if number != number:
            return None
        if not lowest <= number <= highest:
            raise UsageError(
                says + (labels if self.texts else f"; a label is a number of at most {_LARGEST:g}")
            )
        return number
