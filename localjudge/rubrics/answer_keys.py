"""The part of a rubric that says how an answer is written: the keys of a JSON object, or a form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from localjudge.records.outcome_columns import RATIONALE, criterion_names, rationale_of
from localjudge.rubrics.answer import AnswerLayout, FreeText, ValueField
from localjudge.rubrics.aspect import PLAIN_TEXT, Aspect, RubricPart, refuse_duplicates
from localjudge.rubrics.form_layout import FormLayout
from localjudge.rubrics.json_layout import JsonLayout, ObjectLayout

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

    def for_criteria(self, aspect: str, count: int) -> AnswerKeys:
        """Return the keys of an answer with a value for each of several criteria, by their numbers.

        Args:
            aspect: the aspect whose values these are.
            count: the number of criteria.
        """
        numbers = dict(zip(criterion_names(aspect, count), range(count, 0, -1), strict=True))
        lines = "\n".join(f"{number}. {{{name}}}" for name, number in numbers.items())
        form = self.form and self.form.replace(f"{{{aspect}}}", lines)
        keys = {} if form else {name: str(number) for name, number in numbers.items()}
        return self.model_copy(update={"form": form, "aspects": keys})

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
