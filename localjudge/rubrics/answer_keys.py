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
        if control := _CONTROL.search(form):
            raise ValueError(f"{control[0]!r} is a control character; remove it")
        parts: list[str | AnswerField] = [""]
        for piece in _PIECE.finditer(form):
            name, text = piece.groups()
            if name is not None:
                before = str(parts[-1])
                lead = " " if before.endswith(" ") and (before.strip() or len(parts) == 1) else ""
                parts[-1] = before.removesuffix(lead)
                parts.append(
                    ValueField(name, aspects[name], lead) if name in aspects else FreeText(name, True, lead)
                )
                parts.append("")
            elif text is not None:
                parts[-1] = f"{parts[-1]}{text[0] if text in ('{{', '}}') else text}"
            else:
                raise ValueError(f"{form[piece.start() :][:20]!r} is not {{name}}; write {{{{ for a brace")
        layout = cls(tuple(parts))
        layout._check(aspects)
        return layout

    def _check(self, aspects: Mapping[str, object]) -> None:
        names = [field.name for field in self.fields]
        for name in (*aspects, *names):
            if names.count(name) != 1:
                raise ValueError(f"{{{name}}} occurs {names.count(name)} times; write it once")
        for field, closing in self._closed:
            after = "".join(("after {", field.name, "}"))
            if not closing and field.name != names[-1]:
                raise ValueError(f"a field follows {after}; write text between them")
            if isinstance(field, ValueField):
                longer = [text for text in field.values if _goes_on(text, field.values, closing)]
                if longer:
                    raise ValueError(
                        f"{closing!r} {after} could also continue the value {longer[0]!r}; write other text "
                        "there"
                    )
            elif len(closing.encode()) > _LONGEST_CLOSING:
                raise ValueError(f"the text {after} takes more than {_LONGEST_CLOSING} bytes; shorten it")
            elif is_reserved(field.name) and not field.name.endswith(RATIONALE):
                raise ValueError(f"{field.name!r} is the name of another column; choose another")

    @property
    def parts(self) -> list[str | AnswerField]:
        return [*self.sequence]

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
        return "".join(
            part if isinstance(part, str) else part.lead + values[part.name] for part in self.sequence
        )

    def parse(self, text: str) -> Answer:
        return Answer.from_written(self._read(text))

    def _read(self, text: str) -> Iterator[tuple[AnswerField, str]]:
        rest = _after(text, self.opening)
        for field, closing in self._closed:
            rest = _after(rest, field.lead)
            if isinstance(field, FreeText):
                written = rest.partition(closing)[0] if closing else rest
            else:
                written = max(filter(rest.startswith, field.values), key=len, default="")
            yield field, written
            rest = _after(rest[len(written) :], closing)
        if rest:
            raise ValueError(f"text after the end of the answer: {rest[:20]!r}")


def _goes_on(text: str, values: Mapping[str, Value], closing: str) -> bool:
    """Return whether a shorter value is a prefix, and the byte after it is the first of the closing text."""
    first = closing.encode()[:1]
    return any(text[:end] in values and text[end:].encode()[:1] == first for end in range(1, len(text)))


def _after(text: str, literal: str) -> str:
    """Return the text after literal text.

    Raises:
        ValueError: it does not begin with it.
    """
    if not text.startswith(literal):
        raise ValueError(f"{text[:20]!r} stands in the place of {literal!r}")
    return text[len(literal) :]


# Fixed text is decoded again in every answer.
LONGEST_NAME, _MOST_FIXED_BYTES = 64, 1000
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
            try:
                return FormLayout.from_form(
                    self.form, {name: aspect.values for name, aspect in aspects.items()}
                )
            except ValueError as error:
                raise ValueError(f"answer.form: {error}") from None
        place, key, key_of = self.rationale_place, self.rationale, self.keys_of(aspects)
        values: ObjectLayout = {
            key_of[name]: ValueField(name, aspect.values)
            if place != "each"
            else {key: FreeText(rationale_of(name)), _VALUE: ValueField(name, aspect.values)}
            for name, aspect in aspects.items()
        }
        scores = {self.scores: values} if self.scores else values
        rationale = {key: FreeText(RATIONALE)}
        return JsonLayout(
            {**rationale, **scores}
            if place == "before"
            else {**scores, **rationale}
            if place == "after"
            else scores
        )

    def check(self, aspects: Mapping[str, Aspect]) -> None:
        """Check the keys, or the form, of an answer with these aspects.

        Raises:
            ValueError: they are inconsistent.
        """
        if self.form is not None:
            if others := [name for name, value in self if value != getattr(AnswerKeys(form=self.form), name)]:
                raise ValueError(f"answer.form: {others[0]} is for answers in JSON; remove one of the two")
            size = sum(len(part.encode()) for part in self.layout(aspects).parts if isinstance(part, str))
            if size > _MOST_FIXED_BYTES:
                raise ValueError(
                    f"answer.form: its fixed text takes {size} bytes, more than {_MOST_FIXED_BYTES}; shorten it"
                )
            return
        for aspect in self.aspects:
            if aspect not in aspects:
                raise ValueError(f"answer.aspects: {aspect!r} is not one of the aspects")
        key_of = self.keys_of(aspects)
        outer = [self.rationale] * (self.rationale_place != "none")
        outer += [self.scores] if self.scores else key_of.values()
        refuse_duplicates("answer", outer)
        refuse_duplicates("answer.aspects", key_of.values())
        if self.rationale_place == "each" and self.rationale == _VALUE:
            raise ValueError(
                f"answer: {_VALUE!r} is the key of the score beside each rationale; choose another"
            )
        keys = (self.rationale, *filter(None, [self.scores]), *key_of.values())
        for key in keys:
            if len(key) > LONGEST_NAME:
                raise ValueError(
                    f"answer: the key {key[:20]!r}… has {len(key)} characters; use at most {LONGEST_NAME}"
                )
            if not PLAIN_TEXT.fullmatch(key):
                raise ValueError(f"answer: the key {key!r} must be text without quotes and backslashes")
        if (size := sum(len(f'"{key}":"",'.encode()) for key in keys)) > _MOST_FIXED_BYTES:
            raise ValueError(
                f"answer: {len(keys)} keys and the text between them take {size} bytes, more than "
                f"{_MOST_FIXED_BYTES}; use fewer aspects or shorter keys"
            )
