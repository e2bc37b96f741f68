"""The part of a rubric that says how an answer is written: the keys of a JSON object, or a form.

A form is one of its own, as some models are trained on: `Feedback: {rationale} [RESULT] {score}`.

The name of an aspect in braces is its value; any other name is a free text, whose name becomes a column. A
doubled brace is a brace. Each answer can be read in one way only:

* A free text ends where the literal text after it first occurs, so it never contains that text. It has one
  character or more; newlines and tabs are its only control characters.
* There is literal text between two fields. If a value is the beginning of a longer value, the literal text
  after it does not begin with the byte with which the longer value continues.
* Where the form ends with a field, the token that ends an answer ends the field.

A space before a field belongs to the field's first token, as tokenizers write it: the prompt does not end with
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field

from localjudge.records.outcome_columns import RATIONALE, is_reserved, rationale_of
from localjudge.rubrics.answer import (
    Answer,
    AnswerField,
    AnswerLayout,
    FreeText,
    JsonLayout,
    ObjectLayout,
    Value,
    ValueField,
)
from localjudge.rubrics.aspect import PLAIN_TEXT, Aspect, RubricPart, refuse_duplicates

_PIECE = re.compile(r"\{([a-z][a-z0-9_]{0,63})\}|(\{\{|\}\}|[^{}]+)|.", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# The token table has a few states for each byte of the literal text that closes a free text.
_LONGEST_CLOSING = 40


@dataclass(frozen=True, slots=True)
class FormLayout(AnswerLayout):
    """The fields of an answer with the literal text before and after each; `from_form` reads a form."""

    sequence: tuple[str | AnswerField, ...]

    @classmethod
    def from_form(cls, form: str, aspects: Mapping[str, Mapping[str, Value]]) -> Self:
        """Return the layout of a form.

        Args:
            form: literal text with names in braces.
            aspects: for each aspect, the value in a judgement for each text that the judge can write.

        Raises:
            ValueError: the form is ambiguous, or does not have each aspect once.
        """
        control = _CONTROL.search(form)
        if control is not None:
            raise ValueError(f"{control[0]!r} is a control character; remove it")
        parts: list[str | AnswerField] = []
        literal = ""
        for piece in _PIECE.finditer(form):
            name, text = piece.groups()
            if text in ("{{", "}}"):
                literal += text[0]
            elif text is not None:
                literal += text
            elif name is not None:
                lead = _lead(literal, is_first=not parts)
                parts.append(literal.removesuffix(lead))
                if name in aspects:
                    parts.append(ValueField(name, aspects[name], lead))
                else:
                    parts.append(FreeText(name, raw=True, lead=lead))
                literal = ""
            else:
                rest = form[piece.start() :]
                raise ValueError(f"{rest[:20]!r} is not {{name}}; write {{{{ for a brace")
        parts.append(literal)
        layout = cls(tuple(parts))
        layout._check(aspects)
        return layout

    def _check(self, aspects: Mapping[str, object]) -> None:
        """Check that an answer of the form can be read in one way only.

        Raises:
            ValueError: it cannot.
        """
        names = [field.name for field in self.fields]
        for name in list(aspects) + names:
            if names.count(name) != 1:
                raise ValueError(f"{{{name}}} occurs {names.count(name)} times; write it once")
        for field, closing in self._closed:
            if not closing and field.name != names[-1]:
                raise ValueError(f"a field follows after {{{field.name}}}; write text between them")
            if isinstance(field, ValueField):
                _check_end_of_value(field, closing)
            else:
                _check_text(field, closing)

    @property
    def parts(self) -> list[str | AnswerField]:
        return list(self.sequence)

    @property
    def _closed(self) -> Iterator[tuple[AnswerField, str]]:
        """Each field, and the literal text after it."""
        for field, closing in zip(self.sequence[1::2], self.sequence[2::2], strict=True):
            assert not isinstance(field, str)
            yield field, str(closing)

    @property
    def schema(self) -> None:
        return None

    def write(self, values: Mapping[str, str]) -> str:
        written = ""
        for part in self.sequence:
            written += part if isinstance(part, str) else part.lead + values[part.name]
        return written

    def parse(self, text: str) -> Answer:
        return Answer.from_written(self._read(text))

    def _read(self, text: str) -> Iterator[tuple[AnswerField, str]]:
        rest = _after(text, self.opening)
        for field, closing in self._closed:
            rest = _after(rest, field.lead)
            written = _written_in(field, rest, closing)
            yield field, written
            rest = _after(rest[len(written) :], closing)
        if rest:
            raise ValueError(f"text after the end of the answer: {rest[:20]!r}")


def _lead(literal: str, *, is_first: bool) -> str:
    """Return the space before a field that belongs to its first token; empty for none.

    Args:
        literal: the literal text before the field.
        is_first: whether the field is the first one. A space between two fields is the text between them.
    """
    if not literal.endswith(" "):
        return ""
    if not literal.strip() and not is_first:
        return ""
    return " "


def _check_end_of_value(field: ValueField, closing: str) -> None:
    """Check that the literal text after a value cannot continue it.

    Raises:
        ValueError: it can.
    """
    for text in field.values:
        if _can_continue(text, field.values, closing):
            raise ValueError(
                f"{closing!r} after {{{field.name}}} could also continue the value {text!r}; write other text "
                "there"
            )


def _can_continue(text: str, values: Mapping[str, Value], closing: str) -> bool:
    """Return whether a shorter value is a prefix, and the byte after it is the first of the closing text."""
    first_byte = closing.encode()[:1]
    for end in range(1, len(text)):
        rest = text[end:].encode()
        if text[:end] in values and rest[:1] == first_byte:
            return True
    return False


def _check_text(field: FreeText, closing: str) -> None:
    """Check the name of a free text, and the literal text after it.

    Raises:
        ValueError: one of them cannot be used.
    """
    if len(closing.encode()) > _LONGEST_CLOSING:
        raise ValueError(
            f"the text after {{{field.name}}} takes more than {_LONGEST_CLOSING} bytes; shorten it"
        )
    if is_reserved(field.name) and not field.name.endswith(RATIONALE):
        raise ValueError(f"{field.name!r} is the name of another column; choose another")


def _written_in(field: AnswerField, rest: str, closing: str) -> str:
    """Return what is written in a field: the longest value, or a text up to the literal text after it.

    Args:
        field: the field.
        rest: the answer from the field on.
        closing: the literal text after it.
    """
    if isinstance(field, ValueField):
        values = [text for text in field.values if rest.startswith(text)]
        return max(values, key=len, default="")
    if not closing:
        return rest
    return rest.partition(closing)[0]


def _after(text: str, literal: str) -> str:
    """Return the text after literal text.

    Raises:
        ValueError: it does not begin with it.
    """
    if not text.startswith(literal):
        raise ValueError(f"{text[:20]!r} stands in the place of {literal!r}")
    return text[len(literal) :]


LONGEST_NAME = 64
"""The most characters of a name of an aspect or of a key."""
_MOST_FIXED_BYTES = 1000
"""The most bytes of fixed text, which is decoded again in every answer."""
_VALUE = "score"
"""Key of an aspect's value beside a rationale of its own."""

