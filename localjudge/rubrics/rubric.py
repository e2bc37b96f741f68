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

    [answer.aspects]            # only for an aspect whose key differs from its name
    warmth = "Warmth"

    [prompt]
    empty_candidate = "judge"   # or "fail": an empty candidate becomes a failure
    guard = false               # or true: fields stay in their fences and show invisible characters
    template = '''
    … {$instruction} … {$reference} … {$candidate} …
    {$aspects}                  # the aspects with their values and descriptions
    {$answer_format}'''         # the form of the answer

A rubric whose template has no `{$reference}` needs no reference.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SerializationInfo, ValidationError, field_serializer, model_validator

from localjudge.errors import RubricError
from localjudge.outcome_columns import RATIONALE, AnswerColumns, is_reserved, rationale_of
from localjudge.records import Row, RowError
from localjudge.rubrics.answer import Answer, AnswerLayout, FreeText, ObjectLayout, ValueField
from localjudge.rubrics.aspect import PLAIN_TEXT, Aspect, RubricPart
from localjudge.rubrics.aspect_text import ANSWER_FORMAT, ASPECTS, answer_format, aspects_text, unmentioned
from localjudge.rubrics.guard import guarded, unfenced
from localjudge.rubrics.score_column import ScoreColumn, score_columns

DEFAULT_RUBRIC = "just-eval"

_FIELD = re.compile(r"[^\W\d][\w-]*(\.[\w-]+)*")
_PLACEHOLDER = re.compile(r"\{\$([^{}]*)\}")
_ASPECT = re.compile(r"[a-z][a-z0-9_]*")
# Fixed text is decoded again in every answer.
_LONGEST_NAME, _MOST_FIXED_BYTES = 64, 1000
_VALUE = "score"
"""Key of an aspect's value beside a rationale of its own."""

RationalePlace = Literal["before", "after", "each", "none"]


class AnswerKeys(RubricPart):
    """The keys of the answer, and where the rationale stands."""

    rationale: str = "rationale"
    scores: str = "scores"
    aspects: dict[str, str] = Field(default_factory=dict)
    rationale_place: RationalePlace = "before"


