"""A rubric: the prompt's template, the aspects in their order, and the scale.

A rubric is one TOML file. The text that the judge reads and the schema of its answer both follow from it:

    name = "tone"
    description = "How a reply sounds."
    aspects = ["warmth", "tact"]
    scale = { lowest = 1, highest = 10 }

    [answer]                    # the keys of the answer; these are the defaults
    rationale = "rationale"
    scores = "scores"

    [answer.aspects]            # only for an aspect whose key differs from its name
    warmth = "Warmth"

    [prompt]
    empty_candidate = "judge"   # or "fail": an empty candidate becomes a failure
    guard = false               # or true: fields stay in their fences and show invisible characters
    template = '''
    … {$instruction} … {$reference} … {$candidate} …'''

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
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from localjudge.errors import RubricError
from localjudge.outcome_columns import is_reserved
from localjudge.records import Row, RowError
from localjudge.rubrics.answer import Answer, AnswerLayout, FreeText, IntegerScale
from localjudge.rubrics.guard import guarded, unfenced

DEFAULT_RUBRIC = "just-eval"
FIELDS = ("instruction", "reference", "candidate")

_PLACEHOLDER = re.compile(r"\{\$([^{}]*)\}")
_ASPECT = re.compile(r"[a-z][a-z0-9_]*")
# Characters that a JSON string can hold without an escape.
_KEY = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f]+')
# Fixed text is decoded again in every answer.
_LONGEST_NAME, _MOST_FIXED_BYTES = 64, 1000


class _RubricPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Scale(_RubricPart):
    """Whole numbers from `lowest` to `highest`, both included."""

    lowest: int
    highest: int

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(range(self.lowest, self.highest + 1))


class AnswerKeys(_RubricPart):
    """The keys of the answer."""

    rationale: str = "rationale"
    scores: str = "scores"
    aspects: dict[str, str] = Field(default_factory=dict)


class Template(_RubricPart):
    """The template, how to treat an empty candidate, and whether fields are guarded."""

    template: str
    empty_candidate: Literal["judge", "fail"] = "judge"
    guard: bool = False


class Rubric(_RubricPart):
    """Template, ordered aspects and scale. `Rubric.load` reads a rubric and checks it."""

    name: str
    description: str = ""
    aspects: tuple[str, ...] = Field(strict=False)
    scale: Scale
    answer: AnswerKeys = AnswerKeys()
    prompt: Template

    @classmethod
    def load(cls, name_or_file: str | Path = DEFAULT_RUBRIC, *, guard: bool = False) -> Self:
        """Return the included rubric of this name, or the rubric in this TOML file.

        Args:
            name_or_file: the name of an included rubric, or a file.
            guard: guard the fields, even if the file does not say so.

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
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise RubricError(f"rubric {where}: {place + ': ' if place else ''}{message}") from None

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if not self.aspects:
            raise ValueError("aspects: name at least one aspect")
        _refuse_duplicates("aspects", self.aspects)
        for aspect in self.aspects:
            if len(aspect) > _LONGEST_NAME:
                raise ValueError(
                    f"aspects: {aspect[:20]!r}… has {len(aspect)} characters; use at most {_LONGEST_NAME}"
                )
            if not _ASPECT.fullmatch(aspect):
                raise ValueError(f"aspects: {aspect!r} is not a column name; use a-z, 0-9, _, a letter first")
            if is_reserved(aspect):
                raise ValueError(f"aspects: {aspect!r} is the name of another column; choose another")
        if not self.scale.lowest < self.scale.highest:
            raise ValueError(
                f"scale: {self.scale.lowest} to {self.scale.highest} has fewer than two values; "
                "highest must be above lowest"
            )
        if self.scale.lowest < 0 or self.scale.highest > 1000:
            raise ValueError("scale: use whole numbers from 0 to 1000")
        for aspect in self.answer.aspects:
            if aspect not in self.aspects:
                raise ValueError(f"answer.aspects: {aspect!r} is not one of the aspects")
        _refuse_duplicates("answer", (self.answer.rationale, self.answer.scores))
        _refuse_duplicates("answer.aspects", self.aspect_keys.values())
        keys = (self.answer.rationale, self.answer.scores, *self.aspect_keys.values())
        for key in keys:
            if len(key) > _LONGEST_NAME:
                raise ValueError(
                    f"answer: the key {key[:20]!r}… has {len(key)} characters; use at most {_LONGEST_NAME}"
                )
            if not _KEY.fullmatch(key):
                raise ValueError(f"answer: the key {key!r} must be text without quotes and backslashes")
        if (size := sum(len(f'"{key}":"",'.encode()) for key in keys)) > _MOST_FIXED_BYTES:
            raise ValueError(
                f"answer: {len(keys)} keys and the text between them take {size} bytes, more than "
                f"{_MOST_FIXED_BYTES}; use fewer aspects or shorter keys"
            )
        used = _PLACEHOLDER.findall(self.prompt.template)
        for field in used:
            if field not in FIELDS:
                known = ", ".join(f"{{${name}}}" for name in FIELDS)
                raise ValueError(f"prompt.template: unknown placeholder {{${field}}}; use {known}")
        for field in ("instruction", "candidate"):
            if field not in used:
                raise ValueError(f"prompt.template: placeholder {{${field}}} is missing; add it")
        if self.prompt.guard and (bare := unfenced(self.prompt.template)):
            raise ValueError(
                f"prompt.template: for guard, {{${bare[0]}}} must be on a line of its own between lines of ```"
            )
        return self

    @property
    def needs_reference(self) -> bool:
        return "{$reference}" in self.prompt.template

    @property
    def aspect_keys(self) -> dict[str, str]:
        """The answer's key for each aspect, in the rubric's order."""
        return {aspect: self.answer.aspects.get(aspect, aspect) for aspect in self.aspects}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything in the rubric that can change a score, in hex."""
        decisive = self.model_dump(mode="json", exclude={"name", "description"})
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    @property
    def template_digest(self) -> str:
        """SHA-256 of the template's bytes, in hex."""
        return hashlib.sha256(self.prompt.template.encode()).hexdigest()

    @cached_property
    def answer_layout(self) -> AnswerLayout:
        """The answer's fields: the rationale, then a score for each aspect."""
        values = range(self.scale.lowest, self.scale.highest + 1)
        scores = {key: IntegerScale(aspect, values) for aspect, key in self.aspect_keys.items()}
        return AnswerLayout({self.answer.rationale: FreeText("rationale"), self.answer.scores: scores})

    def refusal(self, row: Row) -> RowError | None:
        """Return why this rubric cannot judge a row; None if it can."""
        if len(row.responses) != 1:
            return RowError(f"{len(row.responses)} responses; the rubric {self.name} judges one")
        if self.needs_reference and row.reference is None:
            return RowError(f"no reference, which the rubric {self.name} needs")
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
        fields = {name: getattr(row, name) for name in FIELDS}
        if self.prompt.guard:
            return guarded(self.prompt.template, fields)
        return _PLACEHOLDER.sub(lambda match: fields[match[1]], self.prompt.template)

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


def _refuse_duplicates(place: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{place}: {name!r} occurs twice; remove one")
        seen.add(name)
