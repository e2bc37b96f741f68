"""A rubric: the prompt's template, the aspects in their order with their values, and the form of the answer.

A rubric is one TOML file. The text that the judge reads and the schema of its answer both follow from it:

    name = "tone"
    description = "How a reply sounds."
    aspects = ["warmth", "tact"]            # or a table for each: `localjudge.rubrics.aspect`
    scale = { lowest = 1, highest = 10 }    # of the aspects that have no values of their own

    [answer]                    # the keys of the answer; these are the defaults
    rationale = "rationale"
    scores = "scores"           # or "": the aspects' keys stand beside the rationale's
    rationale_place = "before"  # or "after" the scores, one before "each" score, or "none"
    # or, instead of JSON, the form of the answer: `localjudge.rubrics.answer_keys`
    # form = "{rationale} Warmth: {warmth} Tact: {tact}"

    [answer.aspects]            # only for an aspect whose key differs from its name
    warmth = "Warmth"

    [prompt]
    empty_candidate = "judge"   # or "fail": an empty candidate becomes a failure
    guard = false               # or true: fields stay in their fences and show invisible characters
    system = "You are a judge." # a turn of the system before all others; none by default
    template = '''
    … {$instruction} … {$reference} … {$candidate} …
    {$aspects}                  # the aspects with their values and descriptions
    {$answer_format}'''         # the form of the answer

A rubric whose template has no `{$reference}` needs no reference. A template with `{$conversation}` and without
`{$candidate}` judges whole conversations; `{$conversation_with_reasoning}` shows its reasoning, too.
A template with `{$candidate_a}` and `{$candidate_b}` compares two responses; its aspects are preferences.
A template with `{$criterion}` is filled for each of the row's own criteria (`localjudge.rows.criteria`).
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import SerializationInfo, ValidationError, field_serializer, model_validator

from localjudge.errors import RowError, RubricError
from localjudge.modes import mode_of
from localjudge.modes.mode import Mode
from localjudge.records import Row
from localjudge.records.outcome_columns import AnswerColumns
from localjudge.rows.columns import CONVERSATIONS, CRITERION, judges_conversation
from localjudge.rubrics.answer import Answer, AnswerLayout
from localjudge.rubrics.answer_keys import AnswerKeys
from localjudge.rubrics.aspect import (
    ANSWER_FORMAT,
    ASPECTS,
    NO_ORDERS,
    Aspect,
    RubricPart,
    ValueOrders,
    answer_format,
    aspects_text,
    with_aspects,
)
from localjudge.rubrics.rubric_file import (
    check_aspects,
    problems_of,
    prompt_problems,
    read_document,
)
from localjudge.rubrics.score_column import ScoreColumn, score_columns
from localjudge.rubrics.template import PLACEHOLDER, Template, guarded, unfenced

DEFAULT_RUBRIC = "just-eval"


class Rubric(RubricPart):
    """Template, ordered aspects and the form of the answer. `Rubric.load` reads a rubric and checks it."""

    name: str
    description: str = ""
    aspects: dict[str, Aspect]
    answer: AnswerKeys = AnswerKeys()
    prompt: Template

    @classmethod
    def load(
        cls,
        name_or_file: str | Path = DEFAULT_RUBRIC,
        *,
        guard: bool = False,
        rationale: str | None = None,
    ) -> Self:
        """Return the included rubric of this name, or the rubric in this TOML file.

        Args:
            name_or_file: the name of an included rubric, or a file.
            guard: guard the fields, even if the file does not say so.
            rationale: where the rationale stands, as in `rationale_place`; None for the file's own place.

        Raises:
            RubricError: there is no such rubric, the file cannot be read, or it is inconsistent.
        """
        document = read_document(name_or_file)
        if guard:
            _set(document, "prompt", key="guard", value=True)
        if rationale is not None:
            answer = document.get("answer")
            if isinstance(answer, dict) and "form" in answer:
                raise RubricError(
                    f"rubric {name_or_file}: `rationale` {rationale}: the form of its answer says where texts "
                    "stand; leave it out"
                )
            _set(document, "answer", key="rationale_place", value=rationale)
        try:
            rubric = cls.model_validate(document)
        except ValidationError as error:
            raise RubricError(f"rubric {name_or_file}: {problems_of(error)}") from None
        if rationale is not None and not rubric.shows_answer_format:
            raise RubricError(
                f"rubric {name_or_file}: `rationale` {rationale}: its prompt shows the answer in words of its "
                "own; use a rubric with {$answer_format} in its template, such as six-aspects"
            )
        return rubric

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, document: Any) -> Any:
        if isinstance(document, dict):
            return with_aspects(document)
        return document

    @field_serializer("aspects")
    def _in_order(self, aspects: dict[str, Aspect], info: SerializationInfo) -> list[dict[str, Any]]:
        """Return the aspects as a list, because JSON objects do not keep their order everywhere."""
        mode = "json" if info.mode_is_json() else "python"
        return [
            {"name": name, **aspect.model_dump(mode=mode, exclude_unset=info.exclude_unset)}
            for name, aspect in aspects.items()
        ]

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        check_aspects(self.aspects, self.mode)
        self.answer.check(self.aspects)
        for text in (aspects_text(self.aspects), answer_format(self.answer_layout, self.aspects)):
            if PLACEHOLDER.search(text):
                raise ValueError("aspects: a description or a level has a placeholder; write it without {$…}")
        if self.prompt.guard:
            self._check_fences()
        return self

    def _check_fences(self) -> None:
        """Check that each field has a fence of its own, which the guard needs."""
        for field in unfenced(self._template):
            raise ValueError(
                f"prompt.template: for guard, {{${field}}} must be on a line of its own between lines of ```"
            )

    @cached_property
    def _template(self) -> str:
        """The template with the placeholders that do not depend on the row filled."""
        return self.filled(self.prompt.template)

    def filled(self, text: str, orders: ValueOrders = NO_ORDERS) -> str:
        """Return a text with the aspects and the form of the answer in their places.

        Args:
            text: the text.
            orders: another order of the values of some aspects.
        """
        texts = {
            ASPECTS: aspects_text(self.aspects, orders),
            ANSWER_FORMAT: answer_format(self.answer_layout, self.aspects, orders),
        }
        return PLACEHOLDER.sub(lambda placeholder: texts.get(placeholder[1], placeholder[0]), text)

    @cached_property
    def problems(self) -> list[str]:
        """What looks wrong in the prompt, in words."""
        return prompt_problems(self.prompt, self.filled(self.prompt.text), self.aspects, self.answer)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields of a row that the template uses, each once."""
        return tuple(dict.fromkeys(PLACEHOLDER.findall(self._template)))

    @cached_property
    def system(self) -> str:
        """The system prompt; empty for none."""
        return self.filled(self.prompt.system)

    @cached_property
    def mode(self) -> Mode[Any]:
        """What it judges: one response, two that are compared, or one by the criteria of its row."""
        return mode_of(PLACEHOLDER.findall(self.prompt.template))

    @property
    def shows_answer_format(self) -> bool:
        """Whether the prompt shows the form of the answer by `{$answer_format}`."""
        return ANSWER_FORMAT in PLACEHOLDER.findall(self.prompt.text)

    @property
    def needs_reference(self) -> bool:
        return "{$reference}" in self.prompt.template

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything in the rubric that can change a judgement, in hex."""
        decisive = self.model_dump(mode="json", exclude={"name", "description"})
        for aspect in decisive["aspects"]:
            del aspect["weight"], aspect["best"]
            # Labels have an order, in the prompt and by their numbers; the keys of objects are sorted below.
            for kind in ("choices", "preference"):
                if aspect[kind] is not None:
                    aspect[kind] = list(aspect[kind].items())
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    @property
    def is_default(self) -> bool:
        """Whether it is the default rubric, which the bundled model was trained for; weights may differ."""
        return self.digest == Rubric.load().digest

    @property
    def template_digest(self) -> str:
        """SHA-256 of the template's bytes, in hex."""
        return hashlib.sha256(self.prompt.template.encode()).hexdigest()

    @cached_property
    def answer_layout(self) -> AnswerLayout:
        """The answer's fields: a value for each aspect, and the rationale or rationales."""
        return self.answer.layout(self.aspects)

    @cached_property
    def score_columns(self) -> tuple[ScoreColumn, ...]:
        """The numbers that statistics compute with."""
        return score_columns(self.aspects)

    @cached_property
    def row_columns(self) -> tuple[ScoreColumn, ...]:
        """The numbers of a row of the input, whose means describe a system."""
        return self.mode.row_columns(self.aspects)

    @cached_property
    def columns(self) -> AnswerColumns:
        """The columns of a judgement that belong to this rubric."""
        texts = tuple(text.name for text in self.answer_layout.texts)
        types = {name: aspect.kind for name, aspect in self.aspects.items()}
        return AnswerColumns(types, texts, prompt=self.mode.prompt_columns)

    def refusal(self, row: Row) -> RowError | None:
        """Return why this rubric cannot judge a row; None if it can."""
        if len(row.responses) != len(self.mode.responses):
            return RowError(f"{len(row.responses)} responses; the rubric {self.name} {self.mode.judges}")
        for name in self.fields:
            if self._field_of(row, name) is None:
                return RowError(f"no {name}, which the rubric {self.name} needs")
        if "instruction" in self.fields and not row.instruction.strip():
            return RowError(f"an empty instruction, which the rubric {self.name} shows to the judge")
        if self.prompt.empty_candidate == "fail" and not all(response.text for response in row.responses):
            return RowError(f"an empty candidate, which the rubric {self.name} does not judge")
        return None

    def text(self, row: Row) -> str:
        """Return the template filled with a row in one pass; a placeholder inside a field stays as it is.

        Raises:
            ValueError: the rubric cannot judge this row.
        """
        refusal = self.refusal(row)
        if refusal is not None:
            raise ValueError(refusal.reason)
        return self._text_of(row, self._template)

    def beginnings(self, row: Row) -> list[int]:
        """Return the lengths of the prefixes that other rows share with the text of this one, in characters.

        The text before the first field is that of all rows, the text before the response that of all rows of an
        instruction, and the text before a criterion that of all prompts of a row.
        """
        return [len(self._text_of(row, self._template[:end])) for end in self.shared_until]

    @cached_property
    def shared_until(self) -> tuple[int, int, int]:
        """The ends of these prefixes in the template: its first field, the response, the criterion."""
        begins: dict[str, int] = {}
        for placeholder in PLACEHOLDER.finditer(self._template):
            begins.setdefault(placeholder[1], placeholder.start())
        of_one_row = {*self.mode.responses, *CONVERSATIONS, CRITERION}
        first = min(begins.values())
        response = min(begin for name, begin in begins.items() if name in of_one_row)
        criterion = max(response, begins.get(CRITERION, 0))
        return first, response, criterion

    @cached_property
    def texts_around(self) -> tuple[str, str]:
        """The text before the first field, and all text after the beginning of the response, without fields."""
        first, response, _ = self.shared_until
        return self._template[:first], PLACEHOLDER.sub("", self._template[response:])

    def _text_of(self, row: Row, template: str) -> str:
        """Return a template, or its beginning, filled with the fields of a row."""
        fields: dict[str, str] = {}
        for name in self.fields:
            fields[name] = self._field_of(row, name) or ""
        if self.prompt.guard:
            return guarded(template, fields)
        return PLACEHOLDER.sub(lambda match: fields[match[1]], template)

    def _field_of(self, row: Row, name: str) -> str | None:
        """Return the text of a field of the template."""
        if name in CONVERSATIONS and judges_conversation(self.fields):
            return row.candidate
        if name == CRITERION:
            return row.criteria[0].text if row.criteria else None
        if name == "instruction":
            return row.instruction
        if name == "reference":
            return row.reference
        if name in self.mode.responses:
            return row.texts[self.mode.responses.index(name)]
        return row.fields.get(name)

    def parse(self, text: str) -> Answer:
        """Read an answer.

        Raises:
            ValueError: the text is not an answer to this rubric.
        """
        try:
            return self.answer_layout.parse(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not an answer to the rubric {self.name}: {error}") from None


def _set(document: dict[str, Any], table: str, *, key: str, value: object) -> None:
    """Set a key of a table, which is added if it is missing; what is no table is refused by the check."""
    content = document.setdefault(table, {})
    if isinstance(content, dict):
        content[key] = value