class Template(RubricPart):
    """The template, how to treat an empty candidate, and whether fields are guarded."""

    template: str
    empty_candidate: Literal["judge", "fail"] = "judge"
    guard: bool = False


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
        shipped = files("localjudge") / "rubrics" / f"{name_or_file}.toml"
        where = str(name_or_file)
        try:
            if str(name_or_file) in shipped_rubrics():
                raw = shipped.read_bytes()
            else:
                raw = Path(name_or_file).read_bytes()
            document = tomllib.loads(raw.decode("utf-8"))
        except FileNotFoundError:
            raise RubricError(
                f"rubric {where}: no such file, and no included rubric of this name; "
                f"give a TOML file or one of {', '.join(shipped_rubrics())}"
            ) from None
        except OSError as error:
            raise RubricError(f"rubric {where}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise RubricError(f"rubric {where}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise RubricError(f"rubric {where}: not TOML: {error}") from None
        if guard and isinstance(document.setdefault("prompt", {}), dict):
            document["prompt"]["guard"] = True
        if rationale is not None and isinstance(document.setdefault("answer", {}), dict):
            document["answer"]["rationale_place"] = rationale
        try:
            found = cls.model_validate(document)
            if rationale is not None and ANSWER_FORMAT not in _PLACEHOLDER.findall(found.prompt.template):
                raise RubricError(
                    f"rubric {where}: --rationale {rationale}: its prompt shows the answer in words of its "
                    "own; use a rubric with {$answer_format} in its template, such as six-aspects"
                )
            return found
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise RubricError(f"rubric {where}: {place + ': ' if place else ''}{message}") from None

    @model_validator(mode="before")
    @classmethod
    def _complete_aspects(cls, document: Any) -> Any:
        """Names of aspects are short for tables, and `scale` is for the aspects without values of their own."""
        if not isinstance(document, dict):
            return document
        document, aspects = dict(document), document.get("aspects")
        scale = document.pop("scale", None)
        if isinstance(aspects, list | tuple):
            pairs = [
                (each, {}) if isinstance(each, str) else (each["name"], each)
                for each in aspects
                if isinstance(each, str) or (isinstance(each, dict) and isinstance(each.get("name"), str))
            ]
            if len(pairs) < len(aspects):
                raise ValueError("aspects: give names, or a table with a name for each")
            _refuse_duplicates("aspects", (name for name, _ in pairs))
            aspects = {
                name: {key: value for key, value in each.items() if key != "name"} for name, each in pairs
            }
        if isinstance(aspects, dict):
            without = [
                name
                for name, each in aspects.items()
                if isinstance(each, dict) and not each.keys() & {"scale", "choices", "boolean"}
            ]
            if without and scale is None:
                raise ValueError(
                    f"scale: {without[0]!r} has no values; give a scale for all aspects, or its own"
                )
            own = {name: each | {"scale": scale} for name, each in aspects.items() if name in without}
            document["aspects"] = aspects | own
        return document

    @field_serializer("aspects")
    def _in_order(self, aspects: dict[str, Aspect], info: SerializationInfo) -> list[dict[str, Any]]:
        """The order of the aspects counts, and JSON objects do not keep it everywhere."""
        mode = "json" if info.mode_is_json() else "python"
        return [
            {"name": name, **aspect.model_dump(mode=mode, exclude_unset=info.exclude_unset)}
            for name, aspect in aspects.items()
        ]

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if not self.aspects:
            raise ValueError("aspects: name at least one aspect")
        for aspect in self.aspects:
            if len(aspect) > _LONGEST_NAME:
                raise ValueError(
                    f"aspects: {aspect[:20]!r}… has {len(aspect)} characters; use at most {_LONGEST_NAME}"
                )
            if not _ASPECT.fullmatch(aspect):
                raise ValueError(f"aspects: {aspect!r} is not a column name; use a-z, 0-9, _, a letter first")
            if is_reserved(aspect):
                raise ValueError(f"aspects: {aspect!r} is the name of another column; choose another")
        for aspect in self.answer.aspects:
            if aspect not in self.aspects:
                raise ValueError(f"answer.aspects: {aspect!r} is not one of the aspects")
        outer = [self.answer.rationale] * (self.answer.rationale_place != "none")
        outer += [self.answer.scores] if self.answer.scores else self.aspect_keys.values()
        _refuse_duplicates("answer", outer)
        _refuse_duplicates("answer.aspects", self.aspect_keys.values())
        if self.answer.rationale_place == "each" and self.answer.rationale == _VALUE:
            raise ValueError(
                f"answer: {_VALUE!r} is the key of the score beside each rationale; choose another"
            )
        keys = (self.answer.rationale, *filter(None, [self.answer.scores]), *self.aspect_keys.values())
        for key in keys:
            if len(key) > _LONGEST_NAME:
                raise ValueError(
                    f"answer: the key {key[:20]!r}… has {len(key)} characters; use at most {_LONGEST_NAME}"
                )
            if not PLAIN_TEXT.fullmatch(key):
                raise ValueError(f"answer: the key {key!r} must be text without quotes and backslashes")
        if (size := sum(len(f'"{key}":"",'.encode()) for key in keys)) > _MOST_FIXED_BYTES:
            raise ValueError(
                f"answer: {len(keys)} keys and the text between them take {size} bytes, more than "
                f"{_MOST_FIXED_BYTES}; use fewer aspects or shorter keys"
            )
        used = _PLACEHOLDER.findall(self.prompt.template)
        for field in used:
            if not _FIELD.fullmatch(field):
                raise ValueError(f"prompt.template: {{${field}}} is no placeholder; use {{$column}}")
        if "candidate" not in used:
            raise ValueError("prompt.template: placeholder {$candidate} is missing; add it")
        own = [aspects_text(self.aspects), answer_format(self.answer_layout, self.aspects)]
        if any(_PLACEHOLDER.search(text) for text in own):
            raise ValueError("aspects: a description or a level has a placeholder; write it without {$…}")
        if self.prompt.guard and (bare := unfenced(self._template)):
            raise ValueError(
                f"prompt.template: for guard, {{${bare[0]}}} must be on a line of its own between lines of ```"
            )
        return self

    @cached_property
    def _template(self) -> str:
        """The template with the placeholders that do not depend on the row filled."""
        own = {
            ASPECTS: aspects_text(self.aspects),
            ANSWER_FORMAT: answer_format(self.answer_layout, self.aspects),
        }
        return _PLACEHOLDER.sub(lambda found: own.get(found[1], found[0]), self.prompt.template)

    @cached_property
    def unmentioned(self) -> list[str]:
        """The names and values of aspects that the template never mentions; the judge cannot know them."""
        return unmentioned(self.prompt.template, self.aspects, self.aspect_keys)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields of a row that the template uses, each once."""
        return tuple(dict.fromkeys(_PLACEHOLDER.findall(self._template)))

    @property
    def needs_reference(self) -> bool:
        return "{$reference}" in self.prompt.template

    @property
    def aspect_keys(self) -> dict[str, str]:
        """The answer's key for each aspect, in the rubric's order."""
        return {aspect: self.answer.aspects.get(aspect, aspect) for aspect in self.aspects}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything in the rubric that can change a judgement, in hex."""
        return self._digest(exclude_unset=False)

    @property
    def recorded_digest(self) -> str:
        """The digest over the fields that are set: a rubric in `run.json` may lack newer fields."""
        return self._digest(exclude_unset=True)

    def _digest(self, *, exclude_unset: bool) -> str:
        decisive = self.model_dump(mode="json", exclude={"name", "description"}, exclude_unset=exclude_unset)
        for aspect in decisive["aspects"]:
            for name in ("weight", "best"):
                aspect.pop(name, None)
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    @property
    def template_digest(self) -> str:
        """SHA-256 of the template's bytes, in hex."""
        return hashlib.sha256(self.prompt.template.encode()).hexdigest()

    @cached_property
    def answer_layout(self) -> AnswerLayout:
        """The answer's fields: a value for each aspect, and the rationale or rationales."""
        place, key = self.answer.rationale_place, self.answer.rationale
        values: ObjectLayout = {
            self.aspect_keys[name]: ValueField(name, aspect.values)
            if place != "each"
            else {key: FreeText(rationale_of(name)), _VALUE: ValueField(name, aspect.values)}
            for name, aspect in self.aspects.items()
        }
        scores = {self.answer.scores: values} if self.answer.scores else values
        rationale = {key: FreeText(RATIONALE)}
        return AnswerLayout(
            {**rationale, **scores}
            if place == "before"
            else {**scores, **rationale}
            if place == "after"
            else scores
        )

    @cached_property
    def score_columns(self) -> tuple[ScoreColumn, ...]:
        """The numbers that statistics compute with."""
        return score_columns(self.aspects)

    @cached_property
    def columns(self) -> AnswerColumns:
        """The columns of a judgement that belong to this rubric."""
        texts = tuple(text.name for text in self.answer_layout.texts)
        return AnswerColumns({name: aspect.kind for name, aspect in self.aspects.items()}, texts)

    def refusal(self, row: Row) -> RowError | None:
        """Return why this rubric cannot judge a row; None if it can."""
        if len(row.responses) != 1:
            return RowError(f"{len(row.responses)} responses; the rubric {self.name} judges one")
        if missing := [name for name in self.fields if _field_of(row, name) is None]:
            return RowError(f"no {missing[0]}, which the rubric {self.name} needs")
        if not row.candidate and self.prompt.empty_candidate == "fail":
            return RowError(f"an empty candidate, which the rubric {self.name} does not judge")
        return None

    def text(self, row: Row) -> str:
        """Return the template filled with a row in one pass; a placeholder inside a field stays as it is.

        Raises:
            ValueError: the rubric cannot judge this row.
        """
        if refusal := self.refusal(row):
            raise ValueError(refusal.reason)
        fields = {name: _field_of(row, name) or "" for name in self.fields}
        if self.prompt.guard:
            return guarded(self._template, fields)
        return _PLACEHOLDER.sub(lambda match: fields[match[1]], self._template)

    def parse(self, text: str) -> Answer:
        """Read an answer.

        Raises:
            ValueError: the text is not an answer to this rubric.
        """
        try:
            return self.answer_layout.parse(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not an answer to the rubric {self.name}: {error}") from None


def shipped_rubrics() -> list[str]:
    """Return the names of the rubrics in the package."""
    folder = files("localjudge") / "rubrics"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def _field_of(row: Row, name: str) -> str | None:
    """Return the text of a field of the template."""
    known = {"instruction": row.instruction, "reference": row.reference, "candidate": row.candidate}
    return known[name] if name in known else row.fields.get(name)


def _refuse_duplicates(place: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{place}: {name!r} occurs twice; remove one")
        seen.add(name)