RationalePlace = Literal["before", "after", "each", "none"]


class AnswerKeys(RubricPart):
    """The keys of the answer, and where the rationale stands; or the form of the answer, if it is not JSON."""

    rationale: str = "rationale"
    scores: str = "scores"
    aspects: dict[str, str] = Field(default_factory=dict)
    rationale_place: RationalePlace = "before"
    form: str | None = None

    def keys_of(self, aspects: Iterable[str]) -> dict[str, str]:
        """Return the answer's key for each aspect, in their order."""
        return {aspect: self.aspects.get(aspect, aspect) for aspect in aspects}

    def layout(self, aspects: Mapping[str, Aspect]) -> AnswerLayout:
        """Return the answer's fields: a value for each aspect, and the rationale or rationales.

        Raises:
            ValueError: the form is ambiguous, or does not have each aspect once.
        """
        if self.form is not None:
            values = {name: aspect.values for name, aspect in aspects.items()}
            try:
                return FormLayout.from_form(self.form, values)
            except ValueError as error:
                raise ValueError(f"answer.form: {error}") from None
        return JsonLayout(self._object(aspects))

    def _object(self, aspects: Mapping[str, Aspect]) -> ObjectLayout:
        """Return the object of an answer in JSON."""
        scores = self._scores(aspects)
        if self.scores:
            scores = {self.scores: scores}
        rationale: ObjectLayout = {self.rationale: FreeText(RATIONALE)}
        match self.rationale_place:
            case "before":
                return {**rationale, **scores}
            case "after":
                return {**scores, **rationale}
            case "each" | "none":
                return scores

    def _scores(self, aspects: Mapping[str, Aspect]) -> ObjectLayout:
        """Return the object of the aspects: each has a value, or a rationale and a value."""
        scores: dict[str, AnswerField | ObjectLayout] = {}
        for name, key in self.keys_of(aspects).items():
            value = ValueField(name, aspects[name].values)
            if self.rationale_place == "each":
                scores[key] = {self.rationale: FreeText(rationale_of(name)), _VALUE: value}
            else:
                scores[key] = value
        return scores

    def check(self, aspects: Mapping[str, Aspect]) -> None:
        """Check the keys, or the form, of an answer with these aspects.

        Raises:
            ValueError: they are inconsistent.
        """
        if self.form is None:
            self._check_keys(aspects)
        else:
            self._check_form(aspects, AnswerKeys(form=self.form))

    def _check_form(self, aspects: Mapping[str, Aspect], form_alone: AnswerKeys) -> None:
        """Check that the form stands alone, and that its fixed text is short enough."""
        for name, value in self:
            if value != getattr(form_alone, name):
                raise ValueError(f"answer.form: {name} is for answers in JSON; remove one of the two")
        literals = [part for part in self.layout(aspects).parts if isinstance(part, str)]
        size = sum(len(literal.encode()) for literal in literals)
        if size > _MOST_FIXED_BYTES:
            raise ValueError(
                f"answer.form: its fixed text takes {size} bytes, more than {_MOST_FIXED_BYTES}; shorten it"
            )

    def _check_keys(self, aspects: Mapping[str, Aspect]) -> None:
        """Check that the keys of an answer in JSON are different, and can be written and decoded."""
        for aspect in self.aspects:
            if aspect not in aspects:
                raise ValueError(f"answer.aspects: {aspect!r} is not one of the aspects")
        keys_of_aspects = list(self.keys_of(aspects).values())
        beside_each_other: list[str] = []
        if self.rationale_place != "none":
            beside_each_other.append(self.rationale)
        if self.scores:
            beside_each_other.append(self.scores)
        else:
            beside_each_other.extend(keys_of_aspects)
        refuse_duplicates("answer", beside_each_other)
        refuse_duplicates("answer.aspects", keys_of_aspects)
        if self.rationale_place == "each" and self.rationale == _VALUE:
            raise ValueError(
                f"answer: {_VALUE!r} is the key of the score beside each rationale; choose another"
            )
        keys = [self.rationale]
        if self.scores:
            keys.append(self.scores)
        keys.extend(keys_of_aspects)
        for key in keys:
            if len(key) > LONGEST_NAME:
                raise ValueError(
                    f"answer: the key {key[:20]!r}… has {len(key)} characters; use at most {LONGEST_NAME}"
                )
            if not PLAIN_TEXT.fullmatch(key):
                raise ValueError(f"answer: the key {key!r} must be text without quotes and backslashes")
        size = sum(len(f'"{key}":"",'.encode()) for key in keys)
        if size > _MOST_FIXED_BYTES:
            raise ValueError(
                f"answer: {len(keys)} keys and the text between them take {size} bytes, more than "
                f"{_MOST_FIXED_BYTES}; use fewer aspects or shorter keys"
            )
